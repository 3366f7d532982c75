"""Metrics of event subscriptions: how many there are, and how far the slowest subscribers are behind.

Invariant: at most `MAX_SERIES` series of subscribers, under a hash of the subscription, which tells no name.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from atoll.shard.subscriptions.entry import Entry, Index

MAX_SERIES = 100
_STATES = ("Active", "Revoked", "Gone")


class SubscriptionMetrics(Collector):
    """Those of one keeper, made at each scrape."""

    def __init__(self, index: Index, registry: CollectorRegistry) -> None:
        self._index = index
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics for a scrape."""
        counted: Counter[str] = Counter(entry.stored.state for entry in self._index)
        states = GaugeMetricFamily("atoll_event_subscriptions", "Event subscriptions by state.", labels=["state"])
        for state in _STATES:
            states.add_metric([state], counted[state])
        yield states
        lags = [(entry.lag, entry) for entry in self._index if entry.is_active]
        total = GaugeMetricFamily("atoll_event_subscribers_lag_events", "Events not yet acknowledged.")
        total.add_metric([], sum(lag.events for lag, _ in lags))
        yield total
        events = GaugeMetricFamily(
            "atoll_event_subscription_lag_events", "Those of the slowest subscribers.", labels=["subscription"]
        )
        seconds = GaugeMetricFamily(
            "atoll_event_subscription_lag_seconds", "For how long there are such events.", labels=["subscription"]
        )
        for lag, entry in heapq.nlargest(MAX_SERIES, lags, key=lambda pair: (pair[0].seconds, pair[0].events)):
            if lag.events:
                events.add_metric([_hash(entry)], lag.events)
                seconds.add_metric([_hash(entry)], lag.seconds)
        yield events
        yield seconds


def _hash(entry: Entry) -> str:
    return hashlib.sha256("\n".join(entry.key).encode()).hexdigest()[:16]
