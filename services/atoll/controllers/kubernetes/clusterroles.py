"""ClusterRole aggregation: the rules are the union of the rules of all selected roles.

Watches: ClusterRoles. Writes: `rules` of ClusterRoles with an aggregationRule. Converges because the union is computed
from current roles, in name order, and an equal one is not written.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.control.manager import Controller
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.meta.objects import Object, labels_of
from atoll.machinery.meta.selectors import compile_label_selector
from atoll.machinery.meta.types import CLUSTER_ROLES
from atoll.machinery.storage.contract import LogEntry, Scope


class ClusterRoleAggregation(Controller):
    """Key: cluster."""

    name = "clusterroleaggregation"
    workers = 1

    def __init__(self, loopback: Loopback, kind: Kind) -> None:
        self._loopback, self._kind = loopback, kind

    def watches(self, type: ResourceType) -> bool:
        return type == CLUSTER_ROLES

    def ends_with_cluster(self, type: ResourceType) -> bool:
        return True

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        yield entry.key.cluster

    def all_keys(self) -> Iterable[Hashable]:
        return {key.cluster for key in self._loopback.keys(Scope(CLUSTER_ROLES))}

    async def reconcile(self, cluster: str) -> float | None:
        roles = list(self._loopback.each(Scope(CLUSTER_ROLES, cluster)))
        for role in roles:
            rule = role.get("aggregationRule")
            if not rule:
                continue
            rules = union(role, roles)
            if rules != (role.get("rules") or []):
                target = Target(self._kind, cluster, "", role["metadata"]["name"])
                await self._loopback.try_update(target, {**role, "rules": rules})
        return None


def union(role: Object, roles: list[Object]) -> list[Object]:
    """Return the rules of all selected roles, in name order, without duplicates."""
    selectors = [compile_label_selector(each) for each in role["aggregationRule"].get("clusterRoleSelectors") or []]
    rules: list[Object] = []
    for other in sorted(roles, key=lambda each: str(each["metadata"]["name"])):
        if other["metadata"]["name"] == role["metadata"]["name"]:
            continue
        labels = labels_of(other)
        if any(selector.matches(labels) for selector in selectors):
            rules.extend(rule for rule in other.get("rules") or [] if rule not in rules)
    return rules
