"""Rows that requests read again and again, kept from one transaction to the next: last revisions, gates, namespaces.

The writer reports each commit in the event loop; snapshots there read it in place of the file. Invariant: an entry is
read and kept only in the transaction that the last report made, and a report drops what its commit changed; so an entry
is what the file holds. Other threads, and processes that do not write, read the file.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from threading import get_ident
from typing import Any

from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.types import NAMESPACES
from atoll.machinery.storage.contract import Change, Record

#: Entries of each table; a full one starts afresh.
_MAX_ROWS, _MAX_RECORDS, _MAX_STAMPS = 4096, 256, 64
#: Records above this size are read from the file.
_MAX_RECORD_BYTES = 4096
#: Of no commit.
NONE = -1


class RecentRows:
    """The tables: rows of `clusters` by key, stamps by types, records of namespaces."""

    __slots__ = ("_rows_of_stamps", "records", "rows", "stamps", "transaction")

    def __init__(self) -> None:
        #: The transaction that they hold for, and the thread that uses them.
        self.transaction: tuple[int, int] = (NONE, NONE)
        self.rows: dict[bytes, Any] = {}
        #: By the identity of the types, which an entry keeps alive.
        self.stamps: dict[int, tuple[Sequence[ResourceType], Hashable]] = {}
        self.records: dict[ObjectKey, Record | None] = {}
        self._rows_of_stamps: set[bytes] = set()

    def follow(self, transaction: int, changes: Sequence[Change], rows: Collection[bytes]) -> None:
        """Go on with the transaction of a commit, which changed these rows of `clusters` and no others."""
        self.transaction = transaction, get_ident()
        for row in rows:
            self.rows.pop(row, None)
        if not self._rows_of_stamps.isdisjoint(rows):
            self._forget_stamps()
        for change in changes:
            if change.key.type == NAMESPACES:
                self.records.pop(change.key, None)

    def forget(self, transaction: int = NONE) -> None:
        """Drop everything, after a commit of which more changed or which may not have happened."""
        self.transaction = transaction, get_ident()
        self.rows.clear()
        self.records.clear()
        self._forget_stamps()

    def keep_row(self, key: bytes, row: Any) -> None:
        """Keep what a row says. Its caller is in the transaction of the last report."""
        if len(self.rows) >= _MAX_ROWS:
            self.rows.clear()
        self.rows[key] = row

    def keep_stamp(self, types: Sequence[ResourceType], stamp: Hashable, rows: Sequence[bytes]) -> None:
        """Keep a stamp, which was made of these rows."""
        if len(self.stamps) >= _MAX_STAMPS:
            self._forget_stamps()
        self.stamps[id(types)] = types, stamp
        self._rows_of_stamps.update(rows)

    def keep_record(self, key: ObjectKey, record: Record | None) -> None:
        """Keep a namespace, or that there is none."""
        if record is not None and len(record.value) > _MAX_RECORD_BYTES:
            return
        if len(self.records) >= _MAX_RECORDS:
            self.records.clear()
        self.records[key] = record

    def _forget_stamps(self) -> None:
        self.stamps.clear()
        self._rows_of_stamps.clear()
