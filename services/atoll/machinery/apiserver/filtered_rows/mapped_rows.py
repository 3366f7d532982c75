"""Rows that are shown by their own content alone, as they are or changed.

Virtual workspaces set a MappedRows on a request. Lists read the store's pages and omit hidden rows; watches read its
log and send rows that become shown or hidden. Invariant: a list is the shown state at its revision, and a watch from
that revision has no gap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager

from msgspec.structs import replace

from atoll.machinery.apiserver.filtered_rows.row_filter import Reader, Rows
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import with_revision
from atoll.machinery.storage.contract import (
    EVERYTHING,
    Change,
    Cursor,
    Interest,
    Operation,
    Page,
    Position,
    Record,
    Scope,
    Snapshot,
)

READ_LIMIT = 500
#: Reads of hidden rows in one call, before it yields to other tasks.
MAX_ROUNDS = 10
#: Return the row of a type as it is shown; None: hidden. Raises nothing.
Show = Callable[[ResourceType, bytes], bytes | None]


def _stored(view: Reader, key: ObjectKey) -> Record | None:
    return view.get(key)


class MappedRows:
    """A RowSource of a store's rows as `show` shows them; `get` looks a row up by name."""

    def __init__(self, store: Rows, show: Show, get: Callable[[Reader, ObjectKey], Record | None] = _stored) -> None:
        self._store, self._show, self._get = store, show, get

    @property
    def list_window_s(self) -> int:
        """Return the store's list window."""
        return self._store.list_window_s

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """Return a snapshot of the store, for its revision."""
        return self._store.snapshot()

    def get(self, view: Reader, key: ObjectKey) -> Record | None:
        """Return the row of a name, if it is shown."""
        record = self._get(view, key)
        value = self._show(key.type, record.value) if record is not None else None
        return replace(record, value=value) if record is not None and value is not None else None

    def page(
        self, scope: Scope, *, at: int = 0, after: Position | None = None, limit: int = 0, size_bytes: int = 1 << 20
    ) -> Page:
        """Return a page of the store without hidden rows. Raises RevisionCompacted."""
        page = self._store.page(scope, at=at, after=after, limit=limit, size_bytes=size_bytes)
        shown = (self._show(scope.type, value) for value in page.values)
        return Page(page.revision, [value for value in shown if value is not None], page.after)

    def cursor(self, scope: Scope, revision: int, interest: Interest = EVERYTHING) -> Cursor:
        """Return a cursor over shown rows. Raises RevisionCompacted."""
        return _MappedCursor(self._store.cursor(scope, revision, interest), self._show)


class _MappedCursor:
    """`storage.contract.Cursor` over shown rows."""

    def __init__(self, cursor: Cursor, show: Show) -> None:
        self._cursor, self._show = cursor, show
        #: The last read ended before the end of the log.
        self._behind = False

    @property
    def position(self) -> int:
        return self._cursor.position

    def read(self, limit: int = READ_LIMIT) -> list[Change]:
        """Return the next changes.

        Fewer than `limit` do not mean the end of the log: after `MAX_ROUNDS` reads of hidden rows it returns early, and
        the next `wait` returns at once.
        """
        shown: list[Change] = []
        for _ in range(MAX_ROUNDS):
            changes = self._cursor.read(limit)
            shown.extend(change for each in changes if (change := self._mapped(each)) is not None)
            if len(changes) < limit or len(shown) >= limit:
                self._behind = False
                return shown
        self._behind = True
        return shown

    def _mapped(self, change: Change) -> Change | None:
        """Return the change as readers see it; None if it concerns hidden rows only."""
        type = change.key.type
        before = self._show(type, change.before) if change.before is not None else None
        after = self._show(type, change.after) if change.operation is not Operation.DELETED else None
        if after is not None:
            operation = Operation.ADDED if before is None else Operation.MODIFIED
            return replace(change, operation=operation, before=before, after=after)
        if before is None:
            return None
        return replace(change, operation=Operation.DELETED, before=before, after=with_revision(before, change.revision))

    async def wait(self, serve: Callable[[], bool] | None = None) -> None:
        """Wait as the store does; hidden rows wake it too."""
        if self._behind:
            await asyncio.sleep(0)
        else:
            await self._cursor.wait()

    def nudge(self) -> None:
        """Wake a pending `wait`."""
        self._cursor.nudge()

    def close(self) -> None:
        """Close the cursor; may be called twice."""
        self._cursor.close()
