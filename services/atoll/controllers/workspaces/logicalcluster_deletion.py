"""LogicalCluster deletion: content, then APIs, then RBAC, then the LogicalCluster.

Watches: LogicalClusters, and deletions in terminating clusters. Writes: phase and the condition
WorkspaceContentDeleted, deletions, the deletion finalizer. Invariant: RBAC is deleted last and APIs after their
objects, so that users can still remove the finalizers of remaining objects.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable

from atoll.controllers.content_deleter import (
    CONFLICT,
    HELD,
    RemainingContent,
    delete,
    delete_held,
    delete_reviewed,
    reviewed_kinds,
    stored_finalizers,
)
from atoll.controllers.shard_calls import ShardUnavailable
from atoll.controllers.workspaces import workspace_deletion
from atoll.controllers.workspaces.owner_notifications import OwnerShards, OwnerUnknown, remote_owner
from atoll.machinery.apiserver.call.options import DeleteOptions
from atoll.machinery.apiserver.writing.batch import LOST, Batch
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.control.manager import EXISTING, Controller
from atoll.machinery.control.queue import Requeue
from atoll.machinery.kcp.workspaces.deletion_phase import deletion_phase, with_phase
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import rawscan, times, wellknown
from atoll.machinery.meta.conditions import Condition, with_conditions
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.meta.objects import Object, finalizers_of, status_of
from atoll.machinery.meta.status import Conflict, NotFound
from atoll.machinery.meta.types import (
    API_BINDINGS,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CRDS,
    LOGICAL_CLUSTERS,
    NAMESPACES,
)
from atoll.machinery.storage.contract import (
    ClusterEmpty,
    DeletePrefix,
    Flag,
    GateState,
    LogEntry,
    Operation,
    Record,
    Scope,
)

BATCH = 500
#: Maximal number of objects deleted in one transaction with their LogicalCluster.
MAX_AT_ONCE = 200
#: The same for a child cluster that shares its transaction with siblings.
MAX_IN_PASSING = 30
#: Types deleted after all other content, in this order: namespaces, CRDs, APIBindings, RBAC.
_LAST = ((NAMESPACES,), (CRDS,), (API_BINDINGS,), (CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES))
_LATE = frozenset({type for stage in _LAST for type in stage} | {LOGICAL_CLUSTERS})
_HELD_MESSAGE = "The content is deleted; the logical cluster has finalizers remaining: "
_FINALIZERS = Flag.FINALIZERS.value
_UNBOUND = DeleteOptions(served_finalizers=frozenset({wellknown.BINDING_FINALIZER}))
_EMPTIED = DeleteOptions(served_finalizers=frozenset({wellknown.DELETION_FINALIZER}))


class LogicalClusterDeletion(Controller):
    """Key: cluster."""

    name = "logicalclusterdeletion"
    workers = 16
    #: Seconds: users wait for workspaces, so the back-off stays short after any number of failures.
    max_delay_s = 10.0

    def __init__(
        self, loopback: Loopback, kind: Kind, workspaces: ResourceType, owners: OwnerShards | None = None
    ) -> None:
        self._loopback, self._kind, self._workspaces, self._owners = loopback, kind, workspaces, owners

    def watches(self, type: ResourceType) -> bool:
        return True

    def operations(self, type: ResourceType) -> Collection[Operation]:
        return EXISTING if type == LOGICAL_CLUSTERS else {Operation.DELETED}

    def ends_with_cluster(self, type: ResourceType) -> bool:
        return True

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        if entry.key.type == LOGICAL_CLUSTERS:
            if rawscan.DELETION in entry.value:
                yield entry.key.cluster
        elif self._was_last(entry):
            yield entry.key.cluster

    def _was_last(self, entry: LogEntry) -> bool:
        """Return whether a terminating cluster holds no more objects of the deleted object's type."""
        key = entry.key
        with self._loopback.store.snapshot() as snapshot:
            going = snapshot.gate(key.cluster).state is GateState.DELETING
            return going and not snapshot.scan(Scope(key.type, key.cluster), limit=1)

    def all_keys(self) -> Iterable[Hashable]:
        for key in self._loopback.deleting(Scope(LOGICAL_CLUSTERS)):
            yield key.cluster

    async def reconcile(self, cluster: str) -> Requeue:
        obj = self._loopback.get(LOGICAL_CLUSTERS, cluster, "", wellknown.SINGLETON)
        if obj is None or not obj["metadata"].get("deletionTimestamp"):
            return None
        status = status_of(obj)
        wanted = deletion_phase(obj)
        if status.get("phase") != wanted:
            await self._write(cluster, with_phase(obj, wanted))
            # The log entry of this write enqueues the cluster again, in its new phase.
            return None
        if wanted == "Terminating" or wellknown.DELETION_FINALIZER not in finalizers_of(obj):
            return None
        return await self._empty(cluster, obj)

    async def _empty(self, cluster: str, obj: Object) -> Requeue:
        """Delete content stage by stage; the rest, if it is small and not held, with the LogicalCluster at once."""
        for types in self._stages(cluster):
            free = self._removable(cluster, MAX_AT_ONCE)
            if free is not None:
                held_by = [each for each in finalizers_of(obj) if each != wellknown.DELETION_FINALIZER]
                if held_by:
                    return await self._leave(cluster, obj, free, held_by)
                return await self._finish(cluster, obj, free)
            remaining = await self._clear(cluster, types)
            if not remaining.is_empty:
                pending = Condition(
                    wellknown.CONTENT_DELETED, "False", "SomeResourcesRemain", remaining.message(), "Info"
                )
                await self._write_condition(cluster, obj, pending)
                return HELD
        # New objects were written during the deletion.
        return HELD

    def _stages(self, cluster: str) -> Iterable[list[ResourceType]]:
        """Yield the types of the cluster's objects in the order of their deletion."""
        with self._loopback.store.snapshot() as snapshot:
            held = [usage.type for usage in snapshot.usage(cluster)]
        yield [type for type in held if type not in _LATE]
        for stage in _LAST:
            yield [type for type in stage if type in held]
        yield []

    def _removable(self, cluster: str, limit: int) -> list[Record] | None:
        """Return the remaining objects without the LogicalCluster; None if more than `limit`, held by others, or
        reviewed."""
        found: list[Record] = []
        with self._loopback.store.snapshot() as snapshot:
            held = snapshot.usage(cluster)
            types = [usage.type for usage in held]
            if sum(usage.count for usage in held if usage.type != LOGICAL_CLUSTERS) > limit or reviewed_kinds(
                self._loopback.core, snapshot, cluster, types
            ):
                return None
            for type in types:
                if type != LOGICAL_CLUSTERS:
                    found.extend(snapshot.scan(Scope(type, cluster)))
        return found if all(map(_is_free, found)) else None

    async def _leave(self, cluster: str, obj: Object, free: list[Record], held_by: list[str]) -> Requeue:
        """Delete the remaining objects and remove our finalizer from a LogicalCluster that others hold.

        Its Workspace stays, and goes by the log entry or the replica that reports the deletion of the LogicalCluster.
        """
        emptied = Condition(wellknown.CONTENT_DELETED, "True", "", _HELD_MESSAGE + ", ".join(held_by))
        status = with_conditions(status_of(obj), times.now(), emptied)
        changed = {**obj, "metadata": {**obj["metadata"], "finalizers": held_by}, "status": status}
        batch = self._loopback.batch()
        try:
            for record in free:
                batch.remove(record)
            batch.update(Target(self._kind, cluster, "", wellknown.SINGLETON), changed, whole=True)
            batch.guard(ClusterEmpty(cluster, but=1))
            await batch.submit()
        except (Conflict, NotFound, *LOST):
            return CONFLICT
        return None

    async def _finish(self, cluster: str, obj: Object, free: list[Record]) -> Requeue:
        """Delete the remaining objects and the LogicalCluster and release its Workspace, in one transaction."""
        if self._owners is not None:
            await self._release_remote_workspace(cluster, obj, self._owners)
        batch = self._loopback.batch()
        try:
            self._remove(batch, cluster, free)
            workspace_deletion.release_owner(batch, obj, self._workspaces)
            await batch.submit()
        except (NotFound, *LOST):
            # A concurrent write, whose log entry may not enqueue this cluster.
            return CONFLICT
        return None

    async def _release_remote_workspace(self, cluster: str, obj: Object, owners: OwnerShards) -> None:
        """Release the Workspace on its own shard first: without the LogicalCluster, no controller would retry.

        Raises ShardUnavailable and OwnerUnknown, so that it is retried, and reports them in a condition.
        """
        try:
            await self._release_workspace(cluster, obj, owners)
        except (ShardUnavailable, OwnerUnknown) as error:
            await self._write_condition(
                cluster, obj, Condition(wellknown.CONTENT_DELETED, "False", "OwnerUnavailable", str(error), "Info")
            )
            raise

    async def _release_workspace(self, cluster: str, obj: Object, owners: OwnerShards) -> None:
        try:
            with self._loopback.store.snapshot() as snapshot:
                owner = remote_owner(snapshot, obj)
        except OwnerUnknown:
            if await owners.exists_on_any_shard(obj["spec"]["owner"]["cluster"]):
                raise
            # The Workspace was deleted with its cluster.
            return
        if owner is None:
            return
        try:
            await owners.release(owner, cluster)
        except ShardUnavailable:
            # The Workspace was lost with its shard.
            if not owners.is_lost(owner) or await owners.exists_on_any_shard(owner.cluster):
                raise

    async def _clear(self, cluster: str, types: list[ResourceType]) -> RemainingContent:
        """Delete the objects of some types in a cluster. Returns the objects that finalizers hold."""
        remaining, judged = RemainingContent(), self._reviewed(cluster)
        for scope, kind in judged.items():
            if scope.type in types:
                await delete_reviewed(self._loopback, kind, scope, remaining)
        types = [type for type in types if Scope(type, cluster) not in judged]
        scopes = [Scope(type, cluster) for type in types]
        while scopes:
            # A transaction removes at most BATCH objects of all types together, as it delays other writers.
            share = max(BATCH // len(scopes), 1)
            counts = await self._loopback.store.submit([DeletePrefix(scope, share) for scope in scopes[:BATCH]])
            done = {scope for scope, count in zip(scopes[:BATCH], counts, strict=True) if count < share}
            scopes = [scope for scope in scopes if scope not in done]
        if API_BINDINGS in types:
            await self._unbind(cluster)
        with self._loopback.store.snapshot() as snapshot:
            left = [usage.type for usage in snapshot.usage(cluster) if usage.type in types]
        for type in left:
            begin = self._begin if type == self._workspaces else delete
            await delete_held(self._loopback, Scope(type, cluster), remaining, begin)
        return remaining

    def _reviewed(self, cluster: str) -> dict[Scope, Kind]:
        """Return the types whose deletion webhooks or policies of an export's workspace may act on."""
        with self._loopback.store.snapshot() as snapshot:
            types = [usage.type for usage in snapshot.usage(cluster)]
            return reviewed_kinds(self._loopback.core, snapshot, cluster, types)

    def _begin(self, batch: Batch, target: Target, obj: Object) -> None:
        """Start the deletion of a Workspace; delete a small one without foreign finalizers at once."""
        leaf = workspace_deletion.unheld(batch, obj)
        free = self._removable(leaf, MAX_IN_PASSING) if leaf else None
        if free is None:
            workspace_deletion.begin(batch, target, obj, self._kind)
            return
        self._remove(batch, leaf, free)
        workspace_deletion.release(batch, target)

    def _remove(self, batch: Batch, cluster: str, free: list[Record]) -> None:
        """Add the removal of a cluster and its objects to a batch. The batch fails if any changed or was added."""
        for record in free:
            batch.remove(record)
        batch.delete(Target(self._kind, cluster, "", wellknown.SINGLETON), _EMPTIED)
        batch.guard(ClusterEmpty(cluster))

    async def _unbind(self, cluster: str) -> None:
        """Delete the APIBindings of a cluster; an earlier stage has deleted the objects of their resources."""
        kind = self._loopback.core.catalogs.builtin(API_BINDINGS)
        with self._loopback.store.snapshot() as snapshot:
            records = snapshot.scan(Scope(API_BINDINGS, cluster))
        for record in records:
            await self._loopback.delete(Target(kind, cluster, "", record.key.name), _UNBOUND)

    async def _write_condition(self, cluster: str, obj: Object, condition: Condition) -> None:
        status = with_conditions(status_of(obj), times.now(), condition)
        if status != status_of(obj):
            await self._write(cluster, {**obj, "status": status})

    async def _write(self, cluster: str, changed: Object) -> None:
        await self._loopback.try_update(Target(self._kind, cluster, "", wellknown.SINGLETON), changed, whole=True)


def _is_free(record: Record) -> bool:
    """Return whether an object has no finalizers but ours."""
    if not record.flags & _FINALIZERS:
        return True
    return record.key.type == API_BINDINGS and _UNBOUND.served_finalizers.issuperset(stored_finalizers(record))
