"""The default RBAC objects: the default roles of Kubernetes and kcp, and root's own.

Bootstrap writes these manifests. The roles of system:admin are part of every cluster's authorization; those of root
state the rights of any authenticated user there. The data is in `schemas/bootstrap/rbac.yaml`. Invariant: aggregated
roles have their rules filled in, in the order of the aggregation controller.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from atoll.machinery.kcp.manifest import Manifest, ObjectStamp
from atoll.machinery.kcp.schema_files import bootstrap_file
from atoll.machinery.meta.names import SYSTEM_ADMIN
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.types import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLES
from atoll.machinery.meta.wellknown import RBAC_GROUP, REPLICATE

HOMES = "system:kcp:home-workspaces:create"
_API_VERSION = f"{RBAC_GROUP}/v1"
_AGGREGATE_LABEL = f"{RBAC_GROUP}/aggregate-to-"
#: Extension API servers read the request header CA through this Role; charts bind to it by name.
_READER, _READER_NAMESPACE = "extension-apiserver-authentication-reader", "kube-system"


def policy(stamp: ObjectStamp, home_creators: Sequence[str] = ()) -> Iterator[Manifest]:
    """Yield the ClusterRoles, then the ClusterRoleBindings of stamp's cluster (root or system:admin).

    `home_creators` are the groups bound to the role for home workspaces. In system:admin a Role follows.
    """
    data = bootstrap_file("rbac")[stamp.cluster]
    labels, annotations = data.get("labels") or {}, data.get("annotations") or {}
    for name, role in data["roles"].items():
        obj = _role(stamp, data["roles"], name, annotations)
        aggregate_to = role.get("aggregate_to")
        all_labels = {**labels, **({_AGGREGATE_LABEL + aggregate_to: "true"} if aggregate_to else {})}
        yield Manifest(stamp.cluster, _labelled(obj, all_labels), CLUSTER_ROLES, reconciled=True)
    for name, binding in data["bindings"].items():
        groups = home_creators if name == HOMES else binding["groups"]
        obj = _binding(stamp, name, {**binding, "groups": groups}, annotations)
        yield Manifest(stamp.cluster, _labelled(obj, labels), CLUSTER_ROLE_BINDINGS, reconciled=True)
    if stamp.cluster == SYSTEM_ADMIN:
        yield _reader(stamp, labels, annotations)


def _role(stamp: ObjectStamp, roles: Object, name: str, annotations: Mapping[str, str]) -> Object:
    role = roles[name]
    obj: Object = {
        "apiVersion": _API_VERSION,
        "kind": "ClusterRole",
        "metadata": stamp.metadata("clusterroles", name, annotations=_replicated(role, annotations)),
    }
    if target := role.get("aggregates"):
        selector = {"matchLabels": {_AGGREGATE_LABEL + target: "true"}}
        obj["aggregationRule"] = {"clusterRoleSelectors": [selector]}
        obj["rules"] = _gathered(roles, target)
    else:
        obj["rules"] = role["rules"]
    return obj


def _gathered(roles: Object, target: str) -> list[Object]:
    """Return the rules of all roles that aggregate to `target`, by role name, without duplicates."""
    gathered: list[Object] = []
    for _, role in sorted(roles.items()):
        if role.get("aggregate_to") == target:
            rules = _gathered(roles, role["aggregates"]) if "aggregates" in role else role["rules"]
            gathered.extend(rule for rule in rules if rule not in gathered)
    return gathered


def _binding(stamp: ObjectStamp, name: str, binding: Object, annotations: Mapping[str, str]) -> Object:
    subjects = [{"apiGroup": RBAC_GROUP, "kind": "Group", "name": group} for group in binding["groups"]]
    return {
        "apiVersion": _API_VERSION,
        "kind": "ClusterRoleBinding",
        "metadata": stamp.metadata("clusterrolebindings", name, annotations=_replicated(binding, annotations)),
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": binding["role"]},
        "subjects": subjects,
    }


def _reader(stamp: ObjectStamp, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Manifest:
    rule = {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "resourceNames": ["extension-apiserver-authentication"],
        "verbs": ["get", "list", "watch"],
    }
    role = {
        "apiVersion": _API_VERSION,
        "kind": "Role",
        "metadata": stamp.metadata("roles", _READER, _READER_NAMESPACE, annotations, labels),
        "rules": [rule],
    }
    return Manifest(stamp.cluster, role, ROLES, reconciled=True)


def _replicated(entry: Object, annotations: Mapping[str, str]) -> dict[str, str]:
    words = entry.get("replicate")
    return {**annotations, **({REPLICATE: words} if words else {})}


def _labelled(obj: Object, labels: Mapping[str, str]) -> Object:
    if labels:
        obj["metadata"]["labels"] = dict(labels)
    return obj
