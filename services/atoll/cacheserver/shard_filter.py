"""The rows of one shard, served under `/shards/<name>/`.

`content` sets a ShardFilter for requests that name a shard. An annotation of each row names its shard. Lists read the
store's pages and omit rows of other shards; watches read its log and send rows that enter or leave the filter.
Invariant: a list is the filtered state at its revision, and a watch from that revision has no gap.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager

import msgspec
from msgspec.structs import replace

from atoll.machinery.apiserver.filtered_rows import Rows
from atoll.machinery.apiserver.filtered_rows.row_filter import Reader
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import with_revision
from atoll.machinery.meta.partial import Partial
from atoll.machinery.meta.wellknown import ORIGIN_SHARD
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
#: Reads of other shards' rows in one call, before it yields to other tasks.
MAX_ROUNDS = 10


class _Annotations(msgspec.Struct):
    shard: str = msgspec.field(default="", name=ORIGIN_SHARD)


class _Metadata(msgspec.Struct):
    annotations: _Annotations


_decoder = msgspec.json.Decoder(Partial[_Metadata])


def shard_of(value: bytes) -> str:
    """Return the shard of a row."""
    return _decoder.decode(value).metadata.annotations.shard


class ShardFilter:
    """The rows of one shard, with the interface of `FilteredRows`."""

    def __init__(self, store: Rows, shard: str) -> None:
        self._store, self._shard = store, shard

    @property
    def list_window_s(self) -> int:
        """The list window of the store."""
        return self._store.list_window_s

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """Return a snapshot of the store, for its revision."""
        return self._store.snapshot()

    def get(self, view: Reader, key: ObjectKey) -> Record | None:
        """Return the row of a name, if it is of this shard."""
        record = view.get(key)
        return record if record is not None and shard_of(record.value) == self._shard else None

    def page(
        self, scope: Scope, *, at: int = 0, after: Position | None = None, limit: int = 0, size_bytes: int = 1 << 20
    ) -> Page:
        """Return a page of the store without rows of other shards. Raises Compacted."""
        page = self._store.page(scope, at=at, after=after, limit=limit, size_bytes=size_bytes)
        values = [value for value in page.values if shard_of(value) == self._shard]
        return Page(page.revision, values, page.after)

    def cursor(self, scope: Scope, revision: int, interest: Interest = EVERYTHING) -> Cursor:
        """Return a filtered cursor of the store. Raises Compacted."""
        return _ShardFilterCursor(self._store.cursor(scope, revision, interest), self._shard)


class _ShardFilterCursor:
    """`storage.contract.Cursor` over the rows of one shard."""

    def __init__(self, cursor: Cursor, shard: str) -> None:
        self._cursor, self._shard = cursor, shard
        #: The last read ended before the end of the log.
        self._behind = False

    @property
    def position(self) -> int:
        return self._cursor.position

    def read(self, limit: int = READ_LIMIT) -> list[Change]:
        """Return the next changes.

        Fewer than `limit` do not mean the end of the log: after `MAX_ROUNDS` reads of other shards' rows it returns
        early, and the next `wait` returns at once.
        """
        mine: list[Change] = []
        for _ in range(MAX_ROUNDS):
            changes = self._cursor.read(limit)
            mine.extend(change for each in changes if (change := self._filtered(each)) is not None)
            if len(changes) < limit or len(mine) >= limit:
                self._behind = False
                return mine
        self._behind = True
        return mine

    def _filtered(self, change: Change) -> Change | None:
        """Return the change as the filter sees it; None if it concerns other shards only."""
        before = change.before if change.before is not None and self._has(change.before) else None
        if change.operation is not Operation.DELETED and self._has(change.after):
            operation = Operation.ADDED if before is None else Operation.MODIFIED
            return replace(change, operation=operation, before=before)
        if before is None:
            return None
        return replace(change, operation=Operation.DELETED, before=before, after=with_revision(before, change.revision))

    def _has(self, value: bytes) -> bool:
        return shard_of(value) == self._shard

    async def wait(self) -> None:
        """Wait as the store does; rows of other shards wake it too."""
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
