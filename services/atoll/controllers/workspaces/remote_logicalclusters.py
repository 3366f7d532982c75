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
        shard, owner = plan.shard.name, plan.workspace

        async def create(client: Client) -> Object:
            return await client.cluster(plan.cluster).create(CLUSTERS, remote_logicalcluster.manifest(plan))

        try:
            return await self._calls.call(shard, create)
        except AlreadyExists:
            # Created by an earlier call whose response was lost, or by another client.
            found = await self._existing(TargetShard(plan.cluster, shard), owner)
            if found is not None and remote_logicalcluster.owner_uid(found) == owner["metadata"]["uid"]:
                return found
            raise ClusterNotCreated(f'logical cluster {plan.cluster} on shard "{shard}" is another\'s', owner) from None
        except ApiError as error:
            # An earlier call may have succeeded, or may still be in progress.
            raise ClusterNotCreated(f'shard "{shard}" refuses: {error}', owner, may_exist=not first) from error
        except ShardUnavailable as error:
            raise ClusterNotCreated(str(error), owner, may_exist=not (first and error.unsent)) from error

    async def _existing(self, choice: TargetShard, owner: Object) -> Object | None:
        """Return the LogicalCluster of that name, which exists; None if it was deleted. Raises ClusterNotCreated."""
        try:
            return await self.get(choice)
        except (ShardUnavailable, ApiError) as error:
            raise ClusterNotCreated(str(error), owner, may_exist=True) from error

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
