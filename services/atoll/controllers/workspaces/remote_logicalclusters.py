"""LogicalClusters on other shards, as the shard of their Workspaces deals with them: made, looked at, told to go.

The workspace controller asks `RemoteLogicalClusters`; calls go to the target's base URL as
system:kcp:logical-cluster-admin. Invariant: a cluster that may exist is never given up for another one: only what a
shard itself says, or a request that was never sent, counts as an answer.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from atoll.controllers.shard_calls import ShardCaller, ShardUnavailable
from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import Resource
from atoll.machinery.kcp.workspaces import remote_logicalcluster, workspace
from atoll.machinery.meta import wellknown
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import AlreadyExists, ApiError, Conflict, NotFound
from atoll.replication.peers import LOGICAL_CLUSTER_ADMIN

CLUSTERS = Resource("core.kcp.io", "v1alpha1", "logicalclusters", namespaced=False)


class TargetShard(NamedTuple):
    """Phase one of scheduling: which logical cluster on which other shard a Workspace gets."""

    cluster: str
    shard: str


class ClusterNotCreated(Exception):
    """A logical cluster was not made, for certain; the text says why. `workspace` is what it was for, as it stands."""

    def __init__(self, text: str, workspace: Object) -> None:
        super().__init__(text)
        self.workspace = workspace


def choice_of(obj: Object, own: str) -> TargetShard | None:
    """What was chosen for a Workspace; None where nothing was, or its own shard."""
    annotations = obj["metadata"].get("annotations") or {}
    cluster = (obj.get("spec") or {}).get("cluster") or annotations.get(wellknown.SCHEDULED_CLUSTER, "")
    shard = annotations.get(wellknown.SHARD, "")
    return TargetShard(cluster, shard) if cluster and shard and shard != own else None


class RemoteLogicalClusters:
    """Does what Workspaces of this shard need done on others."""

    def __init__(self, calls: ShardCaller) -> None:
        self._calls = calls

    def check(self, plan: workspace.WorkspacePlan) -> None:
        """Before anything is written: whether the shard of a plan can be asked at all now. Raises ClusterNotCreated."""
        if self._calls.is_resting(plan.shard.name):
            raise ClusterNotCreated(str(ShardUnavailable(plan.shard.name, unsent=True)), plan.workspace)

    async def make(self, plan: workspace.WorkspacePlan, *, first: bool) -> Object:
        """The LogicalCluster of a plan on its shard, made or found made. `first`: it was never asked for before.

        Raises ShardUnavailable where nobody can tell whether it exists, and ClusterNotCreated.
        """
        shard, owner = plan.shard.name, plan.workspace

        async def create(client: Client) -> Object:
            return await client.cluster(plan.cluster).create(CLUSTERS, remote_logicalcluster.manifest(plan))

        try:
            return await self._calls.call(shard, create)
        except AlreadyExists:
            # By a call of ours whose answer was lost, or else by somebody else.
            found = await self.get(TargetShard(plan.cluster, shard))
            if found is not None and remote_logicalcluster.owner_uid(found) == owner["metadata"]["uid"]:
                return found
            raise ClusterNotCreated(f'logical cluster {plan.cluster} on shard "{shard}" is another\'s', owner) from None
        except ApiError as error:
            if first:
                raise ClusterNotCreated(f'shard "{shard}" refuses: {error}', owner) from error
            # An earlier call may have been carried out, or be so yet.
            raise ShardUnavailable(shard, unsent=False, text=f"refuses: {error}") from error
        except ShardUnavailable as error:
            if first and error.unsent:
                raise ClusterNotCreated(str(error), owner) from error
            raise

    async def get(self, choice: TargetShard) -> Object | None:
        """A LogicalCluster; None where its shard says that there is none. Raises ShardUnavailable, ApiError."""

        async def read(client: Client) -> Object:
            return await client.cluster(choice.cluster).get(CLUSTERS, wellknown.SINGLETON)

        try:
            return await self._calls.call(choice.shard, read, LOGICAL_CLUSTER_ADMIN)
        except NotFound:
            return None

    async def begin_deletion(self, choice: TargetShard, uid: str) -> Object | None:
        """The LogicalCluster of the Workspace with a uid, marked for deletion; None where its shard says that there is
        none, or another's. Raises ShardUnavailable, ApiError.
        """
        found = await self.get(choice)
        if found is None or remote_logicalcluster.owner_uid(found) != uid:
            return None
        if found["metadata"].get("deletionTimestamp"):
            return found

        async def delete(client: Client) -> Object:
            return await client.cluster(choice.cluster).delete(CLUSTERS, wellknown.SINGLETON)

        with suppress(NotFound, Conflict):
            await self._calls.call(choice.shard, delete)
        return await self.get(choice)
