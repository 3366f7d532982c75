"""Metrics of the proxy. Labels are shards and paths of mappings, never a workspace or a user."""

from __future__ import annotations

import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from atoll.machinery.process.durations import Durations
from atoll.machinery.wire.proxy.backend import Backends

#: Label of requests that the proxy answers itself.
PROXY = "proxy"
MAX_SERIES = 4096


class ProxyMetrics(Collector):
    """atoll_frontproxy_* metrics of a process. Plain numbers that a scrape collects: each request counts in them."""

    def __init__(self, registry: CollectorRegistry, backends: Backends) -> None:
        self.registry = registry
        #: Requests under way.
        self.open = 0
        self._requests: dict[tuple[str, int], int] = {}
        self._durations: dict[str, Durations] = {}
        connections = Gauge("atoll_frontproxy_backend_connections", "Open connections to backends.", registry=registry)
        connections.set_function(lambda: sum(backend.connections for backend in backends.all()))
        down = Gauge("atoll_frontproxy_backends_down", "Backends that could not be reached.", registry=registry)
        down.set_function(lambda: sum(backend.is_down for backend in backends.all()))
        registry.register(self)

    def count(self, to: str, code: int, began_s: float) -> None:
        """Count a request that began at `began_s` (monotonic). Past the limit of series, new ones have no labels."""
        counted = self._requests.get((to, code))
        if counted is None:
            if len(self._requests) >= MAX_SERIES:
                to, code = "", 0
            counted = self._requests.get((to, code), 0)
        self._requests[to, code] = counted + 1
        durations = self._durations.get(to)
        if durations is None:
            durations = self._durations[to] = Durations()
        durations.add(time.monotonic() - began_s)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics for a scrape."""
        text = "Requests answered; code 0: the client left before."
        requests = CounterMetricFamily("atoll_frontproxy_requests", text, labels=("to", "code"))
        for (to, code), count in tuple(self._requests.items()):
            requests.add_metric((to, str(code)), count)
        yield requests
        text = "Time from a request's head to the end of its answer."
        durations = HistogramMetricFamily("atoll_frontproxy_request_duration_seconds", text, labels=("to",))
        for to, found in tuple(self._durations.items()):
            durations.add_metric((to,), found.buckets(), found.sum_s)
        yield durations
        yield GaugeMetricFamily("atoll_frontproxy_requests_under_way", "Requests under way.", self.open)
