"""The authorization state of a logical cluster, loaded through a snapshot and shared by content.

The chain calls `PolicyCache.state`; no other module reads RBAC objects to serve a request. Invariant: an entry is used
only at the state version it was loaded at. The cache is bounded: an entry is two references, and clusters with the same
RBAC share one compiled policy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Set
from typing import NamedTuple, TypeAlias, TypeVar
from weakref import WeakValueDictionary

import msgspec

from atoll.machinery.apiserver.authorization import rbac_objects as objects
from atoll.machinery.apiserver.authorization.rbac import Policy
from atoll.machinery.apiserver.authorization.state_versions import StateVersion, is_remote, types_in
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.meta import wellknown
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.partial import Annotations, ObjectName, Phase
from atoll.machinery.meta.types import (
    API_BINDINGS,
    API_EXPORTS,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    LOGICAL_CLUSTERS,
    ROLE_BINDINGS,
    ROLES,
)
from atoll.machinery.storage.contract import ReplicaView, Scope
from atoll.machinery.storage.pages import each_record

#: Rules, grants and bound resources cached over all clusters.
MAX_WEIGHT = 400_000
#: An entry's own cost in the same unit; it limits the number of empty entries to some thousands.
_ENTRY_WEIGHT = 64

T = TypeVar("T")
_Rows: TypeAlias = View | ReplicaView


class ExportRef(msgspec.Struct, frozen=True):
    """The APIExport that provides a bound resource, and the uid of the bound schema."""

    cluster: str
    name: str
    schema: str = ""


class BoundResources(msgspec.Struct, frozen=True, eq=False, weakref=True):
    """Bound resources of a cluster by group and resource, and its own exports.

    `policed` are the exports with a local maximalPermissionPolicy.
    """

    resources: Mapping[tuple[str, str], ExportRef]
    policed: frozenset[str]
    #: All exports of the cluster. Another export was deleted, or has not been replicated here.
    exports: frozenset[str] = frozenset()


class ClusterState(msgspec.Struct, frozen=True):
    """One cluster at one version. `phase` is None without a LogicalCluster.

    `required_groups` is an OR of ANDs, empty without the annotation.
    """

    version: StateVersion
    phase: str | None
    required_groups: tuple[tuple[str, ...], ...]
    policy: Policy
    bound: BoundResources

    @property
    def is_remote(self) -> bool:
        """Return whether the state is of replicas: the part of the cluster's RBAC that its shard publishes."""
        return is_remote(self.version)

    @property
    def weight(self) -> int:
        return _ENTRY_WEIGHT + self.policy.weight + len(self.bound.resources)


class _LogicalCluster(msgspec.Struct, frozen=True):
    metadata: Annotations = Annotations()
    status: Phase = Phase()


class _BoundSchema(msgspec.Struct, frozen=True):
    uid: str = msgspec.field(default="", name="UID")


class _BoundResource(msgspec.Struct, frozen=True):
    group: str = ""
    resource: str = ""
    schema: _BoundSchema = _BoundSchema()


class _BindingStatus(msgspec.Struct, frozen=True, rename="camel"):
    api_export_cluster_name: str = ""
    bound_resources: tuple[_BoundResource, ...] | None = None


class _ExportReference(msgspec.Struct, frozen=True):
    name: str = ""


class _Reference(msgspec.Struct, frozen=True):
    export: _ExportReference = _ExportReference()


class _BindingSpec(msgspec.Struct, frozen=True):
    reference: _Reference = _Reference()


class _ApiBinding(msgspec.Struct, frozen=True):
    spec: _BindingSpec = _BindingSpec()
    status: _BindingStatus = _BindingStatus()


class _PermissionPolicy(msgspec.Struct, frozen=True):
    local: dict[str, object] | None = None


class _ExportSpec(msgspec.Struct, frozen=True, rename="camel"):
    maximal_permission_policy: _PermissionPolicy | None = None


class _ApiExport(msgspec.Struct, frozen=True):
    metadata: ObjectName
    spec: _ExportSpec = _ExportSpec()


_cluster_decoder = msgspec.json.Decoder(_LogicalCluster)
_binding_decoder = msgspec.json.Decoder(_ApiBinding)
_export_decoder = msgspec.json.Decoder(_ApiExport)


class PolicyCache:
    """States of recently requested clusters. One per event loop."""

    def __init__(self) -> None:
        self._states: LruCache[str, ClusterState] = LruCache(MAX_WEIGHT, lambda state: state.weight)
        self._policies: WeakValueDictionary[bytes, Policy] = WeakValueDictionary()
        self._bound: WeakValueDictionary[bytes, BoundResources] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._states)

    def state(self, snapshot: View, cluster: str, version: StateVersion) -> ClusterState:
        """The state of a cluster in the snapshot. `version` must have been read from the same snapshot."""
        state = self._states.get(cluster)
        if state is None or state.version != version:
            state = self._load(snapshot, cluster, version)
            self._states.put(cluster, state)
        return state

    def _load(self, snapshot: View, cluster: str, version: StateVersion) -> ClusterState:
        rows: _Rows = snapshot.replicas if is_remote(version) else snapshot
        logical, held = _logical_cluster(rows, cluster), _Held(rows, cluster, types_in(version))
        return ClusterState(
            version,
            logical.status.phase if logical is not None else None,
            _required_groups(logical),
            self._policy(held.source()),
            self._bindings(held),
        )

    def unknown(self, version: StateVersion) -> ClusterState:
        """The empty state, for a cluster that this shard does not hold."""
        return ClusterState(version, None, (), self._policy(objects.Source()), _EMPTY)

    def _policy(self, source: objects.Source) -> Policy:
        digest = _digest(source)
        policy = self._policies.get(digest)
        if policy is None:
            policy = self._policies[digest] = objects.compile_policy(source)
        return policy

    def _bindings(self, held: _Held) -> BoundResources:
        bindings, exports = held.all(API_BINDINGS, _binding_decoder), held.all(API_EXPORTS, _export_decoder)
        digest = _digest((bindings, exports))
        bound = self._bound.get(digest)
        if bound is None:
            bound = self._bound[digest] = _compile_bound(bindings, exports)
        return bound


def _digest(content: object) -> bytes:
    return hashlib.sha256(msgspec.msgpack.encode(content)).digest()


class _Held(NamedTuple):
    """The objects of a cluster; of no types but these there are any."""

    rows: _Rows
    cluster: str
    types: Set[ResourceType]

    def source(self) -> objects.Source:
        return objects.Source(
            self.all(CLUSTER_ROLES, objects.role_decoder),
            self.all(CLUSTER_ROLE_BINDINGS, objects.binding_decoder),
            self.all(ROLES, objects.role_decoder),
            self.all(ROLE_BINDINGS, objects.binding_decoder),
        )

    def all(self, type_: ResourceType, decoder: msgspec.json.Decoder[T]) -> tuple[T, ...]:
        """Every object of a type; none in cluster "", which is no wildcard here."""
        if not self.cluster or type_ not in self.types:
            return ()
        return tuple([decoder.decode(record.value) for record in each_record(self.rows, Scope(type_, self.cluster))])


def _logical_cluster(rows: _Rows, cluster: str) -> _LogicalCluster | None:
    record = rows.get(ObjectKey(LOGICAL_CLUSTERS, cluster, "", "cluster")) if cluster else None
    return _cluster_decoder.decode(record.value) if record is not None else None


def _required_groups(logical: _LogicalCluster | None) -> tuple[tuple[str, ...], ...]:
    text = logical.metadata.annotations.get(wellknown.REQUIRED_GROUPS) if logical is not None else None
    if text is None:
        return ()
    return tuple(tuple(group.strip() for group in clause.split(",")) for clause in text.split(";"))


def _compile_bound(bindings: tuple[_ApiBinding, ...], exports: tuple[_ApiExport, ...]) -> BoundResources:
    resources: dict[tuple[str, str], ExportRef] = {}
    for binding in bindings:
        cluster, name = binding.status.api_export_cluster_name, binding.spec.reference.export.name
        for bound in binding.status.bound_resources or ():
            resources[bound.group, bound.resource] = ExportRef(cluster, name, bound.schema.uid)
    policed = frozenset(
        export.metadata.name
        for export in exports
        if export.spec.maximal_permission_policy is not None and export.spec.maximal_permission_policy.local is not None
    )
    return BoundResources(resources, policed, frozenset(export.metadata.name for export in exports))


_EMPTY = BoundResources({}, frozenset())
