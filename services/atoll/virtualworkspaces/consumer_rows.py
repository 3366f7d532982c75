"""Rows of a provider as objects of a consumer: they carry the consumer's logical cluster.

`replication` reads through it for requests in one cluster. Invariant: nothing else of a row changes, and positions in a
list mean the same row under either cluster.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from msgspec.structs import replace

from atoll.machinery.apiserver.filtered_rows import RowSource
from atoll.machinery.apiserver.filtered_rows.row_filter import Reader
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import annotations_of, decode, encode_json
from atoll.machinery.meta.wellknown import CLUSTER
from atoll.machinery.storage.contract import (
    EVERYTHING,
    Change,
    Cursor,
    Interest,
    Page,
    Position,
    Record,
    Scope,
    Snapshot,
)


class ConsumerRows:
    """A RowSource over the rows of the cluster `provider`."""

    def __init__(self, rows: RowSource, provider: str, consumer: str) -> None:
        self._rows, self._provider, self._consumer = rows, provider, consumer

    @property
    def list_window_s(self) -> int:
        """Return the list window of the rows."""
        return self._rows.list_window_s

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """Return a snapshot of the store, for its revision."""
        return self._rows.snapshot()

    def get(self, view: Reader, key: ObjectKey) -> Record | None:
        """Return the row of a name."""
        record = self._rows.get(view, key)
        return replace(record, value=placed_in(record.value, self._consumer)) if record is not None else None

    def page(
        self, scope: Scope, *, at: int = 0, after: Position | None = None, limit: int = 0, size_bytes: int = 1 << 20
    ) -> Page:
        """Return a page. `after` may name the cluster that a row shows. Raises RevisionCompacted."""
        if after is not None and after.cluster == self._consumer:
            after = replace(after, cluster=self._provider)
        page = self._rows.page(scope, at=at, after=after, limit=limit, size_bytes=size_bytes)
        return replace(page, values=[placed_in(value, self._consumer) for value in page.values])

    def cursor(self, scope: Scope, revision: int, interest: Interest = EVERYTHING) -> Cursor:
        """Return a cursor. Raises RevisionCompacted."""
        return _ConsumerCursor(self._rows.cursor(scope, revision, interest), self._consumer)


class _ConsumerCursor:
    """`storage.contract.Cursor`."""

    def __init__(self, cursor: Cursor, consumer: str) -> None:
        self._cursor, self._consumer = cursor, consumer
        self.wait, self.nudge, self.close = cursor.wait, cursor.nudge, cursor.close

    @property
    def position(self) -> int:
        return self._cursor.position

    def read(self, limit: int = 500) -> list[Change]:
        return [self._placed(change) for change in self._cursor.read(limit)]

    def _placed(self, change: Change) -> Change:
        before = placed_in(change.before, self._consumer) if change.before is not None else None
        return replace(change, before=before, after=placed_in(change.after, self._consumer))


def placed_in(value: bytes, cluster: str) -> bytes:
    """Return an object with the annotation of another logical cluster."""
    obj = decode(value)
    obj["metadata"]["annotations"] = {**annotations_of(obj), CLUSTER: cluster}
    return encode_json(obj)
