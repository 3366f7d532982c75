"""Batched wake-ups for commits that concern many watchers.

The hub calls it for commits with BATCHED_WATCHERS watchers or more. The first commit wakes them at once. Commits that
follow while they still run are batched for a few milliseconds and wake them once, so that under many writes each
watcher sends many events at a time. Invariant: a watcher is marked at once as having something to read, however late it
is woken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from atoll.machinery.storage.watching.registrations import Watcher

#: Fewer watchers than this are woken at each commit.
BATCHED_WATCHERS = 32
#: Time of the loop that one woken watcher takes, TLS included; the next batch waits as long as the last one took.
_WATCHER_S = 20e-6
_LONGEST_PAUSE_S = 0.05


class WakeBatcher:
    """Watchers to wake next. Belongs to the event loop of its hub."""

    def __init__(self) -> None:
        self._batch: set[Watcher] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._paused_until = 0.0

    def wake(self, watchers: Collection[Watcher], nothing_before: int) -> None:
        """Mark all watchers now; wake them now, or after the pause of the last batch."""
        loop = asyncio.get_running_loop()
        if self._timer is None and loop.time() >= self._paused_until:
            self._pause(loop, len(watchers))
            for watcher in watchers:
                watcher.wake(nothing_before)
            return
        for watcher in watchers:
            watcher.mark(nothing_before)
        self._batch.update(watchers)
        if self._timer is None:
            self._timer = loop.call_at(self._paused_until, self._call, loop)

    def _call(self, loop: asyncio.AbstractEventLoop) -> None:
        batch, self._batch, self._timer = self._batch, set(), None
        self._pause(loop, len(batch))
        for watcher in batch:
            watcher.nudge()

    def _pause(self, loop: asyncio.AbstractEventLoop, watchers: int) -> None:
        self._paused_until = loop.time() + min(watchers * _WATCHER_S, _LONGEST_PAUSE_S)
