"""The hybrid clock behind resource versions: microseconds since 1970, strictly rising.

The writer takes one revision a mutation from `HybridClock`: max(last + 1, now). `Clock` advances by a clock that never
steps (CLOCK_BOOTTIME if there is one, so that suspending a laptop is no step) and follows the wall clock while the two
agree within `MAX_STEP_S`. It refuses a larger step, with an alarm, until the wall clock returns; a restart takes the
wall clock as it is. Invariant: revisions never fall, and no step of the wall clock moves them while the process runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

#: A wall clock that differs more than this from the steady one is refused until it returns, or until a restart.
MAX_STEP_S = 300.0

Seconds = Callable[[], float]


#: Seconds on a clock that does not step and goes on while the machine sleeps.
steady_s: Seconds = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)


class Clock:
    """Wall time without steps. Any thread may read it."""

    def __init__(
        self, wall: Seconds = time.time, steady: Seconds = steady_s, alarm: Callable[[float], None] | None = None
    ) -> None:
        self._wall = wall
        #: Seconds on the clock that does not step.
        self.steady_s = steady
        self._alarm = alarm
        self._wall_base, self._steady_base = wall(), steady()
        #: The refused step in seconds, 0.0 while the wall clock is followed.
        self.refused_step_s = 0.0

    def now_us(self) -> int:
        """Microseconds since 1970."""
        steady, wall = self.steady_s(), self._wall()
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


class HybridClock:
    """Source of revisions. Belongs to the writer."""

    def __init__(self, clock: Clock, last: int) -> None:
        self._clock = clock
        self.last = last
        #: Microseconds by which time is behind the last revision; above 0 revisions count by one.
        self.behind_us = 0

    def sync(self) -> None:
        """Read the time once for a batch; revisions of the batch start at or above it."""
        now = self._clock.now_us()
        self.behind_us = max(0, self.last - now)
        self.last = max(self.last, now - 1)

    def next(self) -> int:
        """Return the next revision, above all before."""
        self.last += 1
        return self.last
