"""The rows of one shard: what `/shards/<name>/` shows in place of all that the store has.

`content` leaves a ShardFilter with requests that name a shard. Rows say by an annotation which shard they come from.
Lists read the store's pages and leave out what is not the shard's; watches read its log and tell what comes into the
part and what leaves it. Invariant: a list is the part at its revision, and a watch from there goes on without a gap.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager

import msgspec
from msgspec.structs import replace

from atoll.machinery.apiserver.filtered_rows import Rows
from atoll.machinery.apiserver.filtered_rows.row_filter import Reader
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import decode, encode_json
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

#: Which shard a row comes from, by kcp's name for it.
SHARD = "kcp.io/shard"
READ_LIMIT = 500
#: Rounds that one read goes through rows of other shards before others have their turn.
MAX_ROUNDS = 10


class _Annotations(msgspec.Struct):
    shard: str = msgspec.field(default="", name=SHARD)


class _Metadata(msgspec.Struct):
    annotations: _Annotations


class _Row(msgspec.Struct):
    metadata: _Metadata


_decoder = msgspec.json.Decoder(_Row)


def shard_of(value: bytes) -> str:
    """The shard that a row comes from."""
    return _decoder.decode(value).metadata.annotations.shard


class ShardFilter:
    """`Shown`: the rows of one shard."""

    def __init__(self, store: Rows, shard: str) -> None:
        self._store, self._shard = store, shard

    @property
    def list_window_s(self) -> int:
        """That of the store."""
        return self._store.list_window_s

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """One of the store, for its revision."""
        return self._store.snapshot()

    def get(self, view: Reader, key: ObjectKey) -> Record | None:
        """The row of a name, if it is this shard's."""
        record = view.get(key)
        return record if record is not None and shard_of(record.value) == self._shard else None

    def page(
        self, scope: Scope, *, at: int = 0, after: Position | None = None, limit: int = 0, size_bytes: int = 1 << 20
    ) -> Page:
        """As of a store, with fewer rows on it. Raises Compacted."""
        page = self._store.page(scope, at=at, after=after, limit=limit, size_bytes=size_bytes)
        values = [value for value in page.values if shard_of(value) == self._shard]
        return Page(page.revision, values, page.after)

    def cursor(self, scope: Scope, revision: int, interest: Interest = EVERYTHING) -> Cursor:
        """As of a store. Raises Compacted."""
        return _ShardFilterCursor(self._store.cursor(scope, revision, interest), self._shard)


class _ShardFilterCursor:
    """`storage.contract.Cursor` over the rows of one shard."""

    def __init__(self, cursor: Cursor, shard: str) -> None:
        self._cursor, self._shard = cursor, shard
        #: The last read ended before there was nothing more.
        self._behind = False

    @property
    def position(self) -> int:
        return self._cursor.position

    def read(self, limit: int = READ_LIMIT) -> list[Change]:
        """The next changes. Fewer than `limit` are not the end where many rounds concerned other shards alone: `wait`
        then returns at once."""
        mine: list[Change] = []
        for _ in range(MAX_ROUNDS):
            changes = self._cursor.read(limit)
            mine.extend(change for each in changes if (change := self._seen(each)) is not None)
            if len(changes) < limit or len(mine) >= limit:
                self._behind = False
                return mine
        self._behind = True
        return mine

    def _seen(self, change: Change) -> Change | None:
        """A change as it is to the part; None if it is none."""
        before = change.before if change.before is not None and self._has(change.before) else None
        if change.operation is not Operation.DELETED and self._has(change.after):
            operation = Operation.ADDED if before is None else Operation.MODIFIED
            return replace(change, operation=operation, before=before)
        if before is None:
            return None
        return replace(change, operation=Operation.DELETED, before=before, after=_at(before, change.revision))

    def _has(self, value: bytes) -> bool:
        return shard_of(value) == self._shard

    async def wait(self) -> None:
        """As of a store; also where other shards' rows changed."""
        if self._behind:
            await asyncio.sleep(0)
        else:
            await self._cursor.wait()

    def nudge(self) -> None:
        """Make a `wait` that is under way return."""
        self._cursor.nudge()

    def close(self) -> None:
        """Harmless twice."""
        self._cursor.close()


def _at(value: bytes, revision: int) -> bytes:
    """A row with another revision in it."""
    obj = decode(value)
    return encode_json({**obj, "metadata": {**obj["metadata"], "resourceVersion": str(revision)}})
