"""Exponential back-off: how long to wait after so many failures in a row.

Every loop that tries again uses one, and counts its own failures, which it also logs. Invariant: a delay is never above
`longest_s` times `most`, however many failures there were.
"""

from __future__ import annotations

import random

import msgspec

#: The delay doubles no more often than this; any cap is reached long before.
_MAX_DOUBLINGS = 30


class Backoff(msgspec.Struct, frozen=True):
    """Delays that double from `first_s` to `longest_s`, each times a random factor from `least` to `most`.

    The factor keeps clients that failed together from coming back together. Both at 1.0: no jitter.
    """

    first_s: float
    longest_s: float
    least: float = 0.5
    most: float = 1.0

    def delay_s(self, failures: int) -> float:
        """Seconds to wait: about `first_s` for 0 failures, twice as long for each one more."""
        delay_s = min(self.longest_s, self.first_s * 2.0 ** min(failures, _MAX_DOUBLINGS))
        return delay_s * random.uniform(self.least, self.most)
