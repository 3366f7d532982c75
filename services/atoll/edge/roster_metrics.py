"""Metrics of a process that shares the work of the edge controllers: its roster, its keys, and writes that were fenced.

A process that works alone shows none of them. Labels are controllers and fixed reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from atoll.edge.membership import Membership
from atoll.edge.roster import WHOLE


class RosterMetrics(Collector):
    """Reads the membership. `keys` returns the number of keys that this process has of each controller."""

    def __init__(
        self, membership: Membership, keys: Callable[[], Mapping[str, int]], registry: CollectorRegistry
    ) -> None:
        self._membership, self._keys = membership, keys
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield what is served."""
        member = self._membership
        works = member.is_current
        yield GaugeMetricFamily("atoll_edge_roster_member", "Whether this process is a member and renews.", int(works))
        members = len(member.roster.members)
        yield GaugeMetricFamily("atoll_edge_roster_members", "Members of the roster as it was read last.", members)
        yield GaugeMetricFamily("atoll_edge_roster_epoch", "Epoch of that roster.", member.roster.epoch)
        keys = GaugeMetricFamily(
            "atoll_edge_roster_keys", "Keys that this process may write for.", labels=("controller",)
        )
        for controller, count in {**self._keys(), WHOLE: int(member.is_owner(WHOLE))}.items():
            keys.add_metric([controller], count if works else 0)
        yield keys
        fenced = CounterMetricFamily(
            "atoll_edge_roster_fenced_writes",
            "Writes that were not made: refused by a shard for a newer token, or not sent without a right to the key.",
            labels=("reason",),
        )
        for reason, count in member.fenced.items():
            fenced.add_metric([reason], count)
        yield fenced
