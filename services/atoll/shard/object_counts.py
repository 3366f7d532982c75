"""Metrics of logical clusters that are about to reach the limit of all their objects.

The main process of a shard runs it; its workers show what it shows. Only clusters at 90 % of their limit
or above are shown, and at most a thousand, so that labels are bounded. The store's rows are exact at any time; only the
metrics are as old as the last look.
"""

from __future__ import annotations

import asyncio
from heapq import nlargest
from typing import NoReturn

from prometheus_client import CollectorRegistry, Gauge

from atoll.machinery.storage.limits import TotalObjects
from atoll.machinery.storage.reader import StoreReader

_NEAR = 0.9
MAX_CLUSTERS = 1000
#: Rows read between two yields to the event loop.
_PAGE = 200


class ObjectCounts:
    """The metrics kcp_logicalcluster_object_count and _limit of one shard."""

    def __init__(self, store: StoreReader, registry: CollectorRegistry, interval_s: float) -> None:
        self._store, self._interval_s = store, interval_s
        self._shard = store.identity.shard
        labels = ("shard", "cluster")
        near = "of a logical cluster, where at least 90 % of the limit are in use."
        self._count = Gauge("kcp_logicalcluster_object_count", f"Objects {near}", labels, registry=registry)
        self._limit = Gauge("kcp_logicalcluster_object_limit", f"Limit of objects {near}", labels, registry=registry)

    async def run(self) -> NoReturn:
        """Look at every limited cluster, again and again. Cancel it to stop."""
        while True:
            self._show(await self._near())
            await asyncio.sleep(self._interval_s)

    async def _near(self) -> list[tuple[str, TotalObjects]]:
        """Return the clusters to show: those with the largest part of their limit in use."""
        found: list[tuple[str, TotalObjects]] = []
        after = ""
        while True:
            with self._store.snapshot() as snapshot:
                page = snapshot.totals(after, _PAGE)
            found += (row for row in page if 0 < row[1].hard * _NEAR <= row[1].used)
            if len(found) > MAX_CLUSTERS:
                found = nlargest(MAX_CLUSTERS, found, key=lambda row: row[1].used / row[1].hard)
            if len(page) < _PAGE:
                return found
            after = page[-1][0]
            await asyncio.sleep(0)

    def _show(self, found: list[tuple[str, TotalObjects]]) -> None:
        self._count.clear()
        self._limit.clear()
        for cluster, total in found:
            self._count.labels(self._shard, cluster).set(total.used)
            self._limit.labels(self._shard, cluster).set(total.hard)
