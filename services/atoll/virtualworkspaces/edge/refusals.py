"""How fast a user of a mailbox is refused, by whichever limit it meets.

Turns (`loop_time`) and rates (`allowance`) of a process make their refusals here, and the mailbox view gives both the
same ones. Invariant: over any time a user of a mailbox has REFUSALS in HOLD_S, as long as it waits for each.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.status import Details, TooManyRequests

#: A refusal costs what authentication does, some 0.2 ms, so a flood of them is slowed too: a connection gets one in so
#: many seconds, and all connections of a user so many. The more there are, the later each is answered, up to a limit.
HOLD_S, REFUSALS, LONGEST_HOLD_S = 1.0, 50, 30.0
#: Users whose use is kept; one that is forgotten is answered as at first.
_MAX_USERS = 20_000


class Refusals:
    """Those of all users of all mailboxes of one process. `clock` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        #: When the last one is answered, at REFUSALS in HOLD_S, by mailbox and user.
        self._free_at: LruCache[tuple[str, str], float] = LruCache(_MAX_USERS)

    def refusal(self, user: tuple[str, str], text: str, wait_s: float) -> TooManyRequests:
        """Return the refusal of what a user of a mailbox may ask again after so many seconds, which is held back."""
        now = self._clock()
        free_at = self._free_at.get(user) or -math.inf
        free_at = min(max(now, free_at) + HOLD_S / REFUSALS, now + LONGEST_HOLD_S)
        self._free_at.put(user, free_at)
        found = TooManyRequests(text, Details(retry_after_s=max(1, math.ceil(wait_s))))
        found.hold_s = max(HOLD_S, free_at - now)
        return found
