"""Metrics of an audit log, read when they are scraped."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from atoll.machinery.apiserver.serving.audit import AuditLog


class AuditMetrics(Collector):
    """Those of one log."""

    def __init__(self, audit: AuditLog, registry: CollectorRegistry) -> None:
        self._audit = audit
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics for a scrape."""
        audit = self._audit
        yield GaugeMetricFamily("atoll_audit_events_waiting", "Events that are not written yet.", audit.waiting)
        text = "Events of reads that were left out, as too many waited."
        yield CounterMetricFamily("atoll_audit_events_dropped", text, audit.dropped)
        yield CounterMetricFamily("atoll_audit_failed_writes", "Writes that the file refused.", audit.failed_writes)
