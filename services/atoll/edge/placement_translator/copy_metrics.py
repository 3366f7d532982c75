"""Metrics of copies in mailboxes, read when they are scraped. No object, workspace or mailbox is named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from atoll.edge.placement_translator.projection import Projection


class CopyMetrics(Collector):
    """Reads one projection."""

    def __init__(self, projection: Projection, registry: CollectorRegistry) -> None:
        self._projection = projection
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield what is served."""
        found = self._projection
        yield _counter("atoll_edge_copy_writes", "Writes into mailboxes.", "operation", found.copies.writes)
        yield _counter("atoll_edge_copy_errors", "Copies that a mailbox refused.", "reason", found.refused)
        yield GaugeMetricFamily("atoll_edge_copies_failing", "Copies that mailboxes refuse now.", float(found.failing))
        text = "Mailboxes that are not whole, as they refuse copies."
        yield GaugeMetricFamily("atoll_edge_mailboxes_incomplete", text, float(found.incomplete))
        text = "Copies about which the workspaces that send them do not agree."
        yield GaugeMetricFamily("atoll_edge_copies_in_conflict", text, float(found.copies.composition.conflicts.copies))


def _counter(name: str, text: str, label: str, counts: Mapping[str, int]) -> Metric:
    found = CounterMetricFamily(name, text, labels=(label,))
    for value, count in counts.items():
        found.add_metric((value,), count)
    return found
