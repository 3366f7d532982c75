"""A cursor over filtered rows: changes of rows and of the filter, in the order of the log.

`rest.watch` follows it like any cursor. Changes of rows come from a cursor on each selected cluster, changes of the
filter from one on each source; they are merged by revision (each has its own), and none is returned before every cursor
has read that far. Invariant: the returned changes lead to the rows shown at `position`. A row that a new filter hides
is DELETED at the filter's revision; a row that it shows is ADDED with its current value, under its own revision.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec.structs import replace

from atoll.machinery.apiserver.filtered_rows.row_filter import Choose, RowFilter, Rows, key_of, values_at
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import with_revision
from atoll.machinery.storage.contract import Change, Cursor, Operation, Scope

READ_LIMIT = 500
_ROWS = -1


class _Feed:
    """One cursor and its changes not yet returned. `source` is its number, _ROWS for a selected cluster."""

    def __init__(self, cursor: Cursor, cluster: str, source: int = _ROWS) -> None:
        self.cursor, self.cluster, self.source = cursor, cluster, source
        self.read: list[Change] = []

    def fill(self) -> None:
        if len(self.read) < READ_LIMIT:
            self.read.extend(self.cursor.read(READ_LIMIT))

    def catch_up(self) -> None:
        """Read to the end. A cursor may advance past changes of others without returning any."""
        before = -1
        while self.cursor.position > before:
            before = self.cursor.position
            self.read.extend(self.cursor.read(READ_LIMIT))


class FilteredCursor:
    """`storage.contract.Cursor`. Raises Compacted where a cursor of the store would."""

    def __init__(self, store: Rows, scope: Scope, sources: Sequence[Scope], choose: Choose, revision: int) -> None:
        self._store, self._scope, self._choose = store, scope, choose
        self.position = revision
        self._feeds: list[_Feed] = []
        self._waiter: asyncio.Future[None] | None = None
        try:
            self._values = [self._opened(number, source) for number, source in enumerate(sources)]
            self._choice = self._chosen()
            self._follow(self._choice.clusters)
        except BaseException:
            self.close()
            raise

    def _opened(self, number: int, source: Scope) -> dict[ObjectKey, bytes]:
        """Return the rows of a source at the position: the current ones with every later change undone."""
        feed = _Feed(self._store.cursor(source, self.position), source.cluster, number)
        self._feeds.append(feed)
        feed.catch_up()
        later = max(feed.cursor.position, self.position)
        rows = {key_of(source, value): value for value in values_at(self._store, source, later)}
        for change in reversed(feed.read):
            if change.before is None:
                rows.pop(change.key, None)
            else:
                rows[change.key] = change.before
        return rows

    def _chosen(self) -> RowFilter:
        return self._choose([rows[key] for rows in self._values for key in sorted(rows)])

    def _follow(self, clusters: Iterable[str]) -> None:
        for cluster in clusters:
            cursor = self._store.cursor(replace(self._scope, cluster=cluster), self.position)
            self._feeds.append(_Feed(cursor, cluster))

    # --- reading

    def read(self, limit: int = READ_LIMIT) -> list[Change]:
        """Return the next changes; all changes of one new filter come together, even beyond `limit`."""
        found: list[Change] = []
        while len(found) < limit:
            for feed in self._feeds:
                feed.fill()
            bound = min(feed.cursor.position for feed in self._feeds)
            if not self._take(bound, limit, found):
                self.position = max(self.position, bound)
                break
        return found

    def _take(self, bound: int, limit: int, found: list[Change]) -> bool:
        """Add changes up to a revision, or until a new filter needs other cursors; return False if there are none."""
        taken, feeds = 0, self._feeds
        while len(found) < limit and feeds is self._feeds:
            due = [feed for feed in feeds if feed.read and feed.read[0].revision <= bound]
            if not due:
                break
            feed = min(due, key=lambda feed: feed.read[0].revision)
            change = feed.read.pop(0)
            self.position, taken = change.revision, taken + 1
            found.extend(self._row(change) if feed.source == _ROWS else self._rechosen(feed.source, change))
        return taken > 0

    def _row(self, change: Change) -> Iterator[Change]:
        cluster, shows = change.key.cluster, self._choice.shows
        before = change.before if change.before is not None and shows(cluster, change.before) else None
        if change.operation is not Operation.DELETED and shows(cluster, change.after):
            operation = Operation.ADDED if before is None else Operation.MODIFIED
            yield replace(change, operation=operation, before=before)
        elif before is not None:
            after = with_revision(before, change.revision)
            yield replace(change, operation=Operation.DELETED, before=before, after=after)

    def _rechosen(self, source: int, change: Change) -> Iterator[Change]:
        """Yield the rows that a change of a source hides and shows."""
        rows = self._values[source]
        if change.operation is Operation.DELETED:
            rows.pop(change.key, None)
        else:
            rows[change.key] = change.after
        old, new = self._choice, self._chosen()
        if old.mark == new.mark:
            return
        yield from self._difference(old, new, change.revision)
        self._choice = new
        self._refollow(new.clusters)

    def _difference(self, old: RowFilter, new: RowFilter, revision: int) -> Iterator[Change]:
        for cluster in sorted({*old.clusters, *new.clusters}):
            scope = replace(self._scope, cluster=cluster)
            for value in values_at(self._store, scope, revision):
                was, is_now = old.shows(cluster, value), new.shows(cluster, value)
                if was and not is_now:
                    gone = with_revision(value, revision)
                    yield Change(revision, Operation.DELETED, key_of(scope, value), value, gone)
                elif is_now and not was:
                    yield Change(revision, Operation.ADDED, key_of(scope, value), None, value)

    def _refollow(self, clusters: Iterable[str]) -> None:
        """Follow the currently selected clusters, from the position on, and no others."""
        kept: list[_Feed] = []
        for feed in self._feeds:
            if feed.source == _ROWS and feed.cluster not in clusters:
                feed.cursor.close()
            else:
                kept.append(feed)
        self._feeds = kept
        followed = {feed.cluster for feed in kept if feed.source == _ROWS}
        self._follow(cluster for cluster in clusters if cluster not in followed)

    # --- waiting

    async def wait(self, serve: Callable[[], bool] | None = None) -> None:
        """Return once any of the cursors may have a change, or on `nudge`."""
        self._waiter = asyncio.get_running_loop().create_future()
        waits = [asyncio.ensure_future(feed.cursor.wait()) for feed in self._feeds]
        try:
            await asyncio.wait([self._waiter, *waits], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._waiter = None
            for each in waits:
                each.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    def nudge(self) -> None:
        """Make a pending `wait` return."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def close(self) -> None:
        """Close every cursor. Idempotent."""
        for feed in self._feeds:
            feed.cursor.close()
