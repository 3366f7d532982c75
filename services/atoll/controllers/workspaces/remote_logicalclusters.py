"""LogicalClusters on other shards: create, get and delete them for Workspaces of this shard.

The workspace controllers call `RemoteLogicalClusters`; requests go to the target's base URL as
system:kcp:logical-cluster-admin. Invariant: only a response of the shard itself, or a request that was never sent,
proves that a cluster does not exist.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from atoll.controllers.shard_calls import ShardCaller, ShardUnavailable
from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import Resource
from atoll.machinery.kcp.workspaces import remote_logicalcluster, workspace
from atoll.machinery.meta import wellknown
from atoll.machinery.meta.objects import Object, annotations_of, spec_of
from atoll.machinery.meta.status import AlreadyExists, ApiError, Conflict, NotFound
from atoll.replication.peers import LOGICAL_CLUSTER_ADMIN

CLUSTERS = Resource("core.kcp.io", "v1alpha1", "logicalclusters", namespaced=False)


class TargetShard(NamedTuple):
    """Phase one of scheduling: the logical cluster chosen for a Workspace, and its shard."""

    cluster: str
    shard: str


class ClusterNotCreated(Exception):
    """A shard created no logical cluster; the text says why. `workspace` is the current Workspace.

    `may_exist`: the shard did not answer, and may have created it or do so later.
    """

    def __init__(self, text: str, workspace: Object, *, may_exist: bool = False) -> None:
        super().__init__(text)
        self.workspace, self.may_exist = workspace, may_exist


def choice_of(obj: Object, own: str) -> TargetShard | None:
    """Return the remote shard chosen for a Workspace; None without a choice, and for its own shard."""
    annotations = annotations_of(obj)
    cluster = spec_of(obj).get("cluster") or annotations.get(wellknown.SCHEDULED_CLUSTER, "")
    shard = annotations.get(wellknown.SHARD, "")
    return TargetShard(cluster, shard) if cluster and shard and shard != own else None


class RemoteLogicalClusters:
    """Client of LogicalClusters on other shards."""

    def __init__(self, calls: ShardCaller) -> None:
        self._calls = calls

    def check(self, plan: workspace.WorkspacePlan) -> None:
        """Check, before any write, that the shard of a plan can be called now. Raises ClusterNotCreated."""
        if self._calls.is_resting(plan.shard.name):
            raise ClusterNotCreated(str(ShardUnavailable(plan.shard.name, unsent=True)), plan.workspace)

    async def make(self, plan: workspace.WorkspacePlan, *, first: bool) -> Object:
        """Create the LogicalCluster of a plan on its shard, or return the existing one. `first`: no earlier attempt.

        Raises ClusterNotCreated.
        """
        shard, owner, exists = plan.shard.name, plan.workspace, False

        async def create(client: Client) -> Object | None:
            nonlocal exists
            there = client.cluster(plan.cluster)
            try:
                return await there.create(CLUSTERS, remote_logicalcluster.manifest(plan))
            except AlreadyExists:
                # Created by an earlier call whose response was lost, or by another client.
                exists = True
                with suppress(NotFound):
                    return await there.get(CLUSTERS, wellknown.SINGLETON)
                return None

        try:
            found = await self._calls.call(shard, create)
        except ApiError as error:
            # An earlier call may have succeeded, or may still be in progress.
            may_exist = exists or not first
            raise ClusterNotCreated(f'shard "{shard}" refuses: {error}', owner, may_exist=may_exist) from error
        except ShardUnavailable as error:
            may_exist = exists or not (first and error.unsent)
            raise ClusterNotCreated(str(error), owner, may_exist=may_exist) from error
        if found is None or (exists and remote_logicalcluster.owner_uid(found) != owner["metadata"]["uid"]):
            raise ClusterNotCreated(f'logical cluster {plan.cluster} on shard "{shard}" is another\'s', owner)
        return found

    async def get(self, choice: TargetShard) -> Object | None:
        """Return a LogicalCluster; None where its shard answers NotFound. Raises ShardUnavailable, ApiError."""

        async def read(client: Client) -> Object:
            return await client.cluster(choice.cluster).get(CLUSTERS, wellknown.SINGLETON)

        try:
            return await self._calls.call(choice.shard, read, LOGICAL_CLUSTER_ADMIN)
        except NotFound:
            return None

    async def begin_deletion(self, choice: TargetShard, uid: str) -> Object | None:
        """Delete the LogicalCluster of the Workspace with this uid and return it; None where its shard has none, or one
        with another owner. Raises ShardUnavailable, ApiError.
        """

        async def delete(client: Client) -> Object | None:
            there = client.cluster(choice.cluster)
            found = await there.get(CLUSTERS, wellknown.SINGLETON)
            if remote_logicalcluster.owner_uid(found) != uid:
                return None
            if found["metadata"].get("deletionTimestamp"):
                return found
            with suppress(NotFound, Conflict):
                await there.delete(CLUSTERS, wellknown.SINGLETON)
            return await there.get(CLUSTERS, wellknown.SINGLETON)

        try:
            return await self._calls.call(choice.shard, delete)
        except NotFound:
            return None
