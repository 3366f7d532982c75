"""Which kinds the streams of a shard carry.

The publisher of a shard is given this as its `StreamPolicy` and asks it for each log entry. Changes carry every type
but those excluded; state carries what other processes need of a shard to route, bind and authorize. Invariant:
nothing of a `system:` cluster is ever replicated, and a type that a cluster declared for itself never passes for one
of the system's.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from atoll.machinery.meta.names import LOCAL, ObjectKey, ResourceType, is_system_cluster
from atoll.machinery.meta.wellknown import REPLICATE

#: Machines write these every few seconds, and no subscriber needs them.
UNPUBLISHED = frozenset({"leases.coordination.k8s.io", "events", "events.events.k8s.io"})

_ALWAYS = {
    "core.kcp.io": ("logicalclusters", "shards"),
    "tenancy.kcp.io": ("workspaces", "workspacetypes", "workspaceauthenticationconfigurations"),
    "topology.kcp.io": ("partitions",),
    "apis.kcp.io": ("apiexports", "apiresourceschemas", "apiconversions", "apiexportendpointslices"),
    "cache.kcp.io": (
        "cachedresources",
        "cachedresourceendpointslices",
        "clustercachedresources",
        "clustercachedresourceendpointslices",
    ),
    "admissionregistration.k8s.io": (
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
    ),
}
_ANNOTATED = {"rbac.authorization.k8s.io": ("clusterroles", "clusterrolebindings")}
REPLICATED = frozenset((group, resource) for group, names in _ALWAYS.items() for resource in names)
REPLICATED_IF_ANNOTATED = frozenset((group, resource) for group, names in _ANNOTATED.items() for resource in names)

#: A non-empty value of the annotation asks for replication.
_REPLICATE_BYTES = REPLICATE.encode()


class _Metadata(msgspec.Struct):
    annotations: dict[str, str] = {}


class _Annotated(msgspec.Struct):
    metadata: _Metadata


_decoder = msgspec.json.Decoder(_Annotated)


class KcpStreamPolicy:
    """The policy of a shard. `excluded` lists resources in Kubernetes' notation, as `leases.coordination.k8s.io`."""

    def __init__(self, excluded: Iterable[str] = UNPUBLISHED) -> None:
        self._excluded = frozenset(excluded)

    def published(self, type: ResourceType) -> bool:
        return type.group_resource not in self._excluded or type.identity == LOCAL

    def may_replicate(self, type: ResourceType) -> bool:
        name = (type.group, type.resource)
        return (name in REPLICATED or name in REPLICATED_IF_ANNOTATED) and type.identity != LOCAL

    def replicated(self, key: ObjectKey, value: bytes) -> bool:
        if is_system_cluster(key.cluster):
            return False
        return (key.type.group, key.type.resource) in REPLICATED or _annotated(value)


def _annotated(value: bytes) -> bool:
    """Searches the bytes first: most roles and bindings lack the annotation and need no decoding."""
    if _REPLICATE_BYTES not in value:
        return False
    return bool(_decoder.decode(value).metadata.annotations.get(REPLICATE))
