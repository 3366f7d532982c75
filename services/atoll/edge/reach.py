"""For how long a process has been cut off from what its controllers watch: shards, or NATS.

A process that shares the work asks, and leaves it to others that reach all. Invariant: what was not reached yet counts
as cut off since the start.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

Clock = Callable[[], float]


class Reach:
    """`sources` return why something is not reached now, empty if it is."""

    def __init__(self, sources: Sequence[Callable[[], str]], clock: Clock = time.monotonic) -> None:
        self._sources, self._clock = sources, clock
        self._since_s: float | None = None
        self.reason = ""

    def cut_s(self) -> float:
        """Return the seconds since it was first asked while something is not reached; 0 if all is."""
        self.reason = next((reason for each in self._sources if (reason := each())), "")
        if not self.reason:
            self._since_s = None
            return 0.0
        if self._since_s is None:
            self._since_s = self._clock()
        # A moment is some time, too.
        return max(self._clock() - self._since_s, 1e-3)
