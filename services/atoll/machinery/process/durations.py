"""A histogram of durations as plain numbers, for metrics that each request counts in.

A histogram of the metrics library takes a lock and several calls for each observation.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

from prometheus_client.utils import floatToGoString

#: Upper bounds in seconds.
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Durations:
    """Counts of durations in seconds; `counts` has one for each bucket and one for what is above all."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts, self.sum_s = [0] * (len(BUCKETS) + 1), 0.0

    def add(self, duration_s: float) -> None:
        """Count one."""
        self.counts[bisect_left(BUCKETS, duration_s)] += 1
        self.sum_s += duration_s

    def buckets(self) -> list[tuple[str, float]]:
        """Return upper bounds and cumulative counts, as exposed."""
        bounds = [*map(floatToGoString, BUCKETS), "+Inf"]
        return [(bound, float(total)) for bound, total in zip(bounds, accumulate(self.counts), strict=True)]
