"""The rows of a store that carry an indexed label, read by its index.

`serving.watches.rows_of` makes it for calls that a virtual workspace restricts to such a label, so that a wildcard list
of a claimed kind reads what is claimed alone. Invariant: it leaves out only rows without the label; callers match
selectors all the same.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from atoll.machinery.storage.contract import EVERYTHING, Cursor, Interest, Page, Position, Scope, Snapshot, Store


class LabelledRows:
    """Implements `row_filter.Rows`."""

    def __init__(self, store: Store, label: tuple[str, str]) -> None:
        self._store, self._label = store, label

    @property
    def list_window_s(self) -> int:
        """Return the store's list window."""
        return self._store.list_window_s

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """Return a snapshot of the store."""
        return self._store.snapshot()

    def page(
        self, scope: Scope, *, at: int = 0, after: Position | None = None, limit: int = 0, size_bytes: int = 1 << 20
    ) -> Page:
        """Return a page of the store. Raises RevisionCompacted."""
        return self._store.page(scope, at=at, after=after, limit=limit, size_bytes=size_bytes, label=self._label)

    def cursor(self, scope: Scope, revision: int, interest: Interest = EVERYTHING) -> Cursor:
        """Return a cursor of the store. Raises RevisionCompacted."""
        return self._store.cursor(scope, revision, interest)
