"""LogicalCluster deletion: content, then APIs, then RBAC, then the LogicalCluster.

Watches: LogicalClusters, and deletions in clusters that are going. Writes: phase and the condition
WorkspaceContentDeleted, deletions, the deletion finalizer. Access stays until the end, so an owner can still
release what finalizers hold; APIs stay until their objects are gone, so that it can be released at all.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from atoll.controllers.content import Remaining, ask_held
from atoll.machinery.apiserver.loopback import Loopback, Target
from atoll.machinery.apiserver.options import DeleteOptions
from atoll.machinery.kcp import shapes
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import times
from atoll.machinery.meta.conditions import Condition, set_condition
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.status import Conflict, NotFound
from atoll.machinery.meta.types import (
    API_BINDINGS,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CRDS,
    LOGICAL_CLUSTERS,
    NAMESPACES,
)
from atoll.machinery.storage import contract
from atoll.machinery.storage.contract import DeletePrefix, Flag, GateState, LogEntry, Operation, Scope

AGAIN_S = 5.0
BATCH = 500
CONTENT_DELETED = "WorkspaceContentDeleted"
#: Gone only after all other content, in this order: namespaces, definitions, bindings, access.
_LAST = (
    (NAMESPACES,),
    (CRDS,),
    (API_BINDINGS,),
    (CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES),
)
_LATE = frozenset({type for stage in _LAST for type in stage} | {LOGICAL_CLUSTERS})
_UNBOUND = DeleteOptions(served_finalizers=frozenset({shapes.BINDING_FINALIZER}))


class LogicalClusterDeletion:
    """Key: cluster."""

    name = "logicalclusterdeletion"
    workers = 16
    #: People wait for workspaces: what failed is tried again within seconds, however often it failed.
    max_delay_s = 10.0

    def __init__(self, loopback: Loopback, kind: Kind) -> None:
        self._loopback, self._kind = loopback, kind

    def watches(self, type: ResourceType) -> bool:
        return True

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        if entry.key.type == LOGICAL_CLUSTERS:
            if b'"deletionTimestamp"' in entry.value and entry.operation is not Operation.DELETED:
                yield entry.key.cluster
        elif entry.operation is Operation.DELETED:
            with self._loopback.store.snapshot() as snapshot:
                if snapshot.gate(entry.key.cluster).state is GateState.DELETING:
                    yield entry.key.cluster

    def all_keys(self) -> Iterable[Hashable]:
        for obj in self._loopback.each(Scope(LOGICAL_CLUSTERS)):
            if obj["metadata"].get("deletionTimestamp"):
                yield obj["metadata"]["annotations"][shapes.CLUSTER]

    async def reconcile(self, cluster: str) -> float | None:
        obj = self._loopback.get(LOGICAL_CLUSTERS, cluster, "", shapes.SINGLETON)
        if obj is None or not obj["metadata"].get("deletionTimestamp"):
            return None
        status = obj.get("status") or {}
        wanted = going_phase(obj)
        if status.get("phase") != wanted:
            await self._write(cluster, in_phase(obj, wanted))
            # The write's own entry brings the cluster back, in its new phase.
            return None
        if wanted == "Terminating" or shapes.DELETION_FINALIZER not in (obj["metadata"].get("finalizers") or []):
            return None
        return await self._empty(cluster, obj)

    async def _empty(self, cluster: str, obj: Object) -> float | None:
        """Content stage by stage; the last stages and the LogicalCluster in one submit where nothing holds them."""
        for types in self._stages(cluster):
            remaining = await self._clear(cluster, types)
            if not remaining.is_empty:
                await self._tell(cluster, obj, remaining)
                return AGAIN_S
            if self._rest_is_free(cluster):
                break
        await self._finish(cluster, obj)
        return None

    def _stages(self, cluster: str) -> Iterable[list[ResourceType]]:
        """Types that the cluster holds, in the order in which they go."""
        with self._loopback.store.snapshot() as snapshot:
            held = [usage.type for usage in snapshot.usage(cluster)]
        yield [type for type in held if type not in _LATE]
        for stage in _LAST:
            yield [type for type in stage if type in held]

    def _rest_is_free(self, cluster: str) -> bool:
        """Whether only definitions, bindings and access are left, few, and held by nobody but us."""
        with self._loopback.store.snapshot() as snapshot:
            held = [usage for usage in snapshot.usage(cluster) if usage.type != LOGICAL_CLUSTERS]
            if any(usage.type not in _LATE or usage.count > BATCH for usage in held):
                return False
            return not any(
                record.flags & Flag.FINALIZERS and type != API_BINDINGS
                for type in _LATE
                for record in snapshot.scan(Scope(type, cluster))
                if type != LOGICAL_CLUSTERS
            )

    async def _finish(self, cluster: str, obj: Object) -> None:
        """Everything that is left, and the LogicalCluster, at once."""
        batch = self._loopback.batch()
        bindings = self._loopback.core.catalogs.base.of_type(API_BINDINGS)
        assert bindings is not None
        for record in batch.scan(Scope(API_BINDINGS, cluster)):
            name = decode(record.value)["metadata"]["name"]
            batch.delete(Target(bindings, cluster, "", name), _UNBOUND)
        for type in (NAMESPACES, CRDS, CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES):
            batch.delete_prefix(Scope(type, cluster))
        metadata = {**obj["metadata"]}
        metadata["finalizers"] = [each for each in metadata["finalizers"] if each != shapes.DELETION_FINALIZER]
        target = Target(self._kind, cluster, "", shapes.SINGLETON)
        try:
            batch.update(target, {**obj, "metadata": metadata}, whole=True)
            await batch.submit()
        except (Conflict, NotFound, contract.Conflict, contract.Missing):
            # Something of it changed meanwhile, and its entry brings the cluster back.
            return

    async def _clear(self, cluster: str, types: list[ResourceType]) -> Remaining:
        """Delete what types hold in a cluster, as far as finalizers let it."""
        scopes = [Scope(type, cluster) for type in types]
        while scopes:
            counts = await self._loopback.store.submit([DeletePrefix(scope, BATCH) for scope in scopes])
            scopes = [scope for scope, count in zip(scopes, counts, strict=True) if count >= BATCH]
        if API_BINDINGS in types:
            await self._unbind(cluster)
        remaining = Remaining()
        with self._loopback.store.snapshot() as snapshot:
            left = [usage.type for usage in snapshot.usage(cluster) if usage.type in types]
        for type in left:
            await ask_held(self._loopback, Scope(type, cluster), remaining)
        return remaining

    async def _unbind(self, cluster: str) -> None:
        """Bindings go once nothing of what they bound is left, which the earlier stage saw to."""
        kind = self._loopback.core.catalogs.base.of_type(API_BINDINGS)
        assert kind is not None
        with self._loopback.store.snapshot() as snapshot:
            records = snapshot.scan(Scope(API_BINDINGS, cluster))
        for record in records:
            name = decode(record.value)["metadata"]["name"]
            await self._loopback.delete(Target(kind, cluster, "", name), _UNBOUND)

    async def _tell(self, cluster: str, obj: Object, remaining: Remaining) -> None:
        condition = Condition(CONTENT_DELETED, "False", "SomeResourcesRemain", remaining.told(), "Info")
        status = obj.get("status") or {}
        conditions = set_condition(status.get("conditions") or [], condition, times.now())
        if conditions != status.get("conditions"):
            await self._write(cluster, {**obj, "status": {**status, "conditions": conditions}})

    async def _write(self, cluster: str, changed: Object) -> None:
        target = Target(self._kind, cluster, "", shapes.SINGLETON)
        try:
            await self._loopback.update(target, changed, whole=True)
        except (Conflict, NotFound):
            return


def going_phase(obj: Object) -> str:
    """The phase of a LogicalCluster whose deletion began: terminators first."""
    return "Terminating" if (obj.get("status") or {}).get("terminators") else "Deleting"


def begin_deletion(obj: Object) -> None:
    """What the first DELETE of a LogicalCluster changes beside its deletionTimestamp."""
    obj.update(in_phase(obj, going_phase(obj)))


def in_phase(obj: Object, phase: str) -> Object:
    """The LogicalCluster in a phase, its label with it."""
    labels = {**(obj["metadata"].get("labels") or {}), shapes.PHASE: phase}
    return {
        **obj,
        "metadata": {**obj["metadata"], "labels": labels},
        "status": {**(obj.get("status") or {}), "phase": phase},
    }
