"""Metrics of the bounds on the users of mailboxes: how long requests wait for a turn, and what is refused.

The composition root registers them. They name no user and no mailbox: the log has both of each request that is refused.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from atoll.virtualworkspaces.edge.allowance import Allowances
from atoll.virtualworkspaces.edge.loop_time import TurnStats


class MailboxMetrics(Collector):
    """Those of one process. `stats` and `allowances` are those of its mailbox view."""

    def __init__(self, stats: TurnStats, allowances: Allowances, registry: CollectorRegistry) -> None:
        self._stats, self._allowances = stats, allowances
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics for a scrape."""
        waits = HistogramMetricFamily(
            "atoll_mailbox_turn_wait_seconds", "Time that requests of syncers waited for their turn, of those that did."
        )
        waits.add_metric([], self._stats.waits.buckets(), self._stats.waits.sum_s)
        yield waits
        refusals = CounterMetricFamily(
            "atoll_mailbox_refusals",
            "Requests of syncers that were refused: time of the event loop, or a rate of Events and Leases.",
            labels=["limit"],
        )
        refusals.add_metric(["time"], self._stats.refused)
        refusals.add_metric(["rate"], self._allowances.refused)
        yield refusals
