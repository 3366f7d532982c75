"""A cursor made of several: changes of rows, and of the rows that decide which ones are shown, in the order of the log.

`cursor` and virtual workspaces derive from it. Changes are merged by revision (each has its own), and none is returned
before every cursor has read that far. Invariant: the returned changes lead to the rows shown at `position`; what one
change causes is all at its revision, and continues with the next `read` where the limit cuts it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from atoll.machinery.apiserver.filtered_rows.row_filter import Log, key_of, values_at
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.storage.contract import Change, LogCursor, Scope

READ_LIMIT = 500
_ROWS = -1


class Feed:
    """One cursor and its changes not yet returned. `source` is its number, _ROWS for rows that are shown."""

    def __init__(self, cursor: LogCursor, scope: Scope, source: int = _ROWS) -> None:
        self.cursor, self.scope, self.source = cursor, scope, source
        self.read: list[Change] = []

    def fill(self) -> None:
        """Read what there is, unless enough is read already."""
        if len(self.read) < READ_LIMIT:
            self.read.extend(self.cursor.read(READ_LIMIT))

    def catch_up(self) -> None:
        """Read to the end. A cursor may advance past changes of others without returning any."""
        before = -1
        while self.cursor.position > before:
            before = self.cursor.position
            self.read.extend(self.cursor.read(READ_LIMIT))


class FeedCursor:
    """`storage.contract.Cursor`. Raises RevisionCompacted where a cursor of the store would."""

    def __init__(self, store: Log, revision: int) -> None:
        self._store, self.position = store, revision
        self._feeds: list[Feed] = []
        #: What the last change causes, as far as it was not returned yet.
        self._rest: Iterator[Change] = iter(())
        self._waiter: asyncio.Future[None] | None = None

    def _row(self, change: Change) -> Iterator[Change]:
        """Yield a change of a row as it is shown."""
        raise NotImplementedError

    def _rechosen(self, source: int, change: Change) -> Iterator[Change]:
        """Yield the rows that a change of a source hides and shows. The position is that of the change."""
        raise NotImplementedError

    def _open(self, scope: Scope, source: int = _ROWS) -> Feed:
        """Follow a scope from the position on."""
        feed = Feed(self._store.cursor(scope, self.position), scope, source)
        self._feeds.append(feed)
        return feed

    def _values(self, feed: Feed) -> Iterator[tuple[ObjectKey, bytes]]:
        """Yield the rows of a feed at the position: the current ones with every later change undone."""
        feed.catch_up()
        # The oldest change of a row counts.
        undone = {change.key: change.before for change in reversed(feed.read)}
        for value in values_at(self._store, feed.scope, max(feed.cursor.position, self.position)):
            key = key_of(feed.scope, value)
            found = undone.pop(key) if key in undone else value
            if found is not None:
                yield key, found
        yield from ((key, value) for key, value in undone.items() if value is not None)

    def _follow_rows(self, scopes: Iterable[Scope]) -> None:
        """Follow rows of these scopes from the position on, and no others."""
        wanted, kept = set(scopes), list[Feed]()
        for feed in self._feeds:
            if feed.source == _ROWS and feed.scope not in wanted:
                feed.cursor.close()
            else:
                kept.append(feed)
                wanted.discard(feed.scope)
        self._feeds = kept
        for scope in sorted(wanted, key=lambda each: (each.type, each.cluster, each.namespace)):
            self._open(scope)

    # --- reading

    def read(self, limit: int = READ_LIMIT) -> list[Change]:
        """Return the next changes."""
        found = list(islice(self._rest, limit))
        while len(found) < limit:
            for feed in self._feeds:
                feed.fill()
            bound = min(feed.cursor.position for feed in self._feeds)
            if not self._take(bound, limit, found):
                self.position = max(self.position, bound)
                break
        return found

    def _take(self, bound: int, limit: int, found: list[Change]) -> bool:
        """Add changes up to a revision, or until a source's change needs other cursors; return False if there are
        none."""
        taken, feeds = 0, self._feeds
        while len(found) < limit and feeds is self._feeds:
            due = [feed for feed in feeds if feed.read and feed.read[0].revision <= bound]
            if not due:
                break
            feed = min(due, key=lambda feed: feed.read[0].revision)
            change = feed.read.pop(0)
            self.position, taken = change.revision, taken + 1
            self._rest = self._row(change) if feed.source == _ROWS else self._rechosen(feed.source, change)
            found.extend(islice(self._rest, limit - len(found)))
        return taken > 0

    # --- waiting

    async def wait(self, serve: Callable[[], bool] | None = None) -> None:
        """Return once any of the cursors may have a change, or on `nudge`."""
        waiter = self._waiter = asyncio.get_running_loop().create_future()
        try:
            if all(feed.cursor.attend(waiter) for feed in self._feeds):
                await waiter
            else:
                await asyncio.sleep(0)
        finally:
            self._waiter = None
            for feed in self._feeds:
                feed.cursor.leave()

    def nudge(self) -> None:
        """Make a pending `wait` return."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def close(self) -> None:
        """Close every cursor. Idempotent."""
        for feed in self._feeds:
            feed.cursor.close()
