"""Replication annotations (`internal.kcp.io/replicate` and level): kcp's replication labellers in one controller.

Watches: APIExports, also on other shards, and WorkspaceTypes (whether a cluster exports anything, and at which level);
ClusterRoles and ClusterRoleBindings, schemas, conversions, endpoint slices, webhook configurations and admission
policies. Writes: annotations of LogicalClusters and of the latter types. Admission sets the annotations on write; this
controller handles later changes and writes in flight. A cluster that exports nothing costs two reads. Converges because
annotations are computed from current objects.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator

import msgspec

from atoll.controllers.exports.endpointslices import path_of, slices_of
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.control.manager import ReplicaController
from atoll.machinery.kcp.sharding import replicate_annotation
from atoll.machinery.kcp.workspaces.workspace import ADMIN_BINDING
from atoll.machinery.meta import rawscan, wellknown
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import ObjectKey, ResourceType, is_system_cluster
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.sizes import size_bytes
from atoll.machinery.meta.status import Conflict, NotFound
from atoll.machinery.meta.types import (
    API_EXPORT_ENDPOINT_SLICES,
    API_EXPORTS,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    LOGICAL_CLUSTERS,
)
from atoll.machinery.storage.contract import GateState, LogEntry, Operation, Scope
from atoll.machinery.storage.pages import each_record
from atoll.tenancy.lookups import Lookups
from atoll.tenancy.replication_scope import NOTED, SYSTEM_WORDS, ReplicatedExport, ReplicationScope

#: Bytes of each cache.
MAX_BYTES = 4 << 20
_POLICY = rawscan.text(replicate_annotation.POLICY_PREFIX)
_IN_CLUSTER = sorted(NOTED - {API_EXPORT_ENDPOINT_SLICES})


class Cluster(msgspec.Struct, frozen=True, tag=True):
    """A cluster whose exports or types changed: its LogicalCluster and all its annotated objects."""

    cluster: str


class Role(msgspec.Struct, frozen=True, tag=True):
    """A ClusterRole that changed, or whose bindings changed: the role and its ClusterRoleBindings."""

    cluster: str
    name: str


class ReplicationLabels(ReplicaController):
    """Keys: Cluster, Role, or the ObjectKey of one object."""

    name = "replicationlabels"
    workers = 2
    #: 1: webhook configurations and policies are annotated.
    version = 1

    def __init__(self, loopback: Loopback, facts: Lookups) -> None:
        self._loopback, self._reach = loopback, ReplicationScope(facts)
        self._types = facts.identities.workspace_types
        self._offered: LruCache[str, tuple[frozenset[str], dict[str, ReplicatedExport]]] = LruCache(
            MAX_BYTES, size_bytes
        )

    # --- keys ---

    def watches(self, type: ResourceType) -> bool:
        return type in NOTED or type in {API_EXPORTS, self._types}

    def watches_replicas(self, type: ResourceType) -> bool:
        return type == API_EXPORTS

    def keys_of_replica(self, entry: LogEntry) -> Iterable[Hashable]:
        """Yield the local endpoint slices of a remote export."""
        with self._loopback.store.snapshot() as snapshot:
            slices = slices_of(snapshot, entry.key, path_of(decode(entry.value)) if entry.value else "")
        yield from (ObjectKey(API_EXPORT_ENDPOINT_SLICES, cluster, "", name) for cluster, name in slices)

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        key, gone = entry.key, entry.operation is Operation.DELETED
        if is_system_cluster(key.cluster):
            return
        if key.type in {API_EXPORTS, self._types}:
            if gone or key.type == API_EXPORTS or entry.operation is Operation.ADDED:
                yield Cluster(key.cluster)
        elif key.type == CLUSTER_ROLES:
            yield Role(key.cluster, key.name)
        elif key.type == CLUSTER_ROLE_BINDINGS:
            yield from self._of_binding(entry)
        elif not gone and self._narrows(key):
            yield key

    def _of_binding(self, entry: LogEntry) -> Iterator[Hashable]:
        key = entry.key
        if _POLICY in entry.value:
            # The entry does not show the previous state: a role that no consumer uses any more keeps its annotation
            # until the role or the cluster's exports change. The annotation grants nothing.
            yield Role(key.cluster, str((decode(entry.value).get("roleRef") or {}).get("name") or ""))
        if entry.operation is Operation.DELETED:
            return
        if key.name != ADMIN_BINDING or self._offers_something(key.cluster):
            yield key

    def _offers_something(self, cluster: str) -> bool:
        """Return whether a cluster has exports or types. A new workspace has none, only its administrator's binding."""
        with self._loopback.store.snapshot() as snapshot:
            return bool(snapshot.last(API_EXPORTS, cluster) or snapshot.last(self._types, cluster))

    def _narrows(self, key: ObjectKey) -> bool:
        """Return whether an export may concern a schema, a conversion, a slice or a configuration of admission."""
        if key.type == API_EXPORT_ENDPOINT_SLICES or key.type in SYSTEM_WORDS:
            return True
        with self._loopback.store.snapshot() as snapshot:
            return any(offer.level for offer in self._reach.offers(snapshot, key.cluster).values())

    def all_keys(self) -> Iterable[Hashable]:
        for type in (API_EXPORTS, self._types, CLUSTER_ROLES):
            last = ""
            for key in self._loopback.keys(Scope(type)):
                if key.cluster != last and not is_system_cluster(key.cluster):
                    yield Cluster(key.cluster)
                last = key.cluster
        for key in self._loopback.keys(Scope(CLUSTER_ROLE_BINDINGS)):
            if key.name != ADMIN_BINDING and not is_system_cluster(key.cluster):
                yield key
        for type in sorted(SYSTEM_WORDS):
            yield from (key for key in self._loopback.keys(Scope(type)) if not is_system_cluster(key.cluster))

    # --- reconcile ---

    async def reconcile(self, key: Cluster | Role | ObjectKey) -> float | None:
        match key:
            case Cluster(cluster):
                return await self._cluster(cluster)
            case Role(cluster, name):
                return await self._all(self._with_role(cluster, name))
            case _:
                return await self._all([key])

    async def _cluster(self, cluster: str) -> float | None:
        with self._loopback.store.snapshot() as snapshot:
            record = snapshot.get(ObjectKey(LOGICAL_CLUSTERS, cluster, "", wellknown.SINGLETON))
            if record is None or snapshot.gate(cluster).state is GateState.DELETING:
                return None
            words, offers = self._reach.cluster_words(snapshot, cluster), self._reach.offers(snapshot, cluster)
            if not any(offer.level for offer in offers.values()):
                # Then nothing in the cluster depends on how many there are, or on their schemas.
                offers = {}
        if self._offered.get(cluster) == (words, offers):
            return None
        obj = decode(record.value)
        wanted = replicate_annotation.with_words(obj, words)
        if wanted is not obj and not await self._write(record.key, wanted):
            return 0.0
        if (again_s := await self._all(self._in_cluster(cluster))) is None:
            self._offered.put(cluster, (words, offers))
        return again_s

    def _in_cluster(self, cluster: str) -> list[ObjectKey]:
        with self._loopback.store.snapshot() as snapshot:
            held = [type for type in _IN_CLUSTER if snapshot.last(type, cluster)]
        keys = [key for type in held for key in self._loopback.keys(Scope(type, cluster))]
        slices: set[tuple[str, str]] = set()
        with self._loopback.store.snapshot() as snapshot:
            for record in each_record(snapshot, Scope(API_EXPORTS, cluster)):
                slices.update(slices_of(snapshot, record.key, path_of(decode(record.value))))
        return [*keys, *(ObjectKey(API_EXPORT_ENDPOINT_SLICES, where, "", name) for where, name in sorted(slices))]

    def _with_role(self, cluster: str, name: str) -> list[ObjectKey]:
        quoted = f'"{name}"'.encode()
        with self._loopback.store.snapshot() as snapshot:
            bindings = each_record(snapshot, Scope(CLUSTER_ROLE_BINDINGS, cluster))
            giving = [record.key for record in bindings if quoted in record.value]
        return [ObjectKey(CLUSTER_ROLES, cluster, "", name), *giving]

    async def _all(self, keys: Iterable[ObjectKey]) -> float | None:
        """Annotate objects. Returns 0 after a conflict, else None."""
        again_s: float | None = None
        for key in keys:
            with self._loopback.store.snapshot() as snapshot:
                record = snapshot.get(key)
                obj = decode(record.value) if record is not None else None
                wanted = self._reach.noted(snapshot, key, obj) if obj is not None else None
            if wanted is not None and wanted is not obj and not await self._write(key, wanted):
                again_s = 0.0
        return again_s

    async def _write(self, key: ObjectKey, obj: Object) -> bool:
        kind = self._loopback.core.catalogs.builtin(key.type)
        try:
            await self._loopback.update(Target(kind, key.cluster, key.namespace, key.name), obj, whole=True)
        except NotFound:
            return True
        except Conflict:
            return False
        return True
