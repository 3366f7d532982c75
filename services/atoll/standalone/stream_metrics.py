"""Metrics of the publisher of a shard's changes, read when they are scraped."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from atoll.machinery.stream.publisher.publisher import Publisher


class StreamMetrics(Collector):
    """Those of one publisher."""

    def __init__(self, publisher: Publisher, registry: CollectorRegistry) -> None:
        self._publisher = publisher
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics for a scrape."""
        lag, found = self._publisher.lag(), self._publisher.stats.values()
        yield GaugeMetricFamily("atoll_stream_connected", "Whether NATS takes the changes.", lag.connected)
        yield GaugeMetricFamily("atoll_stream_lag_events", "Log entries not yet in both streams.", lag.events)
        yield GaugeMetricFamily("atoll_stream_lag_seconds", "Age of the oldest of them.", lag.seconds)
        published = sum(each.published for each in found)
        yield CounterMetricFamily("atoll_stream_published_messages", "Messages published to the streams.", published)
        damaged = sum(each.damaged_messages for each in found)
        yield CounterMetricFamily("atoll_stream_damaged_messages", "Messages that streams have lost.", damaged)
        foreign = sum(each.foreign_messages for each in found)
        yield GaugeMetricFamily("atoll_stream_foreign_messages", "Messages in the streams that others wrote.", foreign)
