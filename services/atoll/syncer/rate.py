"""Requests a second that a syncer sends to its cluster, with a burst.

Invariant: over any time, no more than `burst` and `qps` times that time. Those who wait are served in order.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


class RateLimit:
    """`clock` returns monotonic seconds."""

    def __init__(self, qps: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._qps, self._burst, self._clock = qps, burst, clock
        #: When all that was taken is paid for.
        self._paid_at = clock()

    def delay_s(self) -> float:
        """Take one request; return how long it has to wait."""
        now = self._clock()
        self._paid_at = max(self._paid_at, now - self._burst / self._qps) + 1 / self._qps
        return max(0.0, self._paid_at - now)

    async def take(self) -> None:
        """Wait for one request."""
        if (delay_s := self.delay_s()) > 0:
            await asyncio.sleep(delay_s)
