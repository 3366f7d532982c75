"""Wake-ups of watches after a commit, and the recent changes in memory that most watches read.

The writer (in a worker: `workers.worker_store`) calls `publish` in the event loop after each commit; cursors register
here and read the ring. A cursor that was not woken has nothing to read up to the last publish, so an idle watch costs
nothing. Invariant: a cursor is registered before it reads, so it misses no commit; the ring holds every change above
its floor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from atoll.machinery.storage.contract import EVERYTHING, Change, Interest, Scope
from atoll.machinery.storage.watching.registrations import Registrations, Watcher
from atoll.machinery.storage.watching.ring import KEPT_BYTES, Ring
from atoll.machinery.storage.watching.wake_batching import BATCHED_WATCHERS, WakeBatcher

#: A change stays in the ring for once to twice this time.
RING_AGE_S = 60.0
#: Seconds between two steps in which old changes are dropped.
_EXPIRY_STEP_S = 0.02


class Waiters:
    """Futures of tasks that wait for a number to rise."""

    def __init__(self) -> None:
        self._futures: set[asyncio.Future[None]] = set()

    def wake(self) -> None:
        """Resolve all futures."""
        futures, self._futures = self._futures, set()
        for future in futures:
            if not future.done():
                future.set_result(None)

    def wait(self) -> asyncio.Future[None]:
        """Return a future of the next `wake`, which forgets it; so does its end before."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        return future


class Hub:
    """Registrations and the ring. Lives in one event loop."""

    def __init__(self, last: int, ring_bytes: int, applied: int = 0) -> None:
        #: The last revision published; cursors not woken since have read up to here.
        self.last = last
        #: The apply count of replicas and routes.
        self.applied = applied
        self.ring = Ring(last, ring_bytes)
        self.registrations = Registrations()
        #: What cursors have read of the ring since the last publish, each reading for all with the same scope, name,
        #: position and limit: the changes, the position behind them, and whether more may follow.
        self.readings: dict[tuple[Scope, str, int, int], tuple[Sequence[Change], int, bool]] = {}
        self._wake_batcher = WakeBatcher()
        self._published, self._arrived = Waiters(), Waiters()
        self._expiry: asyncio.TimerHandle | None = None
        #: Changes of the ring up to this revision are dropped at the next expiry.
        self._expiring = last

    @property
    def watchers(self) -> int:
        """Number of registrations."""
        return len(self.registrations)

    def register(self, scope: Scope, watcher: Watcher, interest: Interest = EVERYTHING) -> None:
        """Wake a watcher for changes of interest in a scope."""
        self.registrations.add(scope, interest, watcher)

    def unregister(self, scope: Scope, watcher: Watcher, interest: Interest = EVERYTHING) -> None:
        """Stop waking a watcher. Idempotent."""
        self.registrations.discard(scope, interest, watcher)

    def publish(self, changes: Sequence[Change], last: int) -> None:
        """Append the changes of a commit, in order, and wake each watcher that they concern once."""
        before = self.last
        self.readings.clear()
        self.ring.extend(changes)
        self.last = max(self.last, last)
        watchers = self.registrations.watchers_of(changes)
        if len(watchers) >= BATCHED_WATCHERS:
            self._wake_batcher.wake(watchers, before)
        else:
            for watcher in watchers:
                watcher.wake(before)
        self._published.wake()
        if self._expiry is None and self.ring.size_bytes > KEPT_BYTES:
            self._expire_in(RING_AGE_S)

    def _expire_in(self, seconds: float) -> None:
        self._expiry = asyncio.get_running_loop().call_later(seconds, self._expire)

    def _expire(self) -> None:
        """Drop the changes that were in the ring at the last expiry; readers of those read the log."""
        self._expiry = None
        if not self.ring.expire(self._expiring):
            self._expire_in(_EXPIRY_STEP_S)
            return
        self._expiring = self.last
        if self.ring.size_bytes > KEPT_BYTES:
            self._expire_in(RING_AGE_S)

    def close(self) -> None:
        """Stop the timer of the ring, which would keep it for minutes after the store was closed."""
        if self._expiry is not None:
            self._expiry.cancel()

    def skip(self, last: int) -> None:
        """Empty the ring up to a revision and wake every watcher; they read the log."""
        before, self.last = self.last, max(self.last, last)
        self.readings.clear()
        self.ring = Ring(self.last, self.ring.limit_bytes)
        for watcher in self.registrations:
            watcher.wake(before)
        self._published.wake()

    def publish_applied(self, applied: int) -> None:
        """Wake tasks that wait for changes of replicas and routes."""
        if applied > self.applied:
            self.applied = applied
            self._arrived.wake()

    def next_publish(self) -> asyncio.Future[None]:
        """Return a future of the next publish."""
        return self._published.wait()

    async def wait_above(self, revision: int) -> int:
        """Wait until the last published revision is above `revision`. Return it."""
        while self.last <= revision:
            await self._published.wait()
        return self.last

    async def wait_applied_above(self, count: int) -> int:
        """Wait until the apply count is above `count`. Return it."""
        while self.applied <= count:
            await self._arrived.wait()
        return self.applied
