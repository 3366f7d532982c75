"""Whether two processes contend for one consumer: each that opens it takes it from the other, with its messages.

A consumer has the name of its NATS user. `Reconnection` notes each time that another process took it. Of a process that
is replaced both run for a moment, so only what lasts is told. Invariant: it is told no longer than CALM_S after the
last time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

#: From when on it is no restart, and how long after the last time it has ended: who lost the consumer opens it again
#: five seconds later at most.
PATIENCE_S, CALM_S = 10.0, 15.0
ONE_USER_EACH = "give each process a NATS user of its own"


class Contention:
    """That of one consumer. `clock` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began_s = self._last_s = -math.inf

    def note(self) -> None:
        """Another process took the consumer now."""
        now = self._clock()
        if now - self._last_s > CALM_S:
            self._began_s = now
        self._last_s = now

    @property
    def lasts(self) -> bool:
        """Whether two processes that both stay use it."""
        return self._last_s - self._began_s >= PATIENCE_S and self._clock() - self._last_s <= CALM_S
