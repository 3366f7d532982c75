"""Notify the shard of a remote Workspace about its logical cluster: new revisions, and deletion.

Watches: LogicalClusters of this shard. Writes: on the Workspace's shard, as system:kcp:external-logical-cluster-admin,
an annotation with the newest revision, and at the end the deletion of the Workspace and of our finalizer. The state
stream carries revisions too; no call is made where it was faster. Invariant: a logical cluster without content stays
until its owner's shard has released the Workspace, or answers that there is none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Hashable, Iterable
from typing import NamedTuple

import structlog

from atoll.controllers.shard_calls import ShardCaller, ShardUnavailable
from atoll.controllers.workspaces.remote_logicalclusters import CLUSTERS
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.call.options import DeleteOptions
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import WORKSPACES
from atoll.machinery.control.manager import Controller
from atoll.machinery.kcp.workspaces import remote_workspace_status
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import rawscan, wellknown
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, annotations_of, decode, finalizers_of, spec_of
from atoll.machinery.meta.status import Conflict, Forbidden, NotFound
from atoll.machinery.meta.times import format_time
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.process.retry import ATTEMPTS
from atoll.machinery.storage.contract import LogEntry, Operation, Scope
from atoll.replication.peers import EXTERNAL_LOGICAL_CLUSTER_ADMIN

log = structlog.get_logger()

#: Seconds until a new cluster's Workspace that was not replicated is read from its shard.
SETTLING_S = 60.0
#: Clusters created less than these seconds before the start of this process are verified again.
UNVERIFIED_S = 600.0
_OWNED = rawscan.member("owner")


class Owner(NamedTuple):
    """A Workspace on another shard that owns a logical cluster."""

    shard: str
    cluster: str
    name: str
    uid: str


class OwnerUnknown(Exception):
    """The shard of a Workspace's cluster is not known yet."""


def remote_owner(view: View, obj: Object) -> Owner | None:
    """Return the owner of a LogicalCluster if it lies on another shard, else None.

    Raises OwnerUnknown.
    """
    owner = spec_of(obj).get("owner")
    if not owner or view.gate(owner["cluster"]).generation:
        return None
    shard = view.replicas.shard_of(owner["cluster"])
    if not shard:
        raise OwnerUnknown(f"the shard of {owner['cluster']} is not known")
    return Owner(shard, owner["cluster"], owner["name"], owner["uid"])


class OwnerShards:
    """Calls to the shards of owners. They raise ShardUnavailable and ApiError.

    `others` returns the known shards, `lost` those whose stores were struck off; `knows_all`: this shard has the Shard
    objects itself, so there may be none.
    """

    def __init__(
        self,
        calls: ShardCaller,
        others: Callable[[], Collection[str]],
        lost: Callable[[], Collection[str]] = tuple,
        *,
        knows_all: bool = False,
    ) -> None:
        self._calls, self._others, self._lost, self._knows_all = calls, others, lost, knows_all

    def is_lost(self, owner: Owner) -> bool:
        """Whether the shard of an owner is lost for good, so that nobody can be told or asked."""
        return owner.shard in self._lost() and owner.shard not in self._others()

    async def tell(self, owner: Owner, revision: str) -> bool:
        """Write the newest revision to the owner. Returns whether the owner exists."""
        patch = {"metadata": {"uid": owner.uid, "annotations": {wellknown.CLUSTER_REVISION: revision}}}

        async def ask(client: Client) -> Object:
            return await client.cluster(owner.cluster).patch(WORKSPACES, owner.name, patch)

        try:
            await self._calls.call(owner.shard, ask, EXTERNAL_LOGICAL_CLUSTER_ADMIN)
        except (NotFound, Conflict, Forbidden):
            return await self.find(owner) is not None
        except ShardUnavailable:
            if not self.is_lost(owner):
                raise
            return False
        return True

    async def find(self, owner: Owner) -> Object | None:
        """Return the Workspace; None where its shard has none, or another one of that name.

        After a Forbidden response, the existence of the cluster of the Workspace decides: None if it is deleted.
        """

        async def ask(client: Client) -> Object:
            return await client.cluster(owner.cluster).get(WORKSPACES, owner.name)

        try:
            found = await self._calls.call(owner.shard, ask, EXTERNAL_LOGICAL_CLUSTER_ADMIN)
        except NotFound:
            return None
        except Forbidden:
            if await self._has(owner.shard, owner.cluster):
                raise
            return None
        return found if found["metadata"]["uid"] == owner.uid else None

    async def exists_on_any_shard(self, cluster: str) -> bool:
        """Return whether any shard has a logical cluster. All shards must answer."""
        others = self._others()
        if not others and not self._knows_all:
            raise OwnerUnknown(f"the shard of {cluster} is not known, and neither is any other")
        for shard in others:
            if await self._has(shard, cluster):
                return True
        return False

    async def _has(self, shard: str, cluster: str) -> bool:
        async def ask(client: Client) -> Object:
            return await client.cluster(cluster).get(CLUSTERS, wellknown.SINGLETON)

        try:
            await self._calls.call(shard, ask)
        except NotFound:
            return False
        return True

    async def release(self, owner: Owner, cluster: str) -> None:
        """Delete the Workspace of a cluster, if it is not deleted yet, and remove our finalizer.

        A Workspace that names another cluster, or none any more, stays as it is.
        """
        for _ in range(ATTEMPTS):
            found = await self.find(owner)
            if found is None or wellknown.OWNER_FINALIZER not in finalizers_of(found):
                return
            if cluster not in {_cluster_of(found), annotations_of(found).get(wellknown.SCHEDULED_CLUSTER)}:
                return
            try:
                if not found["metadata"].get("deletionTimestamp"):
                    await self._delete(owner)
                else:
                    await self._remove_finalizer(owner, found)
                    # The Workspace's cluster may have been deleted too.
                    return
            except (NotFound, Conflict):
                # A concurrent write: read it again.
                continue
        raise ShardUnavailable(owner.shard, unsent=False, text="changes the Workspace all the time")

    async def _delete(self, owner: Owner) -> None:
        body: Object = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": owner.uid}}

        async def ask(client: Client) -> Object:
            return await client.cluster(owner.cluster).request("DELETE", WORKSPACES.path("", owner.name), None, body)

        await self._calls.call(owner.shard, ask, EXTERNAL_LOGICAL_CLUSTER_ADMIN)

    async def _remove_finalizer(self, owner: Owner, found: Object) -> None:
        metadata = found["metadata"]
        kept = [each for each in metadata["finalizers"] if each != wellknown.OWNER_FINALIZER]
        patch = {"metadata": {"resourceVersion": metadata["resourceVersion"], "finalizers": kept}}

        async def ask(client: Client) -> Object:
            return await client.cluster(owner.cluster).patch(WORKSPACES, owner.name, patch)

        await self._calls.call(owner.shard, ask, EXTERNAL_LOGICAL_CLUSTER_ADMIN)


class OwnerNotifications(Controller):
    """Notifies remote owners of new revisions, and deletes clusters without an owner. Key: cluster."""

    name = "logicalclusterowner"
    workers = 8
    #: Seconds: users wait for workspaces, so the back-off stays short after any number of failures.
    max_delay_s = 10.0

    def __init__(self, loopback: Loopback, kind: Kind, workspaces: ResourceType, owners: OwnerShards) -> None:
        self._loopback, self._kind, self._type, self._owners = loopback, kind, workspaces, owners
        #: New clusters whose Workspace was not replicated yet; each is verified once.
        self._new: set[str] = set()
        #: Bounds of creationTimestamp: a process that ended may not have verified the owners of these clusters.
        now_s = int(time.time())
        self._unverified = format_time(now_s - int(UNVERIFIED_S)), format_time(now_s)
        self._verified: set[str] = set()

    def watches(self, type: ResourceType) -> bool:
        return type == LOGICAL_CLUSTERS

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        if entry.operation is Operation.DELETED:
            return
        with self._loopback.store.snapshot() as snapshot:
            try:
                concerned = remote_owner(snapshot, decode(entry.value)) is not None
            except OwnerUnknown:
                concerned = True
        if concerned:
            yield entry.key.cluster, entry.operation is Operation.ADDED

    def all_keys(self) -> Iterable[Hashable]:
        for record in self._loopback.records(Scope(LOGICAL_CLUSTERS)):
            if _OWNED in record.value:
                yield record.key.cluster, False

    async def reconcile(self, key: tuple[str, bool]) -> float | None:
        cluster, is_new = key
        with self._loopback.store.snapshot() as snapshot:
            record = snapshot.get(ObjectKey(LOGICAL_CLUSTERS, cluster, "", wellknown.SINGLETON))
            if record is None:
                self._new.discard(cluster)
                return None
            obj = decode(record.value)
            owner = remote_owner(snapshot, obj)
            workspace = self._workspace(snapshot, owner) if owner is not None else None
        if owner is None:
            return None
        if is_new:
            return await self._verify_owner(cluster, obj, owner, workspace)
        unverified = self._is_unverified(cluster, obj)
        again_s = await self._verify_owner(cluster, obj, owner, workspace) if unverified else None
        if workspace is not None and _cluster_of(workspace) not in {"", cluster}:
            await self._verify_other_cluster(cluster, owner)
        elif workspace is None or not remote_workspace_status.is_mirrored(workspace, obj):
            await self._owners.tell(owner, obj["metadata"]["resourceVersion"])
        return again_s

    def _is_unverified(self, cluster: str, obj: Object) -> bool:
        """Return whether a cluster was created shortly before this process started, and was not verified since."""
        first, last = self._unverified
        created = obj["metadata"].get("creationTimestamp") or ""
        return first <= created < last and cluster not in self._verified

    async def _verify_other_cluster(self, cluster: str, owner: Owner) -> None:
        """Delete a cluster whose Workspace was scheduled elsewhere, if the Workspace's own shard confirms it."""
        found = await self._owners.find(owner)
        if found is not None and _cluster_of(found) not in {"", cluster}:
            await self._delete_orphan(cluster, owner)

    async def _delete_orphan(self, cluster: str, owner: Owner) -> None:
        log.warning("logical cluster without an owner", cluster=cluster, owner=owner.name, shard=owner.shard)
        await self._loopback.delete(Target(self._kind, cluster, "", wellknown.SINGLETON), DeleteOptions())

    def _workspace(self, view: View, owner: Owner) -> Object | None:
        """Return the replica of the owner."""
        record = view.replicas.get(ObjectKey(self._type, owner.cluster, "", owner.name))
        found = decode(record.value) if record is not None else None
        return found if found is not None and found["metadata"]["uid"] == owner.uid else None

    async def _verify_owner(self, cluster: str, obj: Object, owner: Owner, workspace: Object | None) -> float | None:
        """Verify once that the Workspace of a new cluster refers to it; delete the cluster otherwise.

        A creation request executed late may find its Workspace deleted, or with another cluster, before the replica
        shows it. No notification is needed: the creation response carried the state of the cluster. After this check,
        a missing Workspace has no effect.
        """
        if workspace is not None and _cluster_of(workspace) == cluster:
            self._end_verification(cluster, obj)
            return None
        scheduled_elsewhere = workspace is not None and _cluster_of(workspace) != ""
        if cluster not in self._new and not scheduled_elsewhere:
            self._new.add(cluster)
            return SETTLING_S
        found = await self._owners.find(owner)
        has = _cluster_of(found) if found is not None else None
        if has == "":
            # Not scheduled yet: the scheduling controller will request this cluster again.
            return SETTLING_S
        if has != cluster:
            await self._delete_orphan(cluster, owner)
        self._end_verification(cluster, obj)
        return None

    def _end_verification(self, cluster: str, obj: Object) -> None:
        self._new.discard(cluster)
        if self._is_unverified(cluster, obj):
            self._verified.add(cluster)


def _cluster_of(workspace: Object) -> str:
    """Return the logical cluster of a Workspace; "" before it is scheduled."""
    return str(spec_of(workspace).get("cluster") or "")
