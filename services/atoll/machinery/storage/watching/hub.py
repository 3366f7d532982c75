"""Wake-ups of watches after a commit, and the recent changes in memory that most watches read.

The writer (in a worker: `workers.worker_store`) calls `publish` in the event loop after each commit; cursors register
here and read the ring. A cursor that was not woken has nothing to read up to the last publish, so an idle watch costs
nothing. Invariant: a cursor is registered before it reads, so it misses no commit; the ring holds every change above
its floor.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Sequence

from atoll.machinery.storage.contract import EVERYTHING, Change, Interest, LogEntry, Operation, Scope
from atoll.machinery.storage.watching.registrations import Registrations, Watcher
from atoll.machinery.storage.watching.wake_batching import BATCHED_WATCHERS, WakeBatcher

#: Memory of a change beside its two images.
_CHANGE_OVERHEAD_BYTES = 600
#: Dropped changes are freed when they are this many, or this part of the ring's limit.
_TRIM_ROWS = 4096
_TRIM_PART = 16


class Ring:
    """The latest changes in order, bounded in bytes."""

    def __init__(self, floor: int, limit_bytes: int) -> None:
        #: Every change above this revision is held.
        self.floor = floor
        self.size_bytes = 0
        self.limit_bytes = limit_bytes
        self._changes: list[Change] = []
        self._revisions: list[int] = []
        self._head = 0
        self._dropped_bytes = 0

    def extend(self, changes: Sequence[Change]) -> None:
        """Append changes of one commit and drop the oldest beyond the limit."""
        self._changes.extend(changes)
        self._revisions.extend(change.revision for change in changes)
        for change in changes:
            self.size_bytes += _size_bytes(change)
        while self.size_bytes > self.limit_bytes and self._head < len(self._changes):
            dropped = self._changes[self._head]
            size_bytes = _size_bytes(dropped)
            self.size_bytes -= size_bytes
            self._dropped_bytes += size_bytes
            self.floor = dropped.revision
            self._head += 1
        if self._is_to_trim():
            del self._changes[: self._head]
            del self._revisions[: self._head]
            self._head = self._dropped_bytes = 0

    def _is_to_trim(self) -> bool:
        if self._head == len(self._changes) or self._head >= _TRIM_ROWS:
            return True
        return self._dropped_bytes > self.limit_bytes // _TRIM_PART

    def above(self, revision: int, limit: int) -> list[Change]:
        """Return up to `limit` changes above a revision, which must not lie below the floor."""
        start = bisect_right(self._revisions, revision, lo=self._head)
        return self._changes[start : start + limit]

    def entries(self, revision: int, limit: int) -> list[LogEntry] | None:
        """Return the same as entries for the publisher; None if they must be read from the log.

        That is so below the floor, and if an entry is sealed: the ring holds plain values.
        """
        if revision < self.floor:
            return None
        changes = self.above(revision, limit)
        return None if any(change.sealed for change in changes) else [_entry(change) for change in changes]

    def __len__(self) -> int:
        return len(self._changes) - self._head


def _entry(change: Change) -> LogEntry:
    value = change.after
    if change.operation is Operation.DELETED:
        assert change.before is not None
        value = change.before
    return LogEntry(
        revision=change.revision,
        operation=change.operation,
        key=change.key,
        value=value,
        sealed=False,
        crc=change.crc,
        previous=change.previous,
        previous_of_type=change.previous_of_type,
        before=change.before or b"",
    )


def _size_bytes(change: Change) -> int:
    return len(change.after) + len(change.before or b"") + _CHANGE_OVERHEAD_BYTES


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

    async def wait(self) -> None:
        """Return at the next `wake`."""
        future = asyncio.get_running_loop().create_future()
        self._futures.add(future)
        try:
            await future
        finally:
            self._futures.discard(future)


class Hub:
    """Registrations and the ring. Lives in one event loop."""

    def __init__(self, last: int, ring_bytes: int, applied: int = 0) -> None:
        #: The last revision published; cursors not woken since have read up to here.
        self.last = last
        #: The apply count of replicas and routes.
        self.applied = applied
        self.ring = Ring(last, ring_bytes)
        self.registrations = Registrations()
        self._wake_batcher = WakeBatcher()
        self._published, self._arrived = Waiters(), Waiters()

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
        self.ring.extend(changes)
        self.last = max(self.last, last)
        watchers = self.registrations.watchers_of(changes)
        if len(watchers) >= BATCHED_WATCHERS:
            self._wake_batcher.wake(watchers, before)
        else:
            for watcher in watchers:
                watcher.wake(before)
        self._published.wake()

    def skip(self, last: int) -> None:
        """Empty the ring up to a revision and wake every watcher; they read the log."""
        before, self.last = self.last, max(self.last, last)
        self.ring = Ring(self.last, self.ring.limit_bytes)
        for watcher in self.registrations:
            watcher.wake(before)
        self._published.wake()

    def publish_applied(self, applied: int) -> None:
        """Wake tasks that wait for changes of replicas and routes."""
        if applied > self.applied:
            self.applied = applied
            self._arrived.wake()

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
