"""Reads all rows of a scope a page at a time, from one state or from one snapshot for each page.

Admission, catalogs, authorization, controllers and views use it. What is held at a time is bounded, not what is read: a
scope is a cluster's objects of one type, or few rows of all clusters. Invariant: no transaction stays open between the
pages of `each_key_in_snapshots`, `each_page_in_snapshots`, `each_record_in_snapshots` and of a `read`
that opens its own; `rows` of the others is one state from the first page to the last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from typing import Protocol, TypeVar

from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.storage.contract import Position, Record, Scope, Snapshot

PAGE = 500
A = TypeVar("A")
T = TypeVar("T")


class RecordSource(Protocol):
    """A source of records: a snapshot, or one overlaid with the mutations of a batch."""

    def scan(self, scope: Scope, after: Position | None = None, limit: int = PAGE) -> list[Record]: ...


class RevisionSource(Protocol):
    """A source of keys and revisions."""

    def revisions(
        self, scope: Scope, after: Position | None = None, limit: int = PAGE
    ) -> list[tuple[ObjectKey, int]]: ...


class SnapshotSource(Protocol):
    """A store."""

    def snapshot(self) -> AbstractContextManager[Snapshot]: ...


def position_after(key: ObjectKey) -> Position:
    """Return the position behind an object, from which a list continues."""
    return Position(key.cluster, key.namespace, key.name)


def pages(read: Callable[[A | None], Sequence[T]], behind: Callable[[T], A], size: int = PAGE) -> Iterator[Sequence[T]]:
    """Yield pages up to the first that is short of `size` rows.

    `read` returns up to `size` rows after a place (None: from the start), `behind` the place behind a row.
    """
    after: A | None = None
    while True:
        page = read(after)
        yield page
        if len(page) < size:
            return
        after = behind(page[-1])


def each_record(rows: RecordSource, scope: Scope) -> Iterator[Record]:
    """Yield the records of a scope in key order; the first page is read at once, and is mostly all of them."""
    first = rows.scan(scope, None, PAGE)
    if len(first) < PAGE:
        return iter(first)
    others = pages(lambda after: rows.scan(scope, after or _behind_record(first[-1]), PAGE), _behind_record)
    return chain(first, chain.from_iterable(others))


def each_revision(rows: RevisionSource, scope: Scope) -> Iterator[tuple[ObjectKey, int]]:
    """Yield keys and revisions of a scope's objects in key order; the objects are not read."""
    return chain.from_iterable(pages(lambda after: rows.revisions(scope, after, PAGE), _behind_revision))


def each_page_in_snapshots(store: SnapshotSource, scope: Scope) -> Iterator[Sequence[Record]]:
    """Yield pages of the records of a scope in key order; only the last may be empty."""

    def read(after: Position | None) -> list[Record]:
        with store.snapshot() as snapshot:
            return snapshot.scan(scope, after, PAGE)

    return pages(read, _behind_record)


def each_record_in_snapshots(store: SnapshotSource, scope: Scope) -> Iterator[Record]:
    """Yield the records of a scope in key order."""
    return chain.from_iterable(each_page_in_snapshots(store, scope))


def each_key_in_snapshots(
    store: SnapshotSource, scope: Scope, rows: Callable[[Snapshot], RevisionSource] = lambda snapshot: snapshot
) -> Iterator[ObjectKey]:
    """Yield the keys of a scope in order; the objects are not read. `rows` of a snapshot: itself, replicas or both."""

    def read(after: Position | None) -> list[tuple[ObjectKey, int]]:
        with store.snapshot() as snapshot:
            return rows(snapshot).revisions(scope, after, PAGE)

    return (key for key, _ in chain.from_iterable(pages(read, _behind_revision)))


def _behind_record(record: Record) -> Position:
    return position_after(record.key)


def _behind_revision(row: tuple[ObjectKey, int]) -> Position:
    return position_after(row[0])
