"""Where the log has nothing for the state stream, as whoever reads the log found it.

The changes writer reads every entry anyway. The state writer, whose stream needs few of them, is roused by the first
that it may need, and passes over what is quiet without reading it. Invariant: no entry of a run is of a type whose
objects may be in the state stream.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from atoll.machinery.meta.names import ResourceType
from atoll.machinery.stream.publisher.log_source import SourceEntry


class QuietEntries:
    """The last quiet runs of entries, and who waits for their end. `may_replicate` says which types are not quiet."""

    def __init__(self, may_replicate: Callable[[ResourceType], bool]) -> None:
        self._may_replicate = may_replicate
        #: The last run, which may go on, and the one before it; each from a revision to the one of its last entry.
        self._runs = deque([(0, 0)], maxlen=2)
        self._waiter: asyncio.Future[None] | None = None

    def note(self, revision: int, entries: Sequence[SourceEntry]) -> None:
        """Note the next entries above a revision, which compaction had not passed when they were read."""
        if not entries:
            return
        last, (after, until) = entries[-1].revision, self._runs[-1]
        if any(map(self._may_replicate, {entry.key.type for entry in entries})):
            self._runs.append((last, last))
            self._rouse()
        elif after <= revision <= until:
            self._runs[-1] = after, max(until, last)
        else:
            self._runs.append((revision, last))

    def end(self, revision: int) -> int:
        """The revision up to which nothing above a revision is for the state stream; itself if that is not noted."""
        return next((until for after, until in self._runs if after <= revision < until), revision)

    def next_entry(self) -> asyncio.Future[None]:
        """A future of the next entry noted that is not quiet, which the caller may complete or cancel before."""
        self._waiter = asyncio.get_running_loop().create_future()
        return self._waiter

    def _rouse(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
