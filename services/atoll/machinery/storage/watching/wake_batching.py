"""Many watchers of one commit, told together and not oftener than they can be served.

The hub hands over whom a commit concerns where that is a crowd. The first commit reaches a crowd at once; those that
follow while it is still being served wait a few milliseconds for one another and reach it as one, so that under a flood
of writes each watcher reads and sends many events at a time. Invariant: a watcher knows at once that there is something
to read, however late it is called to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from atoll.machinery.storage.watching.registrations import Watcher

#: Fewer than this are woken one by one as they come.
BATCHED_WATCHERS = 32
#: What one watcher's turn takes of the loop, TLS included: a crowd rests as long as it was at work.
_TURN_S = 20e-6
_LONGEST_S = 0.05


class WakeBatcher:
    """Whom to call next. Belongs to the event loop of its hub."""

    def __init__(self) -> None:
        self._held: set[Watcher] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._rests_until = 0.0

    def wake(self, watchers: Collection[Watcher], nothing_before: int) -> None:
        """Mark all of them now, and call them now or when the crowd has rested."""
        for watcher in watchers:
            watcher.mark(nothing_before)
        self._held.update(watchers)
        if self._timer is not None:
            return
        loop = asyncio.get_running_loop()
        if loop.time() >= self._rests_until:
            self._call(loop)
        else:
            self._timer = loop.call_at(self._rests_until, self._call, loop)

    def _call(self, loop: asyncio.AbstractEventLoop) -> None:
        held, self._held, self._timer = self._held, set(), None
        self._rests_until = loop.time() + min(len(held) * _TURN_S, _LONGEST_S)
        for watcher in held:
            watcher.nudge()
