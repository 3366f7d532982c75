"""Homes that a shard created for a choice that the shard `root` has given up: they are deleted.

Watches: LogicalClusters of this shard. Writes: the deletion of a home whose marker on root has a higher generation. A
shard that did not answer in time may have created the home all the same; another one has it since. The marker is
followed until root has noted that the home is there. Invariant: only a marker that root sent, never a missing one, ends
a home.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable
from typing import Protocol

import structlog

from atoll.machinery.apiserver.call.options import DeleteOptions
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.control.manager import LIST_BATCH, Controller
from atoll.machinery.control.queue import Requeue
from atoll.machinery.kcp.sharding.ownership import ROOT_SHARD, record_of
from atoll.machinery.kcp.workspaces import homes
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import rawscan
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.times import parse_time
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.meta.wellknown import CLUSTER, MOVED_GENERATION, SINGLETON
from atoll.machinery.storage.contract import CorruptRecord, LogEntry, Operation, Scope

log = structlog.get_logger()

#: Seconds until a home is looked at again while root has not noted that it is there.
SETTLING_S = 60.0
#: Seconds until it is, while what root says of it was not read.
READING_S = 1.0
_PLACED = rawscan.text(MOVED_GENERATION)


class Markers(Protocol):
    """What the shard `root` says of homes here: `replication.follower.Follower`."""

    def follow_marker(self, home: str) -> bool: ...

    def release_marker(self, home: str) -> None: ...


class LateHomes(Controller):
    """Key: cluster."""

    name = "latehomes"
    workers = 1
    lists_at_start = True

    def __init__(self, loopback: Loopback, kind: Kind, markers: Markers) -> None:
        self._loopback, self._kind, self._markers = loopback, kind, markers

    def watches(self, type: ResourceType) -> bool:
        return type == LOGICAL_CLUSTERS

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        if entry.operation is Operation.ADDED and _is_placed(entry.key.cluster, entry.value):
            yield entry.key.cluster

    def all_keys(self) -> Iterable[Hashable]:
        for number, record in enumerate(self._loopback.records(Scope(LOGICAL_CLUSTERS))):
            if number % LIST_BATCH == 0:
                yield None
            if _is_placed(record.key.cluster, record.value) and not self._is_noted(decode(record.value)):
                yield record.key.cluster

    async def reconcile(self, cluster: str) -> Requeue:
        again = await self._look(cluster)
        if again is None:
            self._markers.release_marker(cluster)
        return again

    async def _look(self, cluster: str) -> Requeue:
        """Delete a home that is outdated. None for one that needs no further look."""
        obj = self._loopback.get(LOGICAL_CLUSTERS, cluster, "", SINGLETON)
        if obj is None or obj["metadata"].get("deletionTimestamp") or self._is_noted(obj):
            return None
        is_read, generation = self._markers.follow_marker(cluster), self._last_choice(cluster)[0]
        if homes.is_outdated(obj, generation):
            log.warning("home of a choice that was given up", cluster=cluster, last=generation)
            await self._loopback.delete(Target(self._kind, cluster, "", SINGLETON), DeleteOptions())
            return None
        if not is_read:
            return READING_S
        is_new = time.time() - (parse_time(obj["metadata"]["creationTimestamp"]) or 0.0) < SETTLING_S
        # Not every shard has the marker of each of its homes.
        return SETTLING_S if generation or is_new else None

    def _is_noted(self, home: Object) -> bool:
        """Whether root has noted that a home is there: it is not given up any more."""
        generation, is_created = self._last_choice(home["metadata"]["annotations"][CLUSTER])
        return is_created and not homes.is_outdated(home, generation)

    def _last_choice(self, cluster: str) -> tuple[int, bool]:
        """Return the generation of the last choice that root sent, 0 for none, and whether its home is there."""
        try:
            with self._loopback.store.snapshot() as snapshot:
                row = snapshot.replicas.row_of(ROOT_SHARD, ObjectKey(LOGICAL_CLUSTERS, cluster, "", SINGLETON))
        except CorruptRecord:
            return 0, False
        if row is None:
            return 0, False
        found = decode(row[0].value)
        seat = homes.seat_of(found)
        return homes.generation_of(found), seat is None or seat.is_created


def _is_placed(cluster: str, value: bytes) -> bool:
    """Whether a stored LogicalCluster is a home that root placed here."""
    if _PLACED not in value:
        return False
    said = record_of(cluster, value)
    return said is not None and said.is_home and not said.successor
