"""Metrics of a server's connections, read when they are scraped. No label: clients are anybody."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from atoll.machinery.wire.server import Server


class ServerMetrics(Collector):
    """Those of one server."""

    def __init__(self, server: Server, registry: CollectorRegistry) -> None:
        self._server = server
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics for a scrape."""
        server, counts = self._server, self._server.counts
        yield GaugeMetricFamily("atoll_connections", "Open connections, with those in a handshake.", server.connections)
        text = "TLS handshakes that were begun."
        yield CounterMetricFamily("atoll_handshakes", text, counts.handshakes)
        yield CounterMetricFamily("atoll_handshakes_failed", "TLS handshakes that failed.", counts.failed_handshakes)
        text = "Clients that were cut, as they did not read what was sent to them."
        yield CounterMetricFamily("atoll_clients_cut", text, counts.cut_clients)
