"""A queue of keys: each key at most once, one worker per key at a time, exponential back-off after failures.

Fed by the manager from the log, or by the handler of a `client.Informer`; drained by `worker.work`. The queue holds
keys only: a reconcile reads the current state. Each unfinished key keeps the lowest revision at which it was added,
from which the manager derives where to read the log after a restart. Of one logical cluster a few keys may wait for its
webhooks at a time, and its others stay here meanwhile.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from atoll.machinery.control.turns import Turns
from atoll.machinery.process.backoff import Backoff

K = TypeVar("K", bound=Hashable)

BASE_DELAY_S, MAX_DELAY_S = 0.005, 300.0
#: Keys of one cluster that may wait for somebody outside at a time.
MAX_OUTSIDE = 16
#: When to reconcile a key again: after seconds, with a growing delay, or not before it is added.
Requeue = float | Backoff | None


def _cluster_of(key: Hashable) -> Hashable:
    """Return the cluster of a key: its attribute, or its first part."""
    found: Hashable = getattr(key, "cluster", None)
    return found if found is not None else key[0] if isinstance(key, tuple) and key else key


class WorkQueue(Generic[K]):
    """Keys to reconcile, in the order in which they were added; with `in_turn` of each logical cluster one in turn.

    A key may be added while it is in work: it is taken again afterwards. The number of keys is bounded by the number of
    objects; each costs one tuple. `clock` returns monotonic seconds. Belongs to one event loop.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, max_delay_s: float = MAX_DELAY_S, *, in_turn: bool = False
    ) -> None:
        self._clock, self._backoff = clock, Backoff(BASE_DELAY_S, max_delay_s, 0.75, 1.25)
        self._ready: deque[K] | Turns[K] = Turns(_cluster_of) if in_turn else deque()
        #: Keys ready or delayed, and the lowest revision at which each was added.
        self._since: dict[K, int] = {}
        self._working: dict[K, int] = {}
        #: A heap of (due, sequence, key); entries that differ from `_due` are void.
        self._delayed: list[tuple[float, int, K]] = []
        self._due: dict[K, float] = {}
        self._failures: dict[K, int] = {}
        #: How often in a row a key asked for its next reconcile with a back-off.
        self._rechecks: dict[K, int] = {}
        #: Keys in work that wait for somebody outside, and their number by cluster.
        self._outside: set[K] = set()
        self._outside_of: Counter[Hashable] = Counter()
        #: Ready keys of clusters that have as many as may wait outside.
        self._held: dict[Hashable, deque[K]] = {}
        self._sequence = 0
        #: Those who wait for a key, each for one: a key that is ready rouses one of them, not all.
        self._idle: deque[asyncio.Future[None]] = deque()
        #: Goes off when the first delayed key is due, while anyone waits.
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_due = math.inf

    def __len__(self) -> int:
        """Keys ready, delayed or in work; a key both ready and in work counts twice."""
        return len(self._since) + len(self._working)

    @property
    def depth(self) -> int:
        """Keys ready and not yet taken; those in work are not ready."""
        return len(self._ready) + sum(map(len, self._held.values()))

    def oldest(self) -> int | None:
        """Return the lowest revision of any unfinished key; None if there is none."""
        revisions = [*self._since.values(), *self._working.values()]
        return min(revisions) if revisions else None

    def add(self, key: K, revision: int = 0, delay_s: float = 0.0) -> None:
        """Add a key. The earlier of two due times and the lower of two revisions apply; its back-off starts again."""
        self._rechecks.pop(key, None)
        self._insert(key, revision, delay_s)

    def _insert(self, key: K, revision: int, delay_s: float) -> None:
        lowest = self._since.get(key)
        self._since[key] = revision if lowest is None else min(lowest, revision)
        if lowest is not None and key not in self._due:
            return
        if delay_s > 0:
            self._delay(key, self._clock() + delay_s)
        else:
            self._due.pop(key, None)
            self._make_ready(key)

    def _make_ready(self, key: K) -> None:
        """Have a key taken; one in work is ready when its reconcile is finished."""
        if key not in self._working:
            self._ready.append(key)
            self._rouse()

    def _rouse(self) -> None:
        """Let one of those who wait for a key look for it."""
        while self._idle:
            waiter = self._idle.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _delay(self, key: K, due: float) -> None:
        if key in self._due and self._due[key] <= due:
            return
        self._due[key] = due
        self._sequence += 1
        heapq.heappush(self._delayed, (due, self._sequence, key))
        self._set_alarm()

    async def take(self) -> tuple[K, int]:
        """Wait for the next key and return it with its revision. The caller must call `done` or `failed`."""
        while True:
            if self._delayed:
                self._promote()
            while self._ready:
                key = self._ready.popleft()
                if self._outside_of and self._is_held(key):
                    continue
                revision = self._since.pop(key)
                self._working[key] = revision
                return key, revision
            await self._wait()

    def waits_outside(self, key: K) -> None:
        """A key in work waits for somebody outside of the installation."""
        self._outside.add(key)
        self._outside_of[_cluster_of(key)] += 1

    def _is_held(self, key: K) -> bool:
        """Whether a ready key is put off until another one of its cluster is finished."""
        cluster = _cluster_of(key)
        if self._outside_of[cluster] < MAX_OUTSIDE:
            return False
        self._held.setdefault(cluster, deque()).append(key)
        return True

    def _finish(self, key: K) -> int:
        """Take a key out of work; return its revision. One held key of its cluster is ready again."""
        if self._outside_of or self._held:
            cluster = _cluster_of(key)
            if (held := self._held.get(cluster)) is not None:
                self._make_ready(held.popleft())
                if not held:
                    del self._held[cluster]
            if key in self._outside:
                self._outside.discard(key)
                self._outside_of[cluster] -= 1
                if not self._outside_of[cluster]:
                    del self._outside_of[cluster]
        revision = self._working.pop(key)
        if key in self._since and key not in self._due:
            # Added meanwhile.
            self._make_ready(key)
        return revision

    def _promote(self) -> None:
        """Make due keys ready; void entries are dropped when they reach the top of the heap."""
        now = self._clock()
        while self._delayed:
            due, _, key = self._delayed[0]
            valid = self._due.get(key) == due
            if valid and due > now:
                return
            heapq.heappop(self._delayed)
            if valid:
                del self._due[key]
                self._make_ready(key)

    async def _wait(self) -> None:
        """Return when a key became ready. Who is cancelled meanwhile leaves the key to another."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._idle.append(waiter)
        if self._delayed:
            self._set_alarm()
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter in self._idle:
                self._idle.remove(waiter)
            else:
                self._rouse()
            raise

    def _set_alarm(self) -> None:
        """Have the alarm go off when the first delayed key is due, if anyone waits."""
        if not self._delayed or not self._idle:
            return
        due = self._delayed[0][0]
        if self._alarm is not None:
            if self._alarm_due <= due:
                return
            self._alarm.cancel()
        self._alarm_due = due
        self._alarm = self._idle[0].get_loop().call_later(max(due - self._clock(), 0), self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self._promote()
        self._set_alarm()

    def done(self, key: K, requeue_after: Requeue = None) -> None:
        """Finish a key: reset its failures, and add it again after `requeue_after` if set.

        Seconds are exact. A Backoff doubles the delay each time in a row, until the key is added from outside. A key
        that is added again is unfinished, so it keeps its revision.
        """
        revision = self._finish(key)
        self._failures.pop(key, None)
        if isinstance(requeue_after, Backoff):
            count = 0 if key in self._since else self._rechecks.get(key, 0)
            self._rechecks[key] = count + 1
            self._insert(key, revision, requeue_after.delay_s(count))
        else:
            self._rechecks.pop(key, None)
            if requeue_after is not None:
                self._insert(key, revision, requeue_after)

    def failed(self, key: K) -> float:
        """Add a failed key again after an exponential delay, with jitter, and return the delay in seconds."""
        revision = self._finish(key)
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay_s = self._backoff.delay_s(failures)
        self._insert(key, revision, delay_s)
        return delay_s
