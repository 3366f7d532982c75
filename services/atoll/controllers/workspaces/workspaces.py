"""Workspaces: create a logical cluster for each, mirror its state, delete both together.

Watches: Workspaces, LogicalClusters and Shards, on this shard and others. Writes: on scheduling one batch with the
whole new cluster and the Workspace's own state, so that a reader sees either nothing or a workspace in the furthest
phase its type allows; later phase and conditions; on deletion the LogicalCluster first, the finalizer last. Workspaces
scheduled to another shard are handled by `remote_workspaces`. Invariant: a Workspace has one logical cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator

import structlog
from msgspec.structs import replace

from atoll.controllers.shard_calls import ShardCaller
from atoll.controllers.shard_predicate import ShardChangePredicate
from atoll.controllers.workspaces import workspace_deletion
from atoll.controllers.workspaces.remote_logicalclusters import (
    ClusterNotCreated,
    RemoteLogicalClusters,
    TargetShard,
    choice_of,
)
from atoll.controllers.workspaces.remote_workspaces import RemoteWorkspaces, facts_of
from atoll.controllers.workspaces.workspace_writer import WorkspaceWriter
from atoll.machinery.apiserver.call.options import DeleteOptions
from atoll.machinery.apiserver.writing.batch import LOST, Batch
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.control.manager import ReplicaController
from atoll.machinery.kcp.sharding.forgotten_stores import forgotten_stores
from atoll.machinery.kcp.sharding.ownership import ROOT_SHARD
from atoll.machinery.kcp.sharding.scheduling import NO_SHARDS, Candidate, Unschedulable
from atoll.machinery.kcp.workspaces import workspace
from atoll.machinery.kcp.workspaces.mirrored_state import mirrored_state
from atoll.machinery.kcp.workspaces.workspacetypes import TypeRefused
from atoll.machinery.meta import rawscan, times, wellknown
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode, spec_of
from atoll.machinery.meta.status import Conflict, NotFound
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.process.retry import ATTEMPTS
from atoll.machinery.storage.contract import LogEntry, Operation, RevisionUnchanged, Scope
from atoll.tenancy.cluster_builder import ClusterBuilder, path_below
from atoll.tenancy.lookups import Lookups
from atoll.tenancy.placement import ShardPlacement

log = structlog.get_logger()

#: Third part of a key: the cluster's shard published the deletion of the cluster.
GONE = "gone"
_UNSCHEDULED = rawscan.members({wellknown.PHASE: "Scheduling"})
#: Seconds until a Workspace whose type is refused is tried again: types come and go, and no key follows from them.
TYPE_RETRY_S = 10.0


class NotScheduled(Exception):
    """No shard created the cluster; retry although no Shard changes."""


class WorkspaceController(ReplicaController):
    """Key: (parent cluster, workspace name), optionally followed by GONE."""

    name = "workspace"
    workers = 16
    #: Seconds: users wait for workspaces, so the back-off stays short after any number of failures.
    max_delay_s = 10.0

    def __init__(
        self,
        loopback: Loopback,
        facts: Lookups,
        shard: workspace.Shard,
        placement: ShardPlacement,
        calls: ShardCaller | None,
    ) -> None:
        self._loopback, self._shard = loopback, shard
        self._type, self._shards = facts.identities.workspaces, facts.identities.shard_objects
        self._placement, self._building = placement, ClusterBuilder(loopback, facts)
        self._writes = WorkspaceWriter(loopback, self._type)
        self._children: RemoteWorkspaces | None = None
        if calls is not None:
            self._children = RemoteWorkspaces(self._writes, self._building, placement, RemoteLogicalClusters(calls))
        self._shard_changes = ShardChangePredicate()

    # --- keys ---

    def watches(self, type: ResourceType) -> bool:
        return type in {self._type, LOGICAL_CLUSTERS, self._shards}

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        if entry.key.type == self._type:
            yield entry.key.cluster, entry.key.name
        elif entry.key.type == LOGICAL_CLUSTERS:
            # The batch that creates a cluster writes its Workspace too; later changes are mirrored.
            if entry.operation is not Operation.ADDED:
                yield from workspaces_showing(entry)
        elif self._shard_changes.has_changed(entry):
            yield from self._unscheduled()
            yield from self._on_lost_shards(entry)

    def watches_replicas(self, type: ResourceType) -> bool:
        """Return whether replicas of a type yield keys."""
        return type in {LOGICAL_CLUSTERS, self._shards}

    def keys_of_replica(self, entry: LogEntry) -> Iterable[Hashable]:
        """Return the keys for a replicated entry: Workspaces of this shard with remote clusters."""
        if entry.key.type == self._shards:
            if self._shard_changes.has_changed(entry):
                yield from self._unscheduled()
                yield from self._on_lost_shards(entry)
            return
        owner = spec_of(decode(entry.value)).get("owner") if entry.value else None
        if owner and self._is_ours(owner["cluster"], owner["name"]):
            gone = entry.operation is Operation.DELETED
            yield (owner["cluster"], owner["name"], GONE) if gone else (owner["cluster"], owner["name"])

    def _is_ours(self, cluster: str, name: str) -> bool:
        with self._loopback.store.snapshot() as snapshot:
            return snapshot.revision_of(ObjectKey(self._type, cluster, "", name)) != 0

    def _unscheduled(self) -> Iterable[Hashable]:
        for record in self._loopback.records(Scope(self._type)):
            if _UNSCHEDULED in record.value and not spec_of(decode(record.value)).get("cluster"):
                yield record.key.cluster, record.key.name

    def _on_lost_shards(self, entry: LogEntry) -> Iterable[Hashable]:
        """Yield the Workspaces whose clusters may have been on stores that the Shard `root` records as forgotten."""
        if entry.operation is Operation.DELETED or entry.key.name != ROOT_SHARD:
            return
        names = {each.shard for each in forgotten_stores(decode(entry.value))}
        marks = [rawscan.members({wellknown.SHARD: name}) for name in names]
        for record in self._loopback.records(Scope(self._type)) if marks else ():
            if any(mark in record.value for mark in marks):
                yield record.key.cluster, record.key.name

    def all_keys(self) -> Iterable[Hashable]:
        for key in self._loopback.keys(Scope(self._type)):
            yield key.cluster, key.name

    # --- reconcile ---

    async def reconcile(self, key: tuple[str, ...]) -> float | None:
        parent, name, *said = key
        obj = self._loopback.get(self._type, parent, "", name)
        if obj is None or spec_of(obj).get("mount"):
            return None
        cluster = spec_of(obj).get("cluster") or ""
        choice = choice_of(obj, self._shard.name)
        if choice is not None and not self._is_here(choice.cluster):
            if self._children is None:
                # Scheduled while this shard had peers; without them, the remote cluster is left as it is.
                return None
            if cluster or obj["metadata"].get("deletionTimestamp"):
                return await self._children.reconcile(parent, obj, choice, gone=GONE in said)
            return await self._try_scheduling(parent, obj, choice)
        if obj["metadata"].get("deletionTimestamp"):
            await self._delete(parent, obj, cluster)
        elif not cluster:
            return await self._try_scheduling(parent, obj, None)
        else:
            await self._mirror(parent, obj, cluster)
        return None

    def _is_here(self, cluster: str) -> bool:
        with self._loopback.store.snapshot() as snapshot:
            return snapshot.gate(cluster).generation != 0

    # --- scheduling ---

    async def _try_scheduling(self, parent: str, obj: Object, choice: TargetShard | None) -> float | None:
        """Schedule a Workspace, first on the shard already chosen. Return seconds until the next attempt."""
        failed: dict[str, ClusterNotCreated] = {}
        try:
            if choice is not None and self._children is not None:
                try:
                    await self._children.complete(parent, obj, choice)
                except ClusterNotCreated as error:
                    failed[choice.shard] = error
                else:
                    return None
            await self._schedule(parent, obj, failed)
        except TypeRefused as error:
            await self._writes.refuse(parent, obj, "Unknown", str(error))
            return TYPE_RETRY_S
        return None

    async def _schedule(self, parent: str, obj: Object, failed: dict[str, ClusterNotCreated]) -> None:
        """Try shards one after the other, without those that failed. Raises TypeRefused, NotScheduled."""
        for _ in range(ATTEMPTS):
            batch = self._loopback.batch()
            try:
                plan, host = self._planned(batch, parent, obj, failed)
            except Unschedulable as error:
                await self._refuse(parent, obj, str(error), failed)
                return
            if not host.is_own:
                assert self._children is not None
                try:
                    await self._children.begin(parent, obj, plan)
                except ClusterNotCreated as error:
                    obj, failed[host.name] = error.workspace, error
                    continue
                return
            self._fill(batch, parent, obj, plan)
            # If the Workspace is unchanged, an export or bound CRD of its bindings was written concurrently.
            if await batch.try_submit() or self._is_stale(parent, obj):
                return
        if failed:
            await self._refuse(parent, obj, NO_SHARDS, failed)
        raise RuntimeError("others kept coming first")

    def _planned(
        self, batch: Batch, parent: str, obj: Object, failed: Collection[str]
    ) -> tuple[workspace.WorkspacePlan, Candidate]:
        above = self._building.parent(batch, parent)
        host = self._placement.choose(batch, obj, path_below(above, obj["metadata"]["name"]), failed)
        shard = replace(self._shard, labels=host.labels) if host.is_own else facts_of(host)
        return self._building.plan(batch, above, obj, shard), host

    async def _refuse(self, parent: str, obj: Object, message: str, failed: dict[str, ClusterNotCreated]) -> None:
        """Write why the Workspace is not scheduled. Raises NotScheduled where shards failed, so that it is retried.

        A choice that may have created a cluster stays, so that the retry finds it.
        """
        if not failed:
            await self._writes.refuse(parent, obj, "Unschedulable", message)
            return
        assert self._children is not None
        text = "; ".join(str(failed[name]) for name in sorted(failed))
        choice = choice_of(obj, self._shard.name)
        last = failed.get(choice.shard) if choice is not None else None
        if last is not None and last.may_exist:
            await self._children.keep(parent, obj, f"{message}: {text}")
        else:
            await self._children.give_up(parent, obj, "Unschedulable", f"{message}: {text}")
        raise NotScheduled(text)

    def _is_stale(self, parent: str, obj: Object) -> bool:
        """Return whether a Workspace changed since it was read."""
        with self._loopback.store.snapshot() as snapshot:
            revision = snapshot.revision_of(ObjectKey(self._type, parent, "", obj["metadata"]["name"]))
        return revision != int(obj["metadata"]["resourceVersion"])

    def _fill(self, batch: Batch, parent: str, obj: Object, plan: workspace.WorkspacePlan) -> None:
        """Add the new cluster's objects, then the scheduled Workspace."""
        cluster = self._building.create(batch, plan)
        desired = workspace.desired_workspace(obj, cluster, plan.shard, plan.now)
        batch.update(self._writes.target(batch, parent, obj), desired, whole=True)
        revision = int(obj["metadata"]["resourceVersion"])
        # Fails if the Workspace was scheduled or changed since it was read.
        batch.guard(RevisionUnchanged(ObjectKey(self._type, parent, "", obj["metadata"]["name"]), revision))

    # --- mirrored state ---

    async def _mirror(self, parent: str, obj: Object, cluster: str) -> None:
        found = self._loopback.get(LOGICAL_CLUSTERS, cluster, "", wellknown.SINGLETON)
        if found is None:
            # The LogicalCluster was deleted directly: delete its owner too.
            await self._loopback.delete(self._writes.target_now(parent, obj), DeleteOptions())
            return
        await self._writes.update(parent, obj, workspace.desired_workspace(obj, found, self._shard, times.now()))

    async def _delete(self, parent: str, obj: Object, cluster: str) -> None:
        found = self._loopback.get(LOGICAL_CLUSTERS, cluster, "", wellknown.SINGLETON) if cluster else None
        owner = spec_of(found).get("owner") or {} if found is not None else {}
        if found is None or owner.get("uid") != obj["metadata"]["uid"]:
            await self._writes.release(parent, obj)
            return
        if not found["metadata"].get("deletionTimestamp"):
            await self._begin_deletion(parent, obj)
            return
        await self._writes.update(parent, obj, workspace_deletion.mirrored(obj, found))

    async def _begin_deletion(self, parent: str, obj: Object) -> None:
        """Delete the LogicalCluster, and update the Workspace's status in the same transaction."""
        batch = self._loopback.batch()
        kind = self._loopback.core.catalogs.builtin(LOGICAL_CLUSTERS)
        try:
            workspace_deletion.begin(batch, self._writes.target(batch, parent, obj), obj, kind)
            await batch.submit()
        except (Conflict, NotFound, *LOST):
            # A concurrent write to one of them, whose log entry enqueues this key again.
            return


def workspaces_showing(entry: LogEntry) -> Iterator[tuple[str, str]]:
    """Yield the Workspace of a LogicalCluster that changed in what a Workspace shows, or was deleted."""
    state = mirrored_state(entry.value)
    owner = state.spec.owner
    if owner is None:
        return
    if entry.operation is not Operation.MODIFIED or not entry.before or mirrored_state(entry.before) != state:
        yield owner.cluster, owner.name
