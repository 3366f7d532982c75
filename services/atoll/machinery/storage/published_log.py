"""The store as a publisher reads it: the log as stored, current objects as entries, marks.

`standalone` passes one to the stream's publisher, whose protocol `Log` it satisfies; neither package imports the other.
Sealed records stay sealed. Nothing here writes but marks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.storage.contract import LogEntry, Operation, Position, Scope, StoreIdentity
from atoll.machinery.storage.encoding import keys
from atoll.machinery.storage.lmdb_store import LmdbStore

if TYPE_CHECKING:
    from atoll.machinery.storage.environment.lmdb_types import Txn


class LogPosition(Protocol):
    """An entry of a log, reduced to its revision."""

    @property
    def revision(self) -> int: ...


class PublishedLog:
    """One shard's log, its current objects and its marks."""

    def __init__(self, store: LmdbStore) -> None:
        self._store = store
        self._records, self._environment = store._records, store._environment

    @property
    def identity(self) -> StoreIdentity:
        return self._store.identity

    def floor(self) -> int:
        """The highest revision that compaction dropped; 0 if the log is whole."""
        return self._store.compacted

    def last(self) -> int:
        """Return the last revision committed and published to the hub, 0 in an empty store."""
        return self._store.hub.last

    def tail(self, revision: int, limit: int) -> Sequence[LogEntry]:
        """Return entries above a revision, in order. Raise RevisionCompacted below the floor."""
        return self._store.tail(revision, limit)

    def holds(self, revision: int) -> bool:
        """Return whether an entry has this very revision. False for one that compaction dropped."""
        with self._environment.reading() as txn:
            return self._records.entry(txn, revision) is not None

    def backlog(self, revision: int, limit: int) -> int:
        """Return the number of entries above a revision, at most `limit`."""
        count = 0
        with self._environment.reading() as txn, txn.cursor(self._environment.log) as cursor:
            on_row = cursor.set_range(keys.revision_key(revision + 1))
            while on_row and count < limit:
                count += 1
                on_row = cursor.next()
        return count

    def before(self, entry: LogPosition) -> bytes | None:
        """Return the record that an entry replaced, as stored; None for a create or a compacted entry."""
        with self._environment.reading() as txn:
            found = self._records.entry(txn, entry.revision)
            return found.before if found is not None else None

    def next_commit(self) -> asyncio.Future[None]:
        """Return a future of the next commit, which the caller may complete or cancel before."""
        return self._store.hub.next_publish()

    def types(self) -> Sequence[ResourceType]:
        """Return every type ever stored."""
        with self._environment.reading() as txn:
            return list(self._environment.type_table.all(txn).values())

    def standing(self, type: ResourceType, after: ObjectKey | None, limit: int) -> Sequence[LogEntry]:
        """Return up to `limit` current objects of a type behind `after`, in order, as ADDED entries."""
        found: list[LogEntry] = []
        with self._environment.reading() as txn:
            number = self._environment.type_table.number(txn, type)
            prefix = keys.scope_prefix(number, Scope(type))
            start = prefix
            if after is not None:
                where = Position(after.cluster, after.namespace, after.name)
                start = keys.position_key(number, where) + b"\0"
            with txn.cursor(self._environment.objects) as cursor:
                on_row = cursor.set_range(start)
                while on_row and len(found) < limit and bytes(cursor.key()).startswith(prefix):
                    found.append(self._entry(txn, bytes(cursor.key()), bytes(cursor.value())))
                    on_row = cursor.next()
        return found

    def _entry(self, txn: Txn, key: bytes, value: bytes) -> LogEntry:
        standing = self._records.live_version(txn, key)
        if standing is None:
            raise self._records.corrupt(txn, key, "an object has no version")
        revision, version = standing
        plain = self._records.plain(txn, key, value, version) if keys.split(key).hashed else b""
        where = self._records.object_key(txn, key, plain)
        return LogEntry(revision, Operation.ADDED, where, value, version.sealed, version.crc, 0, 0)

    def get_mark(self, name: str) -> bytes | None:
        return self._store.get_mark(name)

    def set_mark(self, name: str, value: bytes) -> None:
        self._store.set_mark(name, value)

    def set_published(self, revision: int) -> None:
        self._store.set_published(revision)
