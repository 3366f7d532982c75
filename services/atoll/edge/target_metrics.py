"""Metrics of edge clusters: how many are heard of, are silent, or were never heard of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from atoll.edge.heartbeats import HEALTHY
from atoll.machinery.meta.conditions import find, is_true
from atoll.machinery.meta.objects import Object, status_of

NEW, HEARD, SILENT = "new", "heard", "silent"


class TargetMetrics(Collector):
    """Reads the SyncTargets that a controller has seen."""

    def __init__(self, targets: Callable[[], Collection[Object]], registry: CollectorRegistry) -> None:
        self._targets = targets
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield what is served."""
        counted = Counter(map(_state, self._targets()))
        family = GaugeMetricFamily("atoll_edge_sync_targets", "SyncTargets, by state.", labels=("state",))
        for state in (NEW, HEARD, SILENT):
            family.add_metric([state], counted[state])
        yield family


def _state(target: Object) -> str:
    """What the heartbeats of a target say."""
    conditions = status_of(target).get("conditions") or ()
    if is_true(conditions, HEALTHY):
        return HEARD
    return SILENT if find(conditions, HEALTHY) else NEW
