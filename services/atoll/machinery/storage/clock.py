"""The hybrid clock behind resource versions: microseconds since 1970, strictly rising.

The writer asks for one revision a mutation; `HybridClock` gives max(last + 1, now). Time advances by a clock that never
steps (CLOCK_BOOTTIME where there is one, so that a suspended laptop is no step) and follows the wall clock as long as
the two agree within `MAX_STEP_S`. Invariant: revisions never fall, whatever the wall clock does, and a wrong wall clock
cannot push revisions into a future from which they never return.
"""

from __future__ import annotations

import time
from collections.abc import Callable

#: A wall clock that moves further than this against the steady one is refused until confirmed.
MAX_STEP_S = 300.0

Seconds = Callable[[], float]


def steady_s() -> float:
    """Seconds on a clock that does not step and goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Clock:
    """Wall time that does not believe in steps. Not thread safe for `confirm`; reads are."""

    def __init__(
        self, wall: Seconds = time.time, steady: Seconds = steady_s, alarm: Callable[[float], None] | None = None
    ) -> None:
        self._wall, self._steady = wall, steady
        self._alarm = alarm
        self._wall_base, self._steady_base = wall(), steady()
        #: The step refused, in seconds; 0.0 while the wall clock is believed.
        self.refused_step_s = 0.0

    def now_us(self) -> int:
        """Microseconds since 1970."""
        steady, wall = self._steady(), self._wall()
        expected = self._wall_base + (steady - self._steady_base)
        step = wall - expected
        if -MAX_STEP_S <= step <= MAX_STEP_S:
            self._wall_base, self._steady_base = wall, steady
            self.refused_step_s = 0.0
            return int(wall * 1_000_000)
        if not self.refused_step_s and self._alarm is not None:
            self._alarm(step)
        self.refused_step_s = step
        return int(expected * 1_000_000)

    def steady_s(self) -> float:
        """Seconds on the clock that does not step."""
        return self._steady()

    def confirm(self) -> None:
        """Accept the wall clock as it stands, whatever step that is."""
        self._wall_base, self._steady_base = self._wall(), self._steady()
        self.refused_step_s = 0.0


class HybridClock:
    """Gives revisions. Belongs to the writer alone."""

    def __init__(self, clock: Clock, last: int) -> None:
        self._clock = clock
        self.last = last
        #: How far time stands behind the last revision, in microseconds; above 0 revisions count by one.
        self.behind_us = 0

    def sync(self) -> None:
        """Look at the time once for a batch; revisions of the batch start at or above it."""
        now = self._clock.now_us()
        self.behind_us = max(0, self.last - now)
        self.last = max(self.last, now - 1)

    def next(self) -> int:
        """The next revision, above every one given before."""
        self.last += 1
        return self.last
