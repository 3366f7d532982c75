"""Clusters without a Workspace that a shard sends and does not own: they do not count, and an operator hears of it.

A home or a root that was just created may arrive before the row that says whose it is, so a row is looked at again
after GRACE_S; then it is counted and logged, once. In memory, bounded, without I/O but the snapshots it is given.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import structlog

from atoll.machinery.kcp.sharding.ownership import is_claimable, record_of
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.meta.wellknown import SINGLETON
from atoll.machinery.storage.contract import CorruptRecord, Snapshot
from atoll.replication.metrics import STRANGER, ReplicationMetrics

log = structlog.get_logger()

#: How long a row may wait for the one that it follows from, in seconds.
GRACE_S = 10.0
#: Rows that wait at a time; of more none is noted.
MAX_WAITING = 1000


class StrangerRows:
    """The rows that wait. `clock` returns monotonic seconds."""

    def __init__(self, metrics: ReplicationMetrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics, self._clock = metrics, clock
        #: By shard and cluster, when the row is looked at; in order.
        self._due: dict[tuple[str, str], float] = {}

    def note(self, origin: str, cluster: str, value: bytes, owner: str) -> None:
        """A shard sent a LogicalCluster, of a cluster that `owner` owns ("": nobody)."""
        if origin != owner and len(self._due) < MAX_WAITING and _claims(cluster, value):
            self._due.setdefault((origin, cluster), self._clock() + GRACE_S)

    def report(self, snapshot: Snapshot) -> None:
        """Count and log the rows that waited long enough and do not count yet."""
        for origin, cluster in list(self._ripe()):
            del self._due[origin, cluster]
            if snapshot.replicas.shard_of(cluster) != origin and _claims(cluster, _held(snapshot, origin, cluster)):
                self._metrics.refused(origin, STRANGER)
                log.warning("shard claims a logical cluster that it may not have", shard=origin, cluster=cluster)

    def _ripe(self) -> Iterator[tuple[str, str]]:
        now_s = self._clock()
        for where, due_s in self._due.items():
            if due_s > now_s:
                return
            yield where


def _claims(cluster: str, value: bytes) -> bool:
    record = record_of(cluster, value) if is_claimable(cluster) else None
    return record is not None and record.owner is None and not record.successor


def _held(snapshot: Snapshot, origin: str, cluster: str) -> bytes:
    try:
        row = snapshot.replicas.row_of(origin, ObjectKey(LOGICAL_CLUSTERS, cluster, "", SINGLETON))
    except CorruptRecord:
        return b""
    return row[0].value if row is not None else b""
