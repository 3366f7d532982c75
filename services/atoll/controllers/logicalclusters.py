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
from atoll.machinery.storage.contract import DeletePrefix, GateState, LogEntry, Operation, Scope

AGAIN_S = 5.0
BATCH = 500
CONTENT_DELETED = "WorkspaceContentDeleted"
#: Gone only after all other content, in this order: definitions, bindings, access.
_LAST = (
    (shapes.CRDS,),
    (shapes.API_BINDINGS,),
    (shapes.CLUSTER_ROLE_BINDINGS, shapes.CLUSTER_ROLES),
)


class LogicalClusterDeletion:
    """Key: cluster."""

    name = "logicalclusterdeletion"
    workers = 16

    def __init__(self, loopback: Loopback, kind: Kind) -> None:
        self._loopback, self._kind = loopback, kind

    def watches(self, type: ResourceType) -> bool:
        return True

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        if entry.key.type == shapes.LOGICAL_CLUSTERS:
            if b'"deletionTimestamp"' in entry.value and entry.operation is not Operation.DELETED:
                yield entry.key.cluster
        elif entry.operation is Operation.DELETED:
            with self._loopback.store.snapshot() as snapshot:
                if snapshot.gate(entry.key.cluster).state is GateState.DELETING:
                    yield entry.key.cluster

    def all_keys(self) -> Iterable[Hashable]:
        for obj in self._loopback.each(Scope(shapes.LOGICAL_CLUSTERS)):
            if obj["metadata"].get("deletionTimestamp"):
                yield obj["metadata"]["annotations"][shapes.CLUSTER]

    async def reconcile(self, cluster: str) -> float | None:
        obj = self._loopback.get(shapes.LOGICAL_CLUSTERS, cluster, "", shapes.SINGLETON)
        if obj is None or not obj["metadata"].get("deletionTimestamp"):
            return None
        status = obj.get("status") or {}
        wanted = "Terminating" if status.get("terminators") else "Deleting"
        if status.get("phase") != wanted:
            await self._write(cluster, _in_phase(obj, wanted))
            # The write's own entry brings the cluster back, in its new phase.
            return None
        if wanted == "Terminating" or shapes.DELETION_FINALIZER not in (obj["metadata"].get("finalizers") or []):
            return None
        return await self._empty(cluster, obj)

    async def _empty(self, cluster: str, obj: Object) -> float | None:
        for types in self._stages(cluster):
            remaining = await self._clear(cluster, types)
            if not remaining.is_empty:
                await self._tell(cluster, obj, remaining)
                return AGAIN_S
        metadata = {**obj["metadata"]}
        metadata["finalizers"] = [each for each in metadata["finalizers"] if each != shapes.DELETION_FINALIZER]
        await self._write(cluster, {**obj, "metadata": metadata})
        return None

    def _stages(self, cluster: str) -> Iterable[list[ResourceType]]:
        """Types that the cluster holds, in the order in which they go."""
        late = {type for stage in _LAST for type in stage} | {shapes.LOGICAL_CLUSTERS}
        with self._loopback.store.snapshot() as snapshot:
            held = [usage.type for usage in snapshot.usage(cluster)]
        yield [type for type in held if type not in late]
        for stage in _LAST:
            yield [type for type in stage if type in held]

    async def _clear(self, cluster: str, types: list[ResourceType]) -> Remaining:
        """Delete what types hold in a cluster, as far as finalizers let it."""
        scopes = [Scope(type, cluster) for type in types]
        while scopes:
            counts = await self._loopback.store.submit([DeletePrefix(scope, BATCH) for scope in scopes])
            scopes = [scope for scope, count in zip(scopes, counts, strict=True) if count >= BATCH]
        if shapes.API_BINDINGS in types:
            await self._unbind(cluster)
        remaining = Remaining()
        with self._loopback.store.snapshot() as snapshot:
            left = [usage.type for usage in snapshot.usage(cluster) if usage.type in types]
        for type in left:
            await ask_held(self._loopback, Scope(type, cluster), remaining)
        return remaining

    async def _unbind(self, cluster: str) -> None:
        """Bindings go once nothing of what they bound is left, which the earlier stage saw to."""
        kind = self._loopback.core.catalogs.base.of_type(shapes.API_BINDINGS)
        assert kind is not None
        options = DeleteOptions(served_finalizers=frozenset({shapes.BINDING_FINALIZER}))
        with self._loopback.store.snapshot() as snapshot:
            records = snapshot.scan(Scope(shapes.API_BINDINGS, cluster))
        for record in records:
            name = decode(record.value)["metadata"]["name"]
            await self._loopback.delete(Target(kind, cluster, "", name), options)

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


def _in_phase(obj: Object, phase: str) -> Object:
    labels = {**(obj["metadata"].get("labels") or {}), shapes.PHASE: phase}
    return {
        **obj,
        "metadata": {**obj["metadata"], "labels": labels},
        "status": {**(obj.get("status") or {}), "phase": phase},
    }
