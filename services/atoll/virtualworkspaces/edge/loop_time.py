"""How much of the event loop's time one user of one mailbox takes, and when the next of its requests may begin.

The mailbox view takes a turn here for each request, and tells afterwards how long it held the loop, with its task and
the events of its watches. Requests of one user wait in the order of their arrival, one at a time; whoever is beside it
finds the loop free for the rest of the time. Invariant: behind what took t seconds the next begins after t / SHARE
seconds at the earliest; over any time a user takes RATE of it and a BURST_S, and what its last request took.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.missing_answer import MissingAnswer
from atoll.machinery.process.durations import Durations
from atoll.machinery.wire.exchange import HttpRequest
from atoll.virtualworkspaces.edge.refusals import Refusals

#: The part of the loop's time that a user has while it has not used up what it may take at once.
SHARE = 0.25
#: Seconds of the loop in a second, and at once.
RATE, BURST_S = 0.1, 2.0
#: What a write holds the loop for behind its answer and before: its commit, the log's stream, and who follows it.
WRITE_S = 0.0015
#: Requests of a user that wait, and how long the first of them may have to; beyond that they are refused.
MAX_WAITING, LONGEST_WAIT_S = 200, 10.0
#: Users whose use is kept; one that is forgotten has its burst again.
_MAX_USERS = 20_000


class TurnStats:
    """What requests of all users of a process waited for their turn, and how many were refused one."""

    def __init__(self) -> None:
        self.waits, self.refused = Durations(), 0


class Turns:
    """The turns of one user of one mailbox."""

    def __init__(self, owner: LoopTime, user: tuple[str, str]) -> None:
        self._clock, self._stats, self._refusals, self._user = owner.clock, owner.stats, owner.refusals, user
        self._one = asyncio.Lock()
        self._waiting = 0
        self._rests_until = -math.inf
        #: When all that was taken is paid for.
        self._paid_at = -math.inf
        self._next: HttpRequest | None = None

    def take(self, http: HttpRequest) -> None:
        """Return if a request may begin. Raises TurnPending, whose `fetch` waits for that, and TooManyRequests."""
        if self._next is http:
            self._next = None
            return
        wait_s = self.wait_s()
        if not self._waiting and wait_s <= 0:
            return
        if self._waiting >= MAX_WAITING or wait_s > LONGEST_WAIT_S:
            self._stats.refused += 1
            raise self._refusals.refusal(self._user, "the user asks too much of the mailbox", wait_s)
        raise TurnPending(self, http)

    def took(self, seconds: float) -> None:
        """Count time for which the loop was held."""
        now = self._clock()
        self._rests_until = max(self._rests_until, now) + seconds * (1 / SHARE - 1)
        self._paid_at = max(self._paid_at, now - BURST_S / RATE) + seconds / RATE

    def wait_s(self) -> float:
        """Return the seconds until the next request may begin."""
        return max(self._rests_until, self._paid_at) - self._clock()

    async def wait(self, http: HttpRequest) -> None:
        """Return when it is the turn of a request, which takes it at once; or when too many wait."""
        if self._waiting >= MAX_WAITING:
            return
        began_s = self._clock()
        self._waiting += 1
        try:
            async with self._one:
                # Events of its watches may hold the loop meanwhile.
                while (wait_s := self.wait_s()) > 0:  # noqa: ASYNC110  (nothing ends but time)
                    await asyncio.sleep(wait_s)
                self._next = http
                self._stats.waits.add(self._clock() - began_s)
        finally:
            self._waiting -= 1


class TurnPending(MissingAnswer):
    """A request has to wait for its turn."""

    def __init__(self, turns: Turns, http: HttpRequest) -> None:
        super().__init__("requests of the user wait")
        self._turns, self._http = turns, http

    async def fetch(self) -> None:
        """Return when it is its turn."""
        await self._turns.wait(self._http)


class LoopTime:
    """The turns of all users of all mailboxes of one process. `clock` returns monotonic seconds."""

    def __init__(self, refusals: Refusals, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock, self.refusals, self.stats = clock, refusals, TurnStats()
        self._kept: LruCache[tuple[str, str], Turns] = LruCache(_MAX_USERS)

    def of(self, cluster: str, user: str) -> Turns:
        """Return the turns of a user of a mailbox."""
        key = cluster, user
        found = self._kept.get(key)
        if found is None:
            found = Turns(self, key)
            self._kept.put(key, found)
        return found
