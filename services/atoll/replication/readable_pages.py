"""Pages of records without those that are damaged.

All readers of replicas here use it: one damaged record must not stop the others. Invariant: a record is left out only
if the store raised `CorruptRecord` for it, and has raised its alarm.
"""

from __future__ import annotations

from typing import Protocol

from atoll.machinery.storage.contract import CorruptRecord, Position, Record, Scope
from atoll.machinery.storage.pages import position_after


class ReadPage(Protocol):
    """`scan` of a snapshot, or `rows_of` with its origin."""

    def __call__(self, scope: Scope, after: Position | None, limit: int, /) -> list[Record]: ...


def readable(read: ReadPage, scope: Scope, after: Position | None, limit: int) -> list[Record]:
    """Up to `limit` undamaged records after a position. Reads one by one only where a page is damaged."""
    try:
        return read(scope, after, limit)
    except CorruptRecord:
        found: list[Record] = []
    while len(found) < limit:
        before = after
        try:
            page = read(scope, after, 1)
            key = page[0].key if page else None
            found += page
        except CorruptRecord as error:
            key = error.key
        after = position_after(key) if key is not None else after
        if after == before:
            break
    return found
