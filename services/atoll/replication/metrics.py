"""Metrics of replication, by the names that dashboards use. Labels are shards and fixed reasons."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

from atoll.machinery.stream.consumer.state_consumer import StateConsumer
from atoll.machinery.stream.signatures import SignatureState

#: Why a row of another shard was refused.
SEALED, SYSTEM, FOREIGN, MALFORMED, LEVEL = "sealed", "system", "foreign", "malformed", "level"
#: A cluster without a Workspace from a shard that may not have it: its row is kept and does not count.
STRANGER = "stranger"
#: Somebody else wrote it.
FORGED_REASONS = *(each.value for each in SignatureState if each is not SignatureState.GENUINE), "replayed"
#: It comes from a store that was struck off.
FORGOTTEN = "forgotten"


class ReplicationMetrics:
    """One for each process that follows shards."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._lag_s = Gauge(
            "atoll_replication_lag_seconds",
            "Since when a shard's rows may be behind; 0 while they are current.",
            ("shard",),
            registry=registry,
        )
        self._lag_messages = Gauge(
            "atoll_replication_lag_messages", "Messages of a shard that wait to be read.", ("shard",), registry=registry
        )
        self._generations = Gauge(
            "atoll_replication_generations",
            "How often everything of a shard was read since the process started.",
            ("shard",),
            registry=registry,
        )
        self._rows = Counter(
            "atoll_replication_rows_total", "Rows of a shard written or dropped.", ("shard",), registry=registry
        )
        self._refused = Counter(
            "atoll_replication_refused_rows_total", "Rows not taken, and why.", ("shard", "reason"), registry=registry
        )
        self._failures = Counter(
            "atoll_replication_failures_total", "Turns of following that failed.", ("shard",), registry=registry
        )

    def follow(self, shard: str, consumer: StateConsumer) -> None:
        """Begin to measure a shard."""
        self._lag_s.labels(shard).set_function(lambda: consumer.behind_s)
        self._lag_messages.labels(shard).set_function(lambda: consumer.pending)
        self._generations.labels(shard).set_function(lambda: consumer.generations)
        # Prometheus sees no increase in a series that begins above 0.
        for reason in FORGED_REASONS:
            self._refused.labels(shard, reason)

    def forget(self, shard: str) -> None:
        """Remove the gauges of a shard that is no longer followed."""
        for gauge in (self._lag_s, self._lag_messages, self._generations):
            gauge.remove(shard)

    def wrote(self, shard: str, rows: int) -> None:
        self._rows.labels(shard).inc(rows)

    def refused(self, shard: str, reason: str) -> None:
        self._refused.labels(shard, reason).inc()

    def failed(self, shard: str) -> None:
        self._failures.labels(shard).inc()
