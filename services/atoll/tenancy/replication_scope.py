"""The replication scope of an object: its replicate words and derived level, from other objects of its cluster.

Admission and the labelling controller call `noted`; both get the same result for the same state, so the last write is
correct. Reads exports, types, roles and bindings of the object's cluster through a view; decoded exports are cached by
revision. Invariant: in a cluster that has no exports or types and refers to no exports, no annotation is set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.catalog.revision_cache import RevisionCache
from atoll.machinery.apiserver.federation.federated_view import federated
from atoll.machinery.kcp.apis import endpointslices
from atoll.machinery.kcp.sharding import replicate_annotation, replication_level
from atoll.machinery.meta import rawscan
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import SYSTEM_ADMIN, ObjectKey, ResourceType, is_system_cluster
from atoll.machinery.meta.objects import Object, decode, spec_of
from atoll.machinery.meta.types import (
    ADMISSION_CONFIGURATIONS,
    API_CONVERSIONS,
    API_EXPORT_ENDPOINT_SLICES,
    API_EXPORTS,
    API_RESOURCE_SCHEMAS,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
)
from atoll.machinery.meta.wellknown import APIS_GROUP, CORE_GROUP
from atoll.machinery.storage.contract import Scope
from atoll.machinery.storage.pages import each_record, each_revision
from atoll.tenancy.lookups import Lookups

MAX_EXPORTS = 4096
#: The types on which the system sets replicate words or a derived level.
NOTED = frozenset(
    {
        CLUSTER_ROLES,
        CLUSTER_ROLE_BINDINGS,
        API_RESOURCE_SCHEMAS,
        API_CONVERSIONS,
        API_EXPORT_ENDPOINT_SLICES,
        *ADMISSION_CONFIGURATIONS,
    }
)
#: The types whose replicate words are the system's alone.
SYSTEM_WORDS = frozenset(ADMISSION_CONFIGURATIONS)
_POLICY = rawscan.text(replicate_annotation.POLICY_PREFIX)
_NARROWING = {APIS_GROUP}


class ReplicatedExport(msgspec.Struct, frozen=True):
    """The fields of an export that determine the scope of its objects: its level, and its schemas' names."""

    level: str
    schemas: frozenset[str]


class ReplicationScope:
    """The replication scope of objects of one shard; caches are bounded and keyed by revision."""

    def __init__(self, facts: Lookups) -> None:
        self._facts = facts
        self._offers = RevisionCache(_read_offer, MAX_EXPORTS)
        #: By cluster, its exports and the stamp that they were read at: each write of one asks for all several times.
        self._of_cluster: LruCache[str, tuple[int, dict[str, ReplicatedExport]]] = LruCache(MAX_EXPORTS, _count)

    def cluster_words(self, view: View, cluster: str) -> frozenset[str]:
        """Return the words of a LogicalCluster, from the current exports and types of its cluster."""
        types = self._facts.identities.workspace_types
        return replicate_annotation.of_cluster(
            exports=_has(view, API_EXPORTS, cluster), types=_has(view, types, cluster)
        )

    def offers(self, view: View, cluster: str) -> dict[str, ReplicatedExport]:
        """Return the exports of a cluster, by name. Not to be changed."""
        stamp = view.last(API_EXPORTS, cluster)
        if not stamp:
            return {}
        cached = self._of_cluster.get(cluster)
        if cached is None or cached[0] != stamp:
            found = each_revision(view, Scope(API_EXPORTS, cluster))
            cached = stamp, {key.name: self._offers.of(view, key, revision) for key, revision in found}
            self._of_cluster.put(cluster, cached)
        return cached[1]

    def noted(self, view: View, key: ObjectKey, obj: Object) -> Object:
        """Return an object of a type in NOTED with its annotations set; the same object if nothing changes."""
        if is_system_cluster(key.cluster):
            return obj
        offers = self.offers(view, key.cluster)
        if key.type == CLUSTER_ROLES:
            return self._role(view, key, obj, offers)
        if key.type == CLUSTER_ROLE_BINDINGS:
            return self._binding(view, key, obj, offers)
        if key.type in SYSTEM_WORDS:
            return _configuration(obj, offers)
        if key.type == API_EXPORT_ENDPOINT_SLICES:
            return replication_level.with_derived_level(obj, self._slice_level(view, key.cluster, obj))
        naming = (offer.level for offer in offers.values() if key.name in offer.schemas)
        return replication_level.with_derived_level(obj, replication_level.widest_level(naming))

    # --- RBAC ---

    def _role(self, view: View, key: ObjectKey, role: Object, offers: Mapping[str, ReplicatedExport]) -> Object:
        rules = role.get("rules") or []
        words = replicate_annotation.of_rules(rules, self.cluster_words(view, key.cluster))
        is_for_policies = key.name in _policy_roles(view, key.cluster)
        if is_for_policies:
            words |= _NARROWING
        return _with(role, words, _level(rules, words, offers, every=is_for_policies))

    def _binding(self, view: View, key: ObjectKey, binding: Object, offers: Mapping[str, ReplicatedExport]) -> Object:
        rules, role_words = self._rules(view, key.cluster, binding)
        words = replicate_annotation.of_binding(binding, role_words)
        return _with(binding, words, _level(rules, words, offers, every=replicate_annotation.is_for_policies(binding)))

    def _rules(self, view: View, cluster: str, binding: Object) -> tuple[list[Object], frozenset[str]]:
        """Return the rules that a binding grants, and their words.

        A default role of every cluster has words only in a cluster with exports or types.
        """
        reference, words = binding.get("roleRef") or {}, self.cluster_words(view, cluster)
        if reference.get("kind") != "ClusterRole":
            return [], frozenset()
        name = str(reference.get("name") or "")
        record = view.get(ObjectKey(CLUSTER_ROLES, cluster, "", name))
        if record is not None:
            rules = decode(record.value).get("rules") or []
            return rules, replicate_annotation.of_rules(rules, words)
        record = view.get(ObjectKey(CLUSTER_ROLES, SYSTEM_ADMIN, "", name)) if words else None
        rules = (decode(record.value).get("rules") or []) if record is not None else []
        return rules, replicate_annotation.of_rules(rules, words) & {*words, CORE_GROUP}

    # --- slices ---

    def _slice_level(self, view: View, cluster: str, obj: Object) -> str:
        reference, view = endpointslices.reference_of(obj, cluster), federated(view)
        home = self._facts.cluster_of(view, reference.path)
        offer = self.offers(view, home).get(reference.name) if home is not None else None
        return offer.level if offer is not None else ""


def _with(obj: Object, words: Iterable[str], level: str) -> Object:
    return replication_level.with_derived_level(replicate_annotation.with_words(obj, frozenset(words)), level)


def _configuration(obj: Object, offers: Mapping[str, ReplicatedExport]) -> Object:
    """Note on a configuration of admission whether consumers of its cluster's exports are subject to it."""
    obj = replicate_annotation.with_system_words(obj, _NARROWING if offers else ())
    return replication_level.with_derived_level(obj, replication_level.widest_level(e.level for e in offers.values()))


def _level(
    rules: Iterable[Object], words: Iterable[str], offers: Mapping[str, ReplicatedExport], *, every: bool
) -> str:
    """Return the level of an RBAC object that grants only rights on exports, if all these exports have the same level.

    `every`: the rules apply to all exports of the cluster.
    """
    if set(words) != _NARROWING:
        return ""
    named: set[str] = set()
    for rule in rules:
        if replicate_annotation.names_exports(rule):
            names = rule.get("resourceNames") or ()
            named.update(names)
            every = every or not names
    return replication_level.widest_level(offer.level for name, offer in offers.items() if every or name in named)


def _policy_roles(view: View, cluster: str) -> set[str]:
    """Return the names of the ClusterRoles that a cluster's bindings grant to consumers of exports."""
    if not view.last(CLUSTER_ROLE_BINDINGS, cluster):
        return set()
    found = each_record(view, Scope(CLUSTER_ROLE_BINDINGS, cluster))
    bindings = (decode(record.value) for record in found if _POLICY in record.value)
    return {
        str((binding.get("roleRef") or {}).get("name") or "")
        for binding in bindings
        if replicate_annotation.is_for_policies(binding)
    }


def _has(view: View, type: ResourceType, cluster: str) -> bool:
    return bool(view.last(type, cluster)) and bool(view.revisions(Scope(type, cluster), None, 1))


def _count(held: tuple[int, dict[str, ReplicatedExport]]) -> int:
    return len(held[1])


def _read_offer(export: Object) -> ReplicatedExport:
    resources = spec_of(export).get("resources") or ()
    return ReplicatedExport(
        replication_level.level_of(export), frozenset(str(each.get("schema") or "") for each in resources)
    )
