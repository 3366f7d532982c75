"""Metrics of the changes that the controllers of the edge service read. Labels are shards and fixed reasons."""

from __future__ import annotations

from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge


class Reading(Protocol):
    """The reading of one shard."""

    @property
    def interruption(self) -> str:
        """Why nothing is read now."""

    @property
    def pending(self) -> int:
        """Messages that wait to be read."""


class ChangesMetrics:
    """One for each process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._pending = Gauge(
            "atoll_edge_changes_pending", "Changes of a shard that wait to be read.", ("shard",), registry=registry
        )
        self._connected = Gauge(
            "atoll_edge_changes_connected", "Whether the changes of a shard are read.", ("shard",), registry=registry
        )
        self._rereads = Counter(
            "atoll_edge_rereads_total",
            "How often all of a shard had to be read again, and why.",
            ("shard", "reason"),
            registry=registry,
        )

    def follow(self, shard: str, reading: Reading) -> None:
        """Begin to measure a shard."""
        self._pending.labels(shard).set_function(lambda: reading.pending)
        self._connected.labels(shard).set_function(lambda: not reading.interruption)

    def forget(self, shard: str) -> None:
        """Remove the gauges of a shard that is gone."""
        for gauge in (self._pending, self._connected):
            gauge.remove(shard)

    def reread(self, shard: str, reason: str) -> None:
        """Count a reread."""
        self._rereads.labels(shard, reason).inc()
