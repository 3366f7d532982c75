"""The rows of a resource under every identity, as one list and one watch.

Wildcard requests for metadata without an identity read through it: objects of the clusters' own definitions, and those
of every export that serves the resource. Invariants: rows are in the order of cluster, namespace and name, which
continue tokens hold (only names too long for a custom object have another order in the store); a page is the state at
its revision, and a watch from there has no gap, also for identities that appear later.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import msgspec

from atoll.machinery.apiserver.filtered_rows.row_filter import Reader
from atoll.machinery.edge.denaturing import IDENTITY as DENATURED
from atoll.machinery.meta.names import CORE, ObjectKey, ResourceType
from atoll.machinery.meta.partial import ObjectName, Partial
from atoll.machinery.meta.wellknown import CLUSTER
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
    Store,
)

#: The identity of a kind whose rows are those of every identity.
EVERY_IDENTITY = "*"
#: Identities of the system's kinds, and of what only the views of the edge layer serve.
_OTHERS = (CORE, DENATURED)
#: Rows of one identity that are read at first, twice as many each time they are used up, and their bytes at most.
FIRST_ROWS, MOST_ROWS, CHUNK_BYTES = 8, 512, 64 * 1024
READ_LIMIT = 500
#: Log entries of one read of the log, and such reads in one call, before it yields to other tasks.
LOG_ENTRIES, MAX_ROUNDS = 64, 10


class _Annotations(msgspec.Struct, frozen=True, gc=False):
    cluster: str = msgspec.field(default="", name=CLUSTER)


class _Metadata(ObjectName, frozen=True, gc=False):
    annotations: _Annotations = _Annotations()


_decoder = msgspec.json.Decoder(Partial[_Metadata])


def position_of(value: bytes) -> Position:
    """Return the position of a row in a list of all clusters."""
    found = _decoder.decode(value).metadata
    return Position(found.annotations.cluster, found.namespace, found.name)


class MergedRows:
    """A RowSource of the rows of a resource under every identity. The identity of a given scope is ignored."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def list_window_s(self) -> int:
        """Return the store's list window."""
        return self._store.list_window_s

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """Return a snapshot of the store, for its revision."""
        return self._store.snapshot()

    def get(self, view: Reader, key: ObjectKey) -> Record | None:
        """Return the row of a name, under the first identity that has it."""
        with self._store.snapshot() as snapshot:
            types = _types(snapshot, key.type)
        found = (view.get(ObjectKey(type, key.cluster, key.namespace, key.name)) for type in types)
        return next((record for record in found if record is not None), None)

    def page(
        self, scope: Scope, *, at: int = 0, after: Position | None = None, limit: int = 0, size_bytes: int = 1 << 20
    ) -> Page:
        """Return a page. Rows of one position, which two identities may have, are not separated.

        Raises RevisionCompacted.
        """
        with self._store.snapshot() as snapshot:
            at, types = at or snapshot.revision, _types(snapshot, scope.type)
        feeds = (self._feed(Scope(type, scope.cluster, scope.namespace), at, after) for type in types)
        values: list[bytes] = []
        last, room_bytes = None, size_bytes
        for position, value in heapq.merge(*feeds, key=_by_position):
            if (room_bytes <= 0 or (limit and len(values) >= limit)) and position != last:
                return Page(at, values, last)
            values.append(value)
            last, room_bytes = position, room_bytes - len(value)
        return Page(at, values, None)

    def _feed(self, scope: Scope, at: int, after: Position | None) -> Iterator[tuple[Position, bytes]]:
        """Yield the rows of one identity behind a position, a few of them read at a time."""
        rows = FIRST_ROWS
        while True:
            page = self._store.page(scope, at=at, after=after, limit=rows, size_bytes=CHUNK_BYTES)
            for value in page.values:
                yield position_of(value), value
            after, rows = page.after, min(2 * rows, MOST_ROWS)
            if after is None:
                return

    def cursor(self, scope: Scope, revision: int, interest: Interest = EVERYTHING) -> Cursor:
        """Return a cursor. Its first read raises RevisionCompacted."""
        return _MergedCursor(self._store, scope, revision)


def _by_position(row: tuple[Position, bytes]) -> Position:
    return row[0]


def _types(snapshot: Snapshot, type: ResourceType) -> list[ResourceType]:
    """Return the types of a resource in all identities but _OTHERS."""
    found = snapshot.identities(type.group, type.resource)
    return [ResourceType(type.group, type.resource, identity) for identity in found if identity not in _OTHERS]


class _MergedCursor:
    """`storage.contract.Cursor` over the whole log: which identities there will be is not known before."""

    def __init__(self, store: Store, scope: Scope, revision: int) -> None:
        self._store, self._scope, self.position = store, scope, revision
        #: The last read ended before the end of the log.
        self._behind = True
        self._nudged = asyncio.Event()

    def read(self, limit: int = READ_LIMIT) -> list[Change]:
        """Return the next changes; fewer than `limit` do not mean the end of the log. Raises RevisionCompacted."""
        found: list[Change] = []
        for _ in range(MAX_ROUNDS):
            entries = self._store.tail(self.position, LOG_ENTRIES)
            for entry in entries:
                if self._concerns(entry.key):
                    found.append(self._change(entry.revision))
                self.position = entry.revision
                if len(found) >= limit:
                    return found
            if len(entries) < LOG_ENTRIES:
                self._behind = False
                return found
        self._behind = True
        return found

    def _concerns(self, key: ObjectKey) -> bool:
        scope, type = self._scope, key.type
        if (type.resource, type.group) != (scope.type.resource, scope.type.group) or type.identity in _OTHERS:
            return False
        return (not scope.cluster or key.cluster == scope.cluster) and scope.namespace in {"", key.namespace}

    def _change(self, revision: int) -> Change:
        change = self._store.change(revision)
        if change is None:
            raise RevisionCompacted(self.position, revision)
        return change

    async def wait(self, serve: Callable[[], bool] | None = None) -> None:
        """Wait for a commit of anything, or a nudge."""
        if self._behind:
            await asyncio.sleep(0)
            return
        waits = [
            asyncio.ensure_future(self._store.committed(self.position)),
            asyncio.ensure_future(self._nudged.wait()),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._nudged.clear()
            for each in waits:
                each.cancel()

    def nudge(self) -> None:
        """Wake a pending `wait`."""
        self._nudged.set()

    def close(self) -> None:
        """Hold nothing: there is nothing to close."""
