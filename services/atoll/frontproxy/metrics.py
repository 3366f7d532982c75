"""Metrics of the proxy. Labels are shards and paths of mappings, never a workspace or a user."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from atoll.machinery.wire.proxy.backend import Backends

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
#: Label of requests that the proxy answers itself.
PROXY = "proxy"
MAX_SERIES = 4096


class ProxyMetrics:
    """atoll_frontproxy_* metrics of a process."""

    def __init__(self, registry: CollectorRegistry, backends: Backends) -> None:
        self.registry = registry
        self._requests = Counter(
            "atoll_frontproxy_requests_total",
            "Requests answered; code 0: the client left before.",
            ("to", "code"),
            registry=registry,
        )
        self._durations = Histogram(
            "atoll_frontproxy_request_duration_seconds",
            "Time from a request's head to the end of its answer.",
            ("to",),
            buckets=_BUCKETS,
            registry=registry,
        )
        self.open = Gauge("atoll_frontproxy_requests_under_way", "Requests under way.", registry=registry)
        connections = Gauge("atoll_frontproxy_backend_connections", "Open connections to backends.", registry=registry)
        connections.set_function(lambda: sum(backend.connections for backend in backends.all()))
        down = Gauge("atoll_frontproxy_backends_down", "Backends that could not be reached.", registry=registry)
        down.set_function(lambda: sum(backend.is_down for backend in backends.all()))
        self._children: dict[tuple[str, int], tuple[Counter, Histogram]] = {}

    def count(self, to: str, code: int, began_s: float) -> None:
        """Count a request that began at `began_s` (monotonic)."""
        children = self._children.get((to, code))
        if children is None:
            if len(self._children) >= MAX_SERIES:
                to, code = "", 0
            children = self._requests.labels(to, str(code)), self._durations.labels(to)
            self._children[to, code] = children
        children[0].inc()
        children[1].observe(time.monotonic() - began_s)
