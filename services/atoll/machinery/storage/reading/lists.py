"""Slices of a list, all at one revision, each in a fresh transaction.

`Store.page` calls it. While nothing in the scope changed after the revision, a slice is a plain scan of stored bytes,
about a microsecond an object; with an indexed label only objects that carry it are read. Otherwise the value of each
key is the before-image of its first log entry above the revision. Invariant: the slices of one list together are the
scope exactly as it was at their revision, in key order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice, takewhile
from typing import TYPE_CHECKING, NamedTuple

from atoll.machinery.storage.contract import Page, Position, RevisionCompacted, Scope
from atoll.machinery.storage.encoding import keys
from atoll.machinery.storage.encoding.rows import Counter, Version, unpack_counter, unpack_version
from atoll.machinery.storage.environment.type_table import NO_TYPE
from atoll.machinery.storage.reading.records import Records

if TYPE_CHECKING:
    from atoll.machinery.storage.environment.lmdb_types import Database, LmdbRows, Txn


#: Values fetched at once by a plain scan; those beyond the slice are fetched in vain.
_CHUNK_ROWS = 32
#: Rows counted behind a page for `remainingItemCount`; counting more would block the loop.
MAX_COUNTED = 10_000
_NO_LIMIT = 1 << 62
_NO_COUNTER = Counter(0, 0, 0)


class Bounds(NamedTuple):
    """Of one slice: the number of values, 0 without one, and the bytes after which none is added."""

    limit: int
    size_bytes: int


class _Slice:
    """Values collected so far, with their bounds."""

    def __init__(self, limit: int, size_bytes: int) -> None:
        self.values: list[bytes] = []
        self.last_key = b""
        self.more = False
        self.limit = limit or _NO_LIMIT
        self.room_bytes = size_bytes

    @property
    def full(self) -> bool:
        return len(self.values) >= self.limit or (self.room_bytes <= 0 and bool(self.values))

    def add(self, key: bytes, value: bytes) -> None:
        self.values.append(value)
        self.last_key = key
        self.room_bytes -= len(value)

    def take(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Add rows until full; set `more` if there was another."""
        for key, value in rows:
            if self.full:
                self.more = True
                return
            self.add(key, value)


class Lists:
    """Reads pages of one environment."""

    def __init__(self, records: Records, now_us: Callable[[], int], window_s: int) -> None:
        self._records, self._environment = records, records.environment
        self._now_us, self._window_us = now_us, window_s * 1_000_000

    def page(
        self, scope: Scope, at: int, after: Position | None, bounds: Bounds, label: tuple[str, str] | None = None
    ) -> Page:
        """`contract.Store.page`; `label` is indexed."""
        with self._environment.reading() as txn:
            last = self._environment.last(txn)
            revision = min(at, last) if at else last
            if at:
                self._require_retained(txn, at, last)
            number = self._environment.type_table.number(txn, scope.type)
            if number == NO_TYPE:
                return Page(revision, [], None, 0)
            counter = self._counter(txn, scope, number)
            found = _Slice(*bounds)
            start = keys.position_key(number, after) if after is not None else b""
            prefix = keys.scope_prefix(number, scope)
            changed = counter.last > revision
            if changed:
                found.take(self._past(txn, scope, prefix, start, revision))
            elif label is not None:
                found.take(self._labelled(txn, scope, prefix, start, label))
            elif scope.type in self._records.sealed_types or (scope.namespace and not scope.cluster):
                found.take(self._opened(txn, scope, prefix, start))
            else:
                self._plain(txn, prefix, start, found, counter)
            if not found.more:
                return Page(revision, found.values, None, 0)
            remaining = -1
            if label is not None:
                pass
            elif not (changed or scope.namespace or after is not None):
                remaining = counter.count - len(found.values)
            elif bounds.limit and not changed and (scope.cluster or not scope.namespace):
                remaining = self._count_behind(txn, found.last_key, prefix)
            key = self._records.object_key(txn, found.last_key, found.values[-1])
            return Page(revision, found.values, Position(key.cluster, key.namespace, key.name), remaining)

    def _count_behind(self, txn: Txn, last_key: bytes, prefix: bytes) -> int:
        """Return the number of current objects of a prefix behind a key, -1 for more than MAX_COUNTED."""
        with txn.cursor(self._environment.objects) as cursor:
            if not cursor.set_range(last_key):
                return 0
            behind = islice(cursor.iternext(values=False), 1, MAX_COUNTED + 2)
            count = sum(1 for _ in takewhile(lambda key: key.startswith(prefix), behind))
        return count if count <= MAX_COUNTED else -1

    def _counter(self, txn: Txn, scope: Scope, number: int) -> Counter:
        row = txn.get(keys.cluster_row_key(scope.cluster, number), db=self._environment.clusters)
        return unpack_counter(row) if row is not None else _NO_COUNTER

    def _require_retained(self, txn: Txn, at: int, last: int) -> None:
        """Raise RevisionCompacted if the first entry above a revision is older than the list window."""
        self._environment.require_not_void(txn, at)
        compacted = self._environment.compacted(txn)
        if at < compacted:
            raise RevisionCompacted(at, compacted)
        if at >= last:
            return
        horizon = self._now_us() - self._window_us
        with txn.cursor(self._environment.log) as cursor:
            if cursor.set_range(keys.revision_key(at + 1)):
                following = keys.revision_of_key(cursor.key())
                if following < horizon:
                    raise RevisionCompacted(at, horizon)

    def _plain(self, txn: Txn, prefix: bytes, start: bytes, found: _Slice, counter: Counter) -> None:
        """Fetch values without their keys, a chunk at a time; read only the last key of a chunk."""
        average = counter.size_bytes // counter.count + 1 if counter.count else 1
        with txn.cursor(self._environment.objects) as cursor:
            on_row = cursor.set_range(max(prefix, start))
            if on_row and cursor.key() == start:
                on_row = cursor.next()
            while on_row and not found.full:
                wanted = min(_CHUNK_ROWS, found.limit - len(found.values), found.room_bytes // average + 1)
                first = cursor.key()
                values = list(islice(cursor.iternext(keys=False), wanted))
                key = cursor.key()
                if len(values) < wanted or not key.startswith(prefix):
                    found.take(_rows_of(cursor, first, prefix))
                    return
                found.values.extend(values)
                found.last_key = key
                found.room_bytes -= sum(map(len, values))
                on_row = cursor.next()
            found.more = bool(on_row) and cursor.key().startswith(prefix)

    def _opened(self, txn: Txn, scope: Scope, prefix: bytes, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield current objects one by one: unseal sealed ones, leave out other namespaces of a wildcard."""
        with txn.cursor(self._environment.objects) as cursor:
            for key, value in _rows_of(cursor, max(prefix, start), prefix):
                if key != start and keys.in_scope(key, scope, prefix):
                    yield key, self._unsealed(txn, key, value)

    def _labelled(
        self, txn: Txn, scope: Scope, prefix: bytes, start: bytes, label: tuple[str, str]
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield the current objects of a scope that carry a label."""
        may_be_sealed, lead = scope.type in self._records.sealed_types, keys.label_prefix(*label)
        in_many, wanted, objects = bool(scope.namespace and not scope.cluster), lead + prefix, self._environment.objects
        with txn.cursor(self._environment.labels) as cursor:
            if not cursor.set_range(lead + max(prefix, start)):
                return
            for row in cursor.iternext(values=False):
                if not row.startswith(wanted):
                    return
                key = row[len(lead) :]
                if key == start or (in_many and not keys.in_scope(key, scope, prefix)):
                    continue
                value = txn.get(key, db=objects)
                if value is None:
                    raise self._records.corrupt(txn, key, "the object is missing, its label is not")
                yield key, self._unsealed(txn, key, value) if may_be_sealed else value

    def _unsealed(self, txn: Txn, key: bytes, value: bytes) -> bytes:
        standing = self._records.live_version(txn, key)
        if standing is None:
            raise self._records.corrupt(txn, key, "the object has no version")
        revision, version = standing
        return self._records.client_value(txn, key, value, version, revision) if version.sealed else value

    def _past(
        self, txn: Txn, scope: Scope, prefix: bytes, start: bytes, revision: int
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield the objects of a scope as they were at a revision."""
        for key, rows in _versions_by_key(txn, self._environment.versions, prefix, start):
            if keys.in_scope(key, scope, prefix):
                value = self._value_at(txn, key, rows, revision)
                if value is not None:
                    yield key, value

    def _value_at(self, txn: Txn, key: bytes, rows: list[tuple[int, Version]], revision: int) -> bytes | None:
        records = self._records
        following = next((written for written, _ in rows if written > revision), None)
        if following is not None:
            entry = records.entry(txn, following)
            if entry is None:
                raise records.corrupt(txn, key, "a version has no log entry")
            if entry.before is None or entry.before_version is None:
                return None
            return records.client_value(txn, key, entry.before, entry.before_version, entry.previous)
        written, version = rows[-1]
        if version.deleted:
            return None
        value = txn.get(key, db=self._environment.objects)
        if value is None:
            raise records.corrupt(txn, key, "the object is missing, its version is not")
        return records.client_value(txn, key, value, version, written)


def _rows_of(cursor: LmdbRows, start: bytes, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the rows of a prefix from `start` on."""
    if not cursor.set_range(start):
        return
    for key, value in cursor:
        if not key.startswith(prefix):
            return
        yield key, value


def _versions_by_key(
    txn: Txn, db: Database, prefix: bytes, start: bytes
) -> Iterator[tuple[bytes, list[tuple[int, Version]]]]:
    """Yield each key of a prefix behind `start` with its versions, oldest first."""
    with txn.cursor(db) as cursor:
        current = b""
        rows: list[tuple[int, Version]] = []
        for row, value in _rows_of(cursor, start + keys.BEHIND if start else prefix, prefix):
            key = row[:-8]
            if key != current and rows:
                yield current, rows
                rows = []
            current = key
            rows.append((keys.revision_of_key(row), unpack_version(value)))
        if rows:
            yield current, rows
