"""Metrics of event subscriptions: how many there are, what was refused, and how far the slowest are behind.

Invariant: at most `MAX_SERIES` series of subscribers, under a hash of the subscription, which tells no name.
"""

from __future__ import annotations

import hashlib
import heapq
import time
from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from atoll.shard.subscriptions.delivery_rates import DeliveryRates
from atoll.shard.subscriptions.entry import Entry, Index

MAX_SERIES = 100
_STATES = ("Active", "Revoked", "Gone")


class SubscriptionMetrics(Collector):
    """Those of one keeper, made at each scrape. `refusals` counts by reason; the reasons are few."""

    def __init__(self, index: Index, rates: DeliveryRates, refusals: Counter[str], registry: CollectorRegistry) -> None:
        self._index, self._rates, self._refusals = index, rates, refusals
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics for a scrape."""
        counted: Counter[str] = Counter(entry.stored.state for entry in self._index)
        states = GaugeMetricFamily("atoll_event_subscriptions", "Event subscriptions by state.", labels=["state"])
        for state in _STATES:
            states.add_metric([state], counted[state])
        yield states
        now_s = time.time()
        paused = sum(entry.is_active and entry.paused_until_s > now_s for entry in self._index)
        yield GaugeMetricFamily(
            "atoll_event_subscriptions_paused", "Event subscriptions whose owner is ahead of the rate.", paused
        )
        yield CounterMetricFamily("atoll_event_deliveries", "Events delivered to subscribers.", self._rates.delivered)
        refusals = CounterMetricFamily(
            "atoll_event_subscription_refusals", "Refused resources and requests by reason.", labels=["reason"]
        )
        for reason, count in sorted(self._refusals.items()):
            refusals.add_metric([reason], count)
        yield refusals
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
