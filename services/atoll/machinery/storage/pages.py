"""Everything of a scope, read a page at a time from one state.

Whoever needs all rows of a scope reads them here: admission, catalogues, authorization, controllers and views. Bounded
is what is held at a time, not what is read: a scope is a cluster's objects of one type, or few rows of all clusters.
Invariant: `rows` stays one state from the first page to the last; who lets go of it between pages (and so sees what was
written meanwhile) goes on behind the last key by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.storage.contract import Position, Record, Scope

PAGE = 500


class RecordSource(Protocol):
    """Something with records: a snapshot, or one overlaid with what a batch holds."""

    def scan(self, scope: Scope, after: Position | None = None, limit: int = PAGE) -> list[Record]: ...


class RevisionSource(Protocol):
    """Something that says at which revisions objects stand."""

    def revisions(
        self, scope: Scope, after: Position | None = None, limit: int = PAGE
    ) -> list[tuple[ObjectKey, int]]: ...


def position_after(key: ObjectKey) -> Position:
    """Where a list goes on that ended with an object."""
    return Position(key.cluster, key.namespace, key.name)


def each_record(rows: RecordSource, scope: Scope) -> Iterator[Record]:
    """The records of a scope, in key order; none where it is empty."""
    after: Position | None = None
    while True:
        page = rows.scan(scope, after, PAGE)
        yield from page
        if len(page) < PAGE:
            return
        after = position_after(page[-1].key)


def each_revision(rows: RevisionSource, scope: Scope) -> Iterator[tuple[ObjectKey, int]]:
    """Keys and revisions of a scope's objects, in key order; the objects are not read."""
    after: Position | None = None
    while True:
        page = rows.revisions(scope, after, PAGE)
        yield from page
        if len(page) < PAGE:
            return
        after = position_after(page[-1][0])
