"""LogicalClusters here whose Workspace was on a shard that is lost for good: they say so, and can be deleted directly.

Watches: Shards, and creations of LogicalClusters. Writes: the condition WorkspaceOwnerExists and spec.directlyDeletable
of such a LogicalCluster, once every other shard has answered that it does not have the Workspace's cluster. Invariant:
without a record of a forgotten store, and without all these answers, nothing is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Hashable, Iterable

from atoll.controllers.shard_predicate import ShardChangePredicate
from atoll.controllers.workspaces.owner_notifications import OwnerShards
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.control.manager import LIST_BATCH, ReplicaController
from atoll.machinery.control.queue import Requeue
from atoll.machinery.kcp.sharding.ownership import record_of
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import rawscan, times
from atoll.machinery.meta.conditions import ERROR, FALSE, Condition, find, with_conditions
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.meta.objects import conditions_of, status_of
from atoll.machinery.meta.status import Conflict
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.meta.wellknown import SINGLETON
from atoll.machinery.storage.contract import LogEntry, Scope
from atoll.tenancy.placement import ShardPlacement

OWNER_EXISTS = "WorkspaceOwnerExists"
TEXT = "the shard of the workspace above is lost: keep what is needed, then delete this logical cluster directly"
#: Parents whose existence is known during one pass; the children of others are asked for again.
MAX_PARENTS = 4096
_OWNED = rawscan.member("owner")


_ALL = "children"


class LostParents(ReplicaController):
    """Has one key: a store is forgotten seldom, and then all LogicalClusters are looked at, page by page."""

    name = "lostparents"
    workers = 1

    def __init__(self, loopback: Loopback, kind: Kind, placement: ShardPlacement, owners: OwnerShards) -> None:
        self._loopback, self._kind = loopback, kind
        self._placement, self._owners, self._shard_changes = placement, owners, ShardChangePredicate()

    def watches(self, type: ResourceType) -> bool:
        return type == self._placement.type

    def watches_replicas(self, type: ResourceType) -> bool:
        return type == self._placement.type

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        if self._shard_changes.has_changed(entry):
            yield _ALL

    keys_of_replica = keys

    def all_keys(self) -> Iterable[Hashable]:
        yield _ALL

    async def reconcile(self, key: str) -> Requeue:
        with self._loopback.store.snapshot() as snapshot:
            lost = {each.shard for each in self._placement.forgotten(snapshot)}
        found: LruCache[str, bool] = LruCache(MAX_PARENTS)
        for number, record in enumerate(self._loopback.records(Scope(LOGICAL_CLUSTERS))) if lost else ():
            if number % LIST_BATCH == 0:
                await asyncio.sleep(0)
            said = record_of(record.key.cluster, record.value) if _OWNED in record.value else None
            if said is not None and said.owner is not None and self._may_be_lost(said.owner[0], lost):
                await self._mark(record.key.cluster, said.owner[0], found)
        return None

    def _may_be_lost(self, parent: str, lost: Collection[str]) -> bool:
        """Whether no shard but a lost one is known to have a cluster."""
        with self._loopback.store.snapshot() as snapshot:
            shard = snapshot.replicas.shard_of(parent)
            return not snapshot.gate(parent).generation and (not shard or shard in lost)

    async def _mark(self, cluster: str, parent: str, found: LruCache[str, bool]) -> None:
        """Write it to a LogicalCluster, if its parent, in `found` once it was sought, is nowhere.

        Raises ShardUnavailable while a shard does not answer.
        """
        obj = self._loopback.get(LOGICAL_CLUSTERS, cluster, "", SINGLETON)
        if obj is None or find(conditions_of(obj), OWNER_EXISTS):
            return
        if (exists := found.get(parent)) is None:
            exists = await self._owners.exists_on_any_shard(parent)
            found.put(parent, exists)
        if exists:
            return
        status = with_conditions(status_of(obj), times.now(), Condition(OWNER_EXISTS, FALSE, "ShardLost", TEXT, ERROR))
        changed = {**obj, "spec": {**obj["spec"], "directlyDeletable": True}, "status": status}
        if await self._loopback.try_update(Target(self._kind, cluster, "", SINGLETON), changed, whole=True) is None:
            raise Conflict("another writer came first")
