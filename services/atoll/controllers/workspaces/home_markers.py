"""Markers of homes on the shard `root`: they follow what the shards of the homes say.

Watches: LogicalClusters of other shards. Writes: on the marker, that the home is there; the end of the marker and its
route, once the home's shard has answered that it has none, or was forgotten. The next use of `~` then places a new one.
Invariant: a missing replica or a missing answer ends no marker.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from atoll.controllers.content_deleter import CONFLICT
from atoll.controllers.workspaces.remote_logicalclusters import RemoteLogicalClusters, TargetShard
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.control.manager import LIST_BATCH, ReplicaController
from atoll.machinery.control.queue import Requeue
from atoll.machinery.kcp.sharding.ownership import record_of
from atoll.machinery.kcp.workspaces import homes
from atoll.machinery.kcp.workspaces.homes import Seat
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import rawscan
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.meta.wellknown import MOVED_TO, SINGLETON
from atoll.machinery.storage.contract import LogEntry, Record, Scope
from atoll.tenancy.placement import ShardPlacement

_MARKER = rawscan.text(MOVED_TO)


class HomeMarkers(ReplicaController):
    """Key: cluster."""

    name = "homemarkers"
    workers = 4
    #: Seconds: users wait for their homes, so the back-off stays short after any number of failures.
    max_delay_s = 10.0

    def __init__(
        self, loopback: Loopback, kind: Kind, placement: ShardPlacement, remote: RemoteLogicalClusters
    ) -> None:
        self._loopback, self._kind, self._placement, self._remote = loopback, kind, placement, remote

    def watches(self, type: ResourceType) -> bool:
        return False

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        return ()

    def watches_replicas(self, type: ResourceType) -> bool:
        return type == LOGICAL_CLUSTERS

    def keys_of_replica(self, entry: LogEntry) -> Iterable[Hashable]:
        with self._loopback.store.snapshot() as snapshot:
            # A cluster of another shard has nothing here but a marker.
            if snapshot.revision_of(entry.key):
                yield entry.key.cluster

    def all_keys(self) -> Iterable[Hashable]:
        for number, record in enumerate(self._loopback.records(Scope(LOGICAL_CLUSTERS))):
            if number % LIST_BATCH == 0:
                yield None
            if _MARKER in record.value:
                yield record.key.cluster

    async def reconcile(self, cluster: str) -> Requeue:
        key = ObjectKey(LOGICAL_CLUSTERS, cluster, "", SINGLETON)
        with self._loopback.store.snapshot() as snapshot:
            marker = snapshot.get(key)
            seat = _home_seat(marker) if marker is not None else None
            if marker is None or seat is None:
                return None
            row, is_lost = snapshot.replicas.get(key), self._placement.is_lost_home(snapshot, seat)
        if row is not None and not is_lost:
            return await self._note(marker, seat, decode(row.value))
        if not is_lost and not await self._is_gone(cluster, seat):
            return None
        batch = self._loopback.batch()
        batch.remove(marker)
        batch.route(cluster, "", seat.generation)
        return None if await batch.try_submit() else CONFLICT

    async def _is_gone(self, cluster: str, seat: Seat) -> bool:
        """Ask the shard of a home that was there: before, it may be in the middle of its creation."""
        return seat.is_created and await self._remote.get(TargetShard(cluster, seat.shard)) is None

    async def _note(self, marker: Record, seat: Seat, home: Object) -> Requeue:
        """Note that a home is there, for one whose answer was lost."""
        if seat.is_created or homes.is_outdated(home, seat.generation):
            return None
        target = Target(self._kind, marker.key.cluster, "", SINGLETON)
        written = await self._loopback.try_update(target, homes.created(decode(marker.value)), whole=True)
        return None if written is not None else CONFLICT


def _home_seat(record: Record) -> Seat | None:
    """Return what the marker of a home says; None for any other LogicalCluster."""
    said = record_of(record.key.cluster, record.value)
    return homes.seat_of(decode(record.value)) if said is not None and said.is_home else None
