"""What another shard's ClusterCachedResource selects, read from this shard's rows of the copies.

`replication` reads through it once all copies are here. The rows have revisions of this shard and its log, so lists,
pages and watches are exact. Invariant: no revision from before all copies were here is answered but with 410: it may be
one of the provider's shard, from which the same objects were read until then.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from msgspec.structs import replace

from atoll.machinery.apiserver.filtered_rows.row_filter import Reader, Rows
from atoll.machinery.kcp.apis.copies import KEPT, CopySet, original
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.storage.contract import (
    EVERYTHING,
    Change,
    Cursor,
    Interest,
    Page,
    Position,
    Record,
    RevisionCompacted,
    Scope,
    Snapshot,
)


class CopiedRows:
    """A RowSource of a set of copies, as objects of the cluster `consumer`; whole since a revision."""

    def __init__(self, store: Rows, copies: CopySet, consumer: str, since: int) -> None:
        self._store, self._copies, self._consumer, self._since = store, copies, consumer, since
        self._scope = Scope(copies.type, KEPT, copies.cluster)

    @property
    def list_window_s(self) -> int:
        """Return the list window of the store."""
        return self._store.list_window_s

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """Return a snapshot of the store, for its revision."""
        return self._store.snapshot()

    def get(self, view: Reader, key: ObjectKey) -> Record | None:
        """Return the object of a name."""
        record = view.get(self._copies.kept_key(key.name))
        return replace(record, key=key, value=original(record.value, self._consumer)) if record is not None else None

    def page(
        self, scope: Scope, *, at: int = 0, after: Position | None = None, limit: int = 0, size_bytes: int = 1 << 20
    ) -> Page:
        """Return a page. Raises RevisionCompacted."""
        if at:
            self._check(at)
        if after is not None:
            after = Position(KEPT, self._copies.cluster, after.name)
        page = self._store.page(self._scope, at=at, after=after, limit=limit, size_bytes=size_bytes)
        behind = Position(self._consumer, "", page.after.name) if page.after is not None else None
        return replace(page, values=[original(value, self._consumer) for value in page.values], after=behind)

    def cursor(self, scope: Scope, revision: int, interest: Interest = EVERYTHING) -> Cursor:
        """Return a cursor. Raises RevisionCompacted."""
        self._check(revision)
        return _CopiedCursor(self._store.cursor(self._scope, revision), scope, self._consumer)

    def _check(self, revision: int) -> None:
        if revision < self._since:
            raise RevisionCompacted(revision, self._since)


class _CopiedCursor:
    """`storage.contract.Cursor`."""

    def __init__(self, cursor: Cursor, scope: Scope, consumer: str) -> None:
        self._cursor, self._scope, self._consumer = cursor, scope, consumer
        self.wait, self.nudge, self.close = cursor.wait, cursor.nudge, cursor.close

    @property
    def position(self) -> int:
        return self._cursor.position

    def read(self, limit: int = 500) -> list[Change]:
        return [self._converted(change) for change in self._cursor.read(limit)]

    def _converted(self, change: Change) -> Change:
        key = ObjectKey(self._scope.type, self._consumer, "", change.key.name)
        before = original(change.before, self._consumer) if change.before is not None else None
        return replace(change, key=key, before=before, after=original(change.after, self._consumer))
