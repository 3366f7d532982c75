"""A queue of keys: each key at most once, one worker a key at a time, failures with exponential back-off.

Fed by the manager from the log, or by a `client.Informer`'s handler; drained by `worker.work`. Keys are all that goes
through it: what to do is read from state when the key's turn comes. Every unfinished key remembers the oldest revision
that asked for it, so that the manager knows from where the log must be read again after a crash.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from atoll.machinery.process.backoff import Backoff

K = TypeVar("K", bound=Hashable)

BASE_DELAY_S, MAX_DELAY_S = 0.005, 300.0


class WorkQueue(Generic[K]):
    """Keys waiting to be reconciled, in the order in which they came.

    A key may be added while it is in work: it is taken again afterwards. The number of keys is bounded by the objects
    that exist; each costs one tuple. `clock` gives steady seconds. Belongs to one event loop.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, max_delay_s: float = MAX_DELAY_S) -> None:
        self._clock, self._backoff = clock, Backoff(BASE_DELAY_S, max_delay_s, 0.75, 1.25)
        self._ready: deque[K] = deque()
        #: Keys ready or delayed, and the oldest revision each was asked for at.
        self._since: dict[K, int] = {}
        self._working: dict[K, int] = {}
        #: A heap of (due, sequence, key); entries that `_due` does not confirm are void.
        self._delayed: list[tuple[float, int, K]] = []
        self._due: dict[K, float] = {}
        self._failures: dict[K, int] = {}
        self._wake = asyncio.Event()
        self._sequence = 0

    def __len__(self) -> int:
        """Keys waiting, delayed or in work; one that waits while it is in work counts twice."""
        return len(self._since) + len(self._working)

    @property
    def depth(self) -> int:
        """Keys whose turn has come and that nobody has taken."""
        return len(self._ready)

    def oldest(self) -> int | None:
        """The lowest revision that any unfinished key was asked for at; None when all is done."""
        revisions = [*self._since.values(), *self._working.values()]
        return min(revisions) if revisions else None

    def add(self, key: K, revision: int = 0, delay_s: float = 0.0) -> None:
        """Ask for a key. Of two due times the earlier one holds, of two revisions the older one."""
        known = self._since.get(key)
        self._since[key] = revision if known is None else min(known, revision)
        if known is not None and key not in self._due:
            return
        if delay_s > 0:
            self._delay(key, self._clock() + delay_s)
        else:
            self._due.pop(key, None)
            self._ready.append(key)
        self._wake.set()

    def _delay(self, key: K, due: float) -> None:
        if key in self._due and self._due[key] <= due:
            return
        self._due[key] = due
        self._sequence += 1
        heapq.heappush(self._delayed, (due, self._sequence, key))

    async def take(self) -> tuple[K, int]:
        """The next key and its revision; waits for one. The taker calls `done` or `failed`, whatever happens."""
        while True:
            self._promote()
            for _ in range(len(self._ready)):
                key = self._ready.popleft()
                if key not in self._working:
                    revision = self._since.pop(key)
                    self._working[key] = revision
                    return key, revision
                # In work: it is taken again once that is done.
                self._ready.append(key)
            self._wake.clear()
            await self._sleep()

    def _promote(self) -> None:
        """Move keys that are due; void entries go as soon as they lie on top."""
        now = self._clock()
        while self._delayed:
            due, _, key = self._delayed[0]
            valid = self._due.get(key) == due
            if valid and due > now:
                return
            heapq.heappop(self._delayed)
            if valid:
                del self._due[key]
                self._ready.append(key)

    async def _sleep(self) -> None:
        timeout = max(self._delayed[0][0] - self._clock(), 0) if self._delayed else None
        try:
            async with asyncio.timeout(timeout):
                await self._wake.wait()
        except TimeoutError:
            return

    def done(self, key: K, again_s: float | None = None) -> None:
        """A key's turn is over: forget its failures, and look again after `again_s` seconds if that is given.

        A key that is to be looked at again is unfinished, so it keeps its revision.
        """
        revision = self._working.pop(key)
        self._failures.pop(key, None)
        if again_s is not None:
            self.add(key, revision, again_s)
        self._wake.set()

    def failed(self, key: K) -> float:
        """A key's turn failed: it comes back later, twice as late each time. Gives the delay in seconds."""
        revision = self._working.pop(key)
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay_s = self._backoff.delay_s(failures)
        self.add(key, revision, delay_s)
        self._wake.set()
        return delay_s
