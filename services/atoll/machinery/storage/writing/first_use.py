"""The first sum of what many objects of a kind use of a quota, made in slices before the transaction of the quota.

As `first_counts` does with numbers: each slice has a transaction of its own. The log tells which objects were written
since they were read: the sum is without what each had then, by the image before its first write, and with what it has
in the end. Invariant: `FirstUse.at` is the use in the transaction that it is given; None where the log no longer tells.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from atoll.machinery.kinds.kubernetes.usage.charge import Amount, Charge, Scope, plus
from atoll.machinery.kinds.kubernetes.usage.evaluators import EVALUATORS
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.storage.encoding import keys
from atoll.machinery.storage.encoding.rows import unpack_entry, unpack_head
from atoll.machinery.storage.reading.records import Records
from atoll.machinery.storage.writing.sliced_reading import SlicedReading

if TYPE_CHECKING:
    from atoll.machinery.storage.environment.lmdb_types import Txn

#: Objects that one transaction reads, and entries of the log, of which few are about them.
SLICE_ROWS, LOG_ROWS = 200, 2000
Scopes = tuple[Scope, ...]


class Use:
    """A sum of what objects of a type use of quotas with the scopes."""

    def __init__(self, records: Records, type: ResourceType, scopes: Scopes) -> None:
        self._records, self._scopes = records, scopes
        self._evaluate = EVALUATORS[type.group, type.resource]
        self.amounts: dict[str, Amount] = {}

    def copy(self, other: Use) -> None:
        self.amounts = dict(other.amounts)

    def add_row(self, txn: Txn, raw: bytes, stored: bytes) -> None:
        """Add a stored object."""
        found = self._records.live_version(txn, raw)
        if found is not None:
            self._add(self._evaluate(self._records.plain(txn, raw, stored, found[1])), 1)

    def subtract_image(self, txn: Txn, raw: bytes, entry: bytes) -> None:
        """Subtract what an entry of the log replaced."""
        found = unpack_entry(entry)
        if found.before is not None and found.before_version is not None:
            self._add(self._evaluate(self._records.plain(txn, raw, found.before, found.before_version)), -1)

    def _add(self, charge: Charge, sign: int) -> None:
        if charge.is_in(self._scopes):
            for name, value in charge.amounts.items():
                self.amounts[name] = plus(self.amounts.get(name, 0), value * sign)


def use_of_all(records: Records, txn: Txn, prefix: bytes, type: ResourceType, scopes: Scopes) -> Mapping[str, Amount]:
    """Return the use of all objects below a prefix of keys."""
    use = Use(records, type, scopes)
    with txn.cursor(records.environment.objects) as cursor:
        on_row = cursor.set_range(prefix)
        while on_row and (raw := cursor.key()).startswith(prefix):
            use.add_row(txn, raw, cursor.value())
            on_row = cursor.next()
    return use.amounts


class FirstUse(SlicedReading):
    """The use of the objects of one type in a namespace or cluster, by the prefix of their keys."""

    def __init__(self, records: Records, prefix: bytes, type: ResourceType, scopes: Scopes) -> None:
        super().__init__(records.environment, prefix)
        self._use, self._whole = Use(records, type, scopes), Use(records, type, scopes)
        #: What was written since it was read, by the log up to `_at`; the use is without it.
        self._written: set[bytes] = set()

    def at(self, txn: Txn) -> Mapping[str, Amount] | None:
        """Return the use in a transaction that is not older than the sum."""
        if self._environment.compacted(txn) > self._at:
            return None
        self._read_log(txn, 0)
        self._whole.copy(self._use)
        for raw in self._written:
            stored = txn.get(raw, db=self._environment.objects)
            if stored is not None:
                self._whole.add_row(txn, raw, stored)
        return self._whole.amounts

    def _read(self) -> bool:
        after, last, left = self._ends[-1] if self._ends else b"", b"", SLICE_ROWS
        with self._environment.reading() as txn, txn.cursor(self._environment.objects) as cursor:
            self._revisions.append(self._environment.last(txn))
            on_row = cursor.set_range(max(self._prefix, after))
            while on_row and left and (raw := bytes(cursor.key())).startswith(self._prefix):
                if raw != after:
                    self._use.add_row(txn, raw, cursor.value())
                    last, left = raw, left - 1
                on_row = cursor.next()
        if not left:
            self._ends.append(last)
        return not left

    def _follow(self) -> bool:
        with self._environment.reading() as txn:
            return self._environment.compacted(txn) <= self._at and self._read_log(txn, LOG_ROWS)

    def _read_log(self, txn: Txn, limit: int) -> bool:
        """Read up to `limit` further entries (0: all); return whether there are more."""
        read = 0
        with txn.cursor(self._environment.log) as cursor:
            on_row = cursor.set_range(keys.revision_key(self._at + 1))
            while on_row and (not limit or read < limit):
                self._at, read = keys.revision_of_key(cursor.key()), read + 1
                raw = bytes(unpack_head(cursor.value()).key)
                if raw.startswith(self._prefix) and raw not in self._written and self._is_later(raw, self._at):
                    self._written.add(raw)
                    self._use.subtract_image(txn, raw, cursor.value())
                on_row = cursor.next()
        return on_row
