"""Reads all rows of a scope from one state, a page at a time.

Admission, catalogs, authorization, controllers and views use it. What is held at a time is bounded, not what is read: a
scope is a cluster's objects of one type, or few rows of all clusters. Invariant: `rows` is one state from the first
page to the last; a caller that releases it between pages continues behind the last key by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.storage.contract import Position, Record, Scope

PAGE = 500


class RecordSource(Protocol):
    """A source of records: a snapshot, or one overlaid with the mutations of a batch."""

    def scan(self, scope: Scope, after: Position | None = None, limit: int = PAGE) -> list[Record]: ...


class RevisionSource(Protocol):
    """A source of keys and revisions."""

    def revisions(
        self, scope: Scope, after: Position | None = None, limit: int = PAGE
    ) -> list[tuple[ObjectKey, int]]: ...


def position_after(key: ObjectKey) -> Position:
    """Return the position behind an object, from which a list continues."""
    return Position(key.cluster, key.namespace, key.name)


def each_record(rows: RecordSource, scope: Scope) -> Iterator[Record]:
    """Yield the records of a scope in key order."""
    after: Position | None = None
    while True:
        page = rows.scan(scope, after, PAGE)
        yield from page
        if len(page) < PAGE:
            return
        after = position_after(page[-1].key)


def each_revision(rows: RevisionSource, scope: Scope) -> Iterator[tuple[ObjectKey, int]]:
    """Yield keys and revisions of a scope's objects in key order; the objects are not read."""
    after: Position | None = None
    while True:
        page = rows.revisions(scope, after, PAGE)
        yield from page
        if len(page) < PAGE:
            return
        after = position_after(page[-1][0])
