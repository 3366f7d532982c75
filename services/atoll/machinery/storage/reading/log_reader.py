"""Reads of the log: changes with both images for watches, entries as stored for the publisher.

Cursors and `Store.tail` call it inside a transaction. The value that a revision wrote is in `objects` or the
before-image of the key's next entry, so nothing is stored twice. Invariant: entries come in order of revision, and only
above the compacted revision.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from atoll.machinery.meta.objects import splice
from atoll.machinery.storage.contract import Change, LogEntry, Operation, RevisionCompacted, Scope
from atoll.machinery.storage.encoding import keys
from atoll.machinery.storage.encoding.rows import Entry, Version, unpack_counter, unpack_entry, unpack_head
from atoll.machinery.storage.environment.type_table import NO_TYPE
from atoll.machinery.storage.reading.records import Records

if TYPE_CHECKING:
    from atoll.machinery.storage.environment.lmdb_types import Txn


class LogReader:
    """Reads the log of one environment."""

    def __init__(self, records: Records) -> None:
        self._records, self._environment = records, records.environment

    def require_retained(self, txn: Txn, revision: int) -> None:
        """Raise RevisionCompacted if entries above a revision were dropped, or it lies in a void."""
        self._environment.require_not_void(txn, revision)
        compacted = self._environment.compacted(txn)
        if revision < compacted:
            raise RevisionCompacted(revision, compacted)

    def change(self, txn: Txn, revision: int, entry: Entry) -> Change:
        """Return one entry with its plain images."""
        records, before = self._records, None
        if entry.before is not None and entry.before_version is not None:
            before = records.client_value(txn, entry.key, entry.before, entry.before_version, entry.previous)
        if entry.operation == Operation.DELETED:
            assert before is not None and entry.before_version is not None
            version = entry.before_version
            after = splice(before, version.hole, revision)
        else:
            stored, version = self._written(txn, entry.key, revision)
            after = records.client_value(txn, entry.key, stored, version, revision)
        return Change(
            revision=revision,
            operation=Operation(entry.operation),
            key=records.object_key(txn, entry.key, after),
            before=before,
            after=after,
            previous=entry.previous,
            previous_of_type=entry.previous_of_type,
            crc=version.crc,
            sealed=version.sealed,
        )

    def _written(self, txn: Txn, key: bytes, revision: int) -> tuple[bytes, Version]:
        record = self._records.value_written(txn, key, revision)
        if record is None:
            raise self._records.corrupt(txn, key, "the value of a log entry is missing")
        return record

    def log_entry(self, txn: Txn, revision: int, entry: Entry) -> LogEntry:
        """Return one entry as it is published; sealed bytes stay sealed."""
        if entry.operation == Operation.DELETED:
            assert entry.before is not None and entry.before_version is not None
            value, version = entry.before, entry.before_version
        else:
            value, version = self._written(txn, entry.key, revision)
        plain = self._records.plain(txn, entry.key, value, version) if keys.split(entry.key).hashed else b""
        return LogEntry(
            revision=revision,
            operation=Operation(entry.operation),
            key=self._records.object_key(txn, entry.key, plain),
            value=value,
            sealed=version.sealed,
            crc=version.crc,
            previous=entry.previous,
            previous_of_type=entry.previous_of_type,
            before=entry.before or b"",
        )

    def change_at(self, revision: int) -> Change | None:
        """`contract.Store.change`."""
        with self._environment.reading() as txn:
            entry = self._records.entry(txn, revision)
            return None if entry is None else self.change(txn, revision, entry)

    def tail(self, revision: int, limit: int) -> list[LogEntry]:
        """`contract.Store.tail`."""
        with self._environment.reading() as txn:
            self.require_retained(txn, revision)
            found: list[LogEntry] = []
            for at, raw in self.rows(txn, revision):
                if len(found) >= limit:
                    break
                found.append(self.log_entry(txn, at, unpack_entry(raw)))
            return found

    def rows(self, txn: Txn, revision: int) -> Iterator[tuple[int, bytes]]:
        """Yield packed entries above a revision, in order."""
        with txn.cursor(self._environment.log) as cursor:
            if not cursor.set_range(keys.revision_key(revision + 1)):
                return
            for key, value in cursor:
                yield keys.revision_of_key(key), value

    def chain(self, txn: Txn, scope: Scope, above: int, limit: int) -> list[int] | None:
        """Return the revisions above one that changed a cluster's objects of a type, in order.

        They are read along the links from the newest back; None if they are more than `limit`. The scope's namespace is
        ignored.
        """
        number = self._environment.type_table.number(txn, scope.type)
        if number == NO_TYPE:
            return []
        row = txn.get(keys.cluster_row_key(scope.cluster, number), db=self._environment.clusters)
        at = unpack_counter(row).last if row is not None else 0
        found: list[int] = []
        while at > above:
            if len(found) >= limit:
                return None
            found.append(at)
            raw = txn.get(keys.revision_key(at), db=self._environment.log)
            if raw is None:
                break
            at = unpack_head(raw).previous_of_type
        found.reverse()
        return found

    def versions_above(self, txn: Txn, prefix: bytes, above: int, limit: int) -> list[int] | None:
        """Return the revisions above one that changed a prefix, in order; None if it has more than `limit` rows."""
        found: list[int] = []
        rows = 0
        with txn.cursor(self._environment.versions) as cursor:
            on_row = cursor.set_range(prefix)
            while on_row:
                key = bytes(cursor.key())
                if not key.startswith(prefix):
                    break
                rows += 1
                if rows > limit:
                    return None
                revision = keys.revision_of_key(key)
                if revision > above:
                    found.append(revision)
                on_row = cursor.next()
        found.sort()
        return found
