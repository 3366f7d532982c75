"""The kinds that a shard publishes in its change stream and its state stream.

The publisher of a shard uses this as its `StreamPolicy` and calls it for each log entry. The change stream carries
every type not excluded; the state stream carries the objects that other processes need to route, bind and authorize.
Invariant: of a `system:` cluster only what a shard says of itself is replicated, and a type from a cluster's own CRD is
never treated as a system type.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from atoll.machinery.meta import rawscan
from atoll.machinery.meta.names import CORE, LOCAL, ObjectKey, ResourceType, is_system_cluster
from atoll.machinery.meta.partial import Annotations, Partial
from atoll.machinery.meta.types import (
    ADMISSION_CONFIGURATIONS,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    COPIES_GROUP,
    EVENT_SUBSCRIPTIONS,
    NODE_PORTS,
    POLICY_PARAMETERS,
    SHARED_SUBSCRIPTIONS,
    WHOLE_COPIES,
    is_copy,
)
from atoll.machinery.meta.wellknown import REPLICATE

#: Components write these every few seconds, and no subscriber needs them.
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
}
REPLICATED = frozenset((group, resource) for group, names in _ALWAYS.items() for resource in names)
REPLICATED_IF_ANNOTATED = frozenset(
    (type.group, type.resource) for type in (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, *ADMISSION_CONFIGURATIONS)
)
#: What no kind serves: only shards read it. It is in the state stream alone, as are copies of cached resources.
INTERNAL = frozenset({POLICY_PARAMETERS, SHARED_SUBSCRIPTIONS})
#: What a shard says of itself: of system clusters, nothing else is replicated.
OF_SHARDS = frozenset({SHARED_SUBSCRIPTIONS})

_UNPUBLISHED_TYPES = INTERNAL | {NODE_PORTS, WHOLE_COPIES, EVENT_SUBSCRIPTIONS}

#: An object with a non-empty value of this annotation is replicated.
_REPLICATED = rawscan.text(REPLICATE)


_decoder = msgspec.json.Decoder(Partial[Annotations])


class KcpStreamPolicy:
    """The stream policy of a shard. `excluded` lists resources as `<plural>.<group>` (`leases.coordination.k8s.io`)."""

    def __init__(self, excluded: Iterable[str] = UNPUBLISHED) -> None:
        self._excluded = frozenset(
            (group, resource) for resource, _, group in (name.partition(".") for name in excluded)
        )

    @property
    def state_version(self) -> str:
        """Changes when other objects belong into the state stream than before."""
        names = (sorted(REPLICATED), sorted(REPLICATED_IF_ANNOTATED), sorted(INTERNAL))
        return hashlib.sha256(msgspec.json.encode(names)).hexdigest()[:16]

    def published(self, type: ResourceType) -> bool:
        # Called for each change: copies are told by what is_copy compares, without the call.
        if type in _UNPUBLISHED_TYPES or (type.group == COPIES_GROUP and type.identity == CORE):
            return False
        return (type.group, type.resource) not in self._excluded or type.identity == LOCAL

    def may_replicate(self, type: ResourceType) -> bool:
        name = (type.group, type.resource)
        if name in REPLICATED or name in REPLICATED_IF_ANNOTATED:
            return type.identity != LOCAL
        return type in INTERNAL or (type.group == COPIES_GROUP and type.identity == CORE)

    def replicated(self, key: ObjectKey, value: bytes) -> bool:
        if is_system_cluster(key.cluster):
            return key.type in OF_SHARDS
        name = (key.type.group, key.type.resource)
        return name in REPLICATED or key.type in INTERNAL or is_copy(key.type) or _annotated(value)


def _annotated(value: bytes) -> bool:
    """Search the bytes first: most roles and bindings lack the annotation and are not decoded."""
    if _REPLICATED not in value:
        return False
    return bool(_decoder.decode(value).metadata.annotations.get(REPLICATE))
