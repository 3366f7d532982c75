"""Metrics of a shard's store: its room, its commits and its clock, read when they are scraped.

The writer's process registers them. Invariant: a scrape measures at most once a second, as commits do.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from atoll.machinery.storage.environment import filesystem
from atoll.machinery.storage.lmdb_store import LmdbStore


class StoreMetrics(Collector):
    """Those of one store."""

    def __init__(self, store: LmdbStore, registry: CollectorRegistry) -> None:
        self._store = store
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics for a scrape."""
        yield from self._room()
        yield from self._commits()
        self._store.clock.now_us()
        refused_s, behind_us = self._store.clock.refused_step_s, self._store.revisions.behind_us
        text = "The step of the wall clock that is refused now, in seconds; 0 while the clock is followed."
        yield GaugeMetricFamily("atoll_clock_refused_step_seconds", text, refused_s)
        text = "How far the clock is behind the last revision."
        yield GaugeMetricFamily("atoll_clock_behind_seconds", text, behind_us / 1e6)

    def _room(self) -> Iterator[Metric]:
        space = self._store.space
        is_full = space.check()
        disk_bytes = filesystem.size_bytes(Path(self._store.options.directory))
        yield GaugeMetricFamily("atoll_store_used_bytes", "Bytes of pages in use.", space.used_bytes)
        text = "Bytes that the store may still grow by: free ones of the disk, and free pages of its file."
        yield GaugeMetricFamily("atoll_store_room_bytes", text, max(0, space.room_bytes))
        yield GaugeMetricFamily("atoll_store_disk_bytes", "Bytes of the disk of the store.", disk_bytes)
        yield GaugeMetricFamily("atoll_store_full", "Whether creates and updates are refused.", is_full)

    def _commits(self) -> Iterator[Metric]:
        stats = self._store.stats
        yield CounterMetricFamily("atoll_store_commits", "Transactions that were committed.", stats.commits)
        yield CounterMetricFamily("atoll_store_submits", "Writes in them.", stats.submits)
        yield CounterMetricFamily("atoll_store_failed_commits", "Transactions that failed.", stats.failed_commits)
        yield GaugeMetricFamily("atoll_store_queued_submits", "Writes that wait for one.", self._store.queued)
        syncs = HistogramMetricFamily(
            "atoll_store_sync_duration_seconds", "Time of the durable end of a commit, of one a second."
        )
        syncs.add_metric([], stats.syncs.buckets(), stats.syncs.sum_s)
        yield syncs
