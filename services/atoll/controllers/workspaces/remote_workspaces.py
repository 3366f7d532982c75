"""Workspaces whose logical cluster is on another shard: creation, mirrored state, deletion.

The workspace controller delegates every Workspace scheduled to another shard. Phase one writes the choice of shard and
cluster before any call, so that a retry requests the same cluster; phase two writes the Workspace by the target's
response, with the route to the cluster. Later states arrive by the state stream; where the stream lags behind the
revision that the target announced (`wellknown.CLUSTER_REVISION`), the LogicalCluster is read from the target.
Invariants: a missing response or a missing replica never counts as a deletion; a cluster counts only while the
Workspace names it: one made for a choice that was given up is removed by its own shard (`owner_notifications`).
"""

from __future__ import annotations

import time

from msgspec.structs import replace

from atoll.controllers.shard_calls import ShardUnavailable
from atoll.controllers.workspaces import workspace_deletion
from atoll.controllers.workspaces.remote_logicalclusters import ClusterNotCreated, RemoteLogicalClusters, TargetShard
from atoll.controllers.workspaces.workspace_writer import WorkspaceWriter, waiting
from atoll.machinery.kcp.sharding.scheduling import Candidate
from atoll.machinery.kcp.workspaces import remote_logicalcluster, remote_workspace_status, workspace
from atoll.machinery.meta import times, wellknown
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.storage.contract import RevisionUnchanged
from atoll.tenancy.cluster_builder import ClusterBuilder
from atoll.tenancy.placement import ShardPlacement

#: Seconds that a logical cluster may be missing on its shard before the Workspace reports it, as in kcp.
DISAPPEARED_S = 60.0
MAX_MISSED = 1024
UNAVAILABLE = "ShardUnavailable"


def facts_of(shard: Candidate) -> workspace.Shard:
    """Return the shard of a remote cluster, as the Workspace refers to it; without a CA."""
    return workspace.Shard(shard.name, shard.external_url, "", shard.labels)


class RemoteWorkspaces:
    """Reconciles Workspaces with remote clusters."""

    def __init__(
        self,
        writes: WorkspaceWriter,
        building: ClusterBuilder,
        placement: ShardPlacement,
        remote: RemoteLogicalClusters,
    ) -> None:
        self._writes, self._building, self._placement, self._remote = writes, building, placement, remote
        self._missed = LruCache[str, float](MAX_MISSED)

    async def reconcile(self, parent: str, obj: Object, choice: TargetShard, *, gone: bool) -> float | None:
        """Reconcile a scheduled or deleted Workspace. `gone`: that shard published the deletion of the cluster."""
        with self._writes.loopback.store.snapshot() as snapshot:
            is_lost = self._placement.is_lost(snapshot, obj, choice.shard)
        if obj["metadata"].get("deletionTimestamp"):
            if is_lost:
                await self._writes.release(parent, obj, choice.cluster)
            else:
                await self._delete(parent, obj, choice)
            return None
        if is_lost:
            await self._writes.update(parent, obj, remote_workspace_status.lost(obj, choice.shard, times.now()))
            return None
        return await self._mirror(parent, obj, choice, gone=gone)

    # --- scheduling ---

    async def begin(self, parent: str, obj: Object, plan: workspace.WorkspacePlan) -> None:
        """Write the choice of the plan's shard and create the cluster there.

        Raises ClusterNotCreated with the current Workspace; another shard may be chosen.
        """
        self._remote.check(plan)
        choice = TargetShard(plan.cluster, plan.shard.name)
        chosen = await self._writes.update(
            parent, obj, remote_workspace_status.with_shard_choice(obj, *choice, times.now())
        )
        if chosen is None:
            return
        made = await self._remote.make(replace(plan, workspace=chosen), first=True)
        await self._finish_scheduling(parent, chosen, made, plan.shard, choice)

    async def give_up(self, parent: str, obj: Object, reason: str, message: str) -> None:
        """Remove a choice that created no cluster, and write why."""
        await self._writes.update(
            parent, obj, waiting(remote_workspace_status.without_shard_choice(obj), reason, message)
        )

    async def keep(self, parent: str, obj: Object, message: str) -> None:
        """Write why a choice that may have created a cluster is not completed; the choice stays."""
        await self._writes.refuse(parent, obj, UNAVAILABLE, message)

    async def complete(self, parent: str, obj: Object, choice: TargetShard) -> None:
        """Continue after phase one; the cluster may exist. Raises TypeRefused, ClusterNotCreated."""
        batch = self._writes.loopback.batch()
        shard = self._placement.shard(batch, choice.shard)
        if shard is None:
            raise ClusterNotCreated(f'shard "{choice.shard}" is not known', obj, may_exist=True)
        plan = self._building.plan(batch, self._building.parent(batch, parent), obj, facts_of(shard))
        made = await self._remote.make(replace(plan, cluster=choice.cluster), first=False)
        await self._finish_scheduling(parent, obj, made, plan.shard, choice)

    async def _finish_scheduling(
        self, parent: str, obj: Object, made: Object, shard: workspace.Shard, choice: TargetShard
    ) -> None:
        """Phase two: write the Workspace by the response of the cluster's shard, and the route to the cluster."""
        batch = self._writes.loopback.batch()
        desired = workspace.desired_workspace(obj, made, shard, times.now())
        batch.update(self._writes.target(batch, parent, obj), desired, whole=True)
        batch.guard(RevisionUnchanged(self._key(parent, obj), int(obj["metadata"]["resourceVersion"])))
        batch.route(choice.cluster, choice.shard)
        # A concurrent write has a log entry, which enqueues this key again.
        await batch.try_submit()

    def _key(self, parent: str, obj: Object) -> ObjectKey:
        return ObjectKey(self._writes.type, parent, "", obj["metadata"]["name"])

    # --- mirrored state ---

    async def _mirror(self, parent: str, obj: Object, choice: TargetShard, *, gone: bool) -> float | None:
        found, reported = self._replica(choice), remote_workspace_status.reported_revision(obj)
        if found is None or int(found["metadata"]["resourceVersion"]) < reported:
            if not reported and not gone:
                # A missing replica does not prove anything.
                return None
            found = await self._remote.get(choice)
            if found is None:
                return await self._missing(parent, obj)
            reported = int(found["metadata"]["resourceVersion"])
        self._missed.drop(obj["metadata"]["uid"])
        if remote_logicalcluster.owner_uid(found) == obj["metadata"]["uid"]:
            await self._writes.update(parent, obj, remote_workspace_status.mirrored(obj, found, reported, times.now()))
        return None

    def _replica(self, choice: TargetShard) -> Object | None:
        with self._writes.loopback.store.snapshot() as snapshot:
            record = snapshot.replicas.get(ObjectKey(LOGICAL_CLUSTERS, choice.cluster, "", wellknown.SINGLETON))
        return decode(record.value) if record is not None else None

    async def _missing(self, parent: str, obj: Object) -> float | None:
        """Handle a cluster that its shard does not have, though the Workspace is not deleted."""
        uid, now = obj["metadata"]["uid"], time.monotonic()
        since = self._missed.get(uid)
        if since is None:
            self._missed.put(uid, now)
            return DISAPPEARED_S
        if now - since < DISAPPEARED_S:
            return DISAPPEARED_S - (now - since)
        await self._writes.update(parent, obj, remote_workspace_status.disappeared(obj, times.now()))
        return None

    # --- deletion ---

    async def _delete(self, parent: str, obj: Object, choice: TargetShard) -> None:
        """Delete the cluster first; the Workspace shows its progress and waits."""
        uid, found = obj["metadata"]["uid"], self._replica(choice)
        begun = found is not None and found["metadata"].get("deletionTimestamp")
        if not begun or int((found or {})["metadata"]["resourceVersion"]) < remote_workspace_status.reported_revision(
            obj
        ):
            try:
                found = await self._remote.begin_deletion(choice, uid)
            except ShardUnavailable as error:
                await self._writes.update(
                    parent, obj, remote_workspace_status.undeletable(obj, str(error), times.now())
                )
                raise
        if found is None or remote_logicalcluster.owner_uid(found) != uid:
            await self._writes.release(parent, obj, choice.cluster)
        else:
            await self._writes.update(parent, obj, workspace_deletion.mirrored(obj, found))
