"""Checks a store for consistency: every database follows from the objects and the log.

`atoll fsck` and the tests of the store call `fsck` on a closed directory, or beside a running writer on its last
commit. It reads in one transaction and changes nothing. Invariant checked: log chains are complete, versions, counters
and index rows follow from log and objects, and every checksum matches.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import lmdb
import msgspec
from google_crc32c import value as crc32c

from atoll.machinery.meta.objects import HOLE_SIZE
from atoll.machinery.storage.contract import CorruptRecord, Flag, Operation
from atoll.machinery.storage.encoding import keys, object_facts
from atoll.machinery.storage.encoding.rows import (
    Counter,
    Entry,
    Version,
    covered,
    unpack_counter,
    unpack_entry,
    unpack_gate,
    unpack_version,
)
from atoll.machinery.storage.environment.databases import Environment
from atoll.machinery.storage.environment.opening import open_for_reading
from atoll.machinery.storage.maintenance.derived import DerivedRows, last_revisions
from atoll.machinery.storage.maintenance.fsck_limits import LimitCheck
from atoll.machinery.storage.maintenance.fsck_replicas import ReplicaCheck
from atoll.machinery.storage.options import StoreOptions
from atoll.machinery.storage.reading.records import Records
from atoll.machinery.storage.sealing import Sealer

if TYPE_CHECKING:
    from atoll.machinery.storage.environment.lmdb_types import Database, Txn


class Problem(msgspec.Struct, frozen=True):
    """One inconsistency. `where` is a database; `key` the row's key as hex, never a value."""

    where: str
    key: str
    what: str


def fsck(options: StoreOptions) -> list[Problem]:
    """Return the problems of a store, in no particular order; empty if it is sound.

    Sealed objects are checked by their checksum, and unsealed if `options.key_file` is set.
    """
    environment = open_for_reading(options)
    try:
        with environment.reading() as txn:
            return _Check(environment, options, txn).run()
    finally:
        environment.close()


class _Check:
    """One pass over all databases in one transaction."""

    def __init__(self, environment: Environment, options: StoreOptions, txn: Txn) -> None:
        self._environment, self._options, self._txn = environment, options, txn
        sealer = Sealer(Path(options.key_file)) if options.key_file else None
        self._records = Records(environment, sealer, lambda *_event, **_facts: None, frozenset())
        self._problems: list[Problem] = []
        self._meta = environment.all_meta(txn)
        self._versions: dict[bytes, list[tuple[int, Version]]] = {}
        self._log: dict[bytes, list[tuple[int, int]]] = {}
        self._derived = DerivedRows()

    def run(self) -> list[Problem]:
        checks: dict[str, Callable[[], None]] = {
            "versions": self._read_versions,
            "log": self._check_log,
            "log and versions": self._check_versions,
            "objects": self._check_objects,
            "clusters": self._check_counters,
            "owners": lambda: self._check_rows("owners", self._environment.owners, self._derived.owners),
            "labels": lambda: self._check_rows("labels", self._environment.labels, self._derived.labels),
            "replicas": ReplicaCheck(
                self._environment, self._options.system_label_prefixes, self._txn, self._report
            ).run,
            "limits": LimitCheck(self._records, self._txn, self._report).run,
        }
        for name, check in checks.items():
            try:
                check()
            except (struct.error, ValueError, KeyError, lmdb.Error) as error:
                # A malformed row; the rest of its check is skipped.
                self._report(name, b"", f"unreadable row: {error!r}")
        return self._problems

    def _report(self, where: str, key: bytes, what: str) -> None:
        self._problems.append(Problem(where, key.hex(), what))

    def _rows(self, db: Database) -> Iterator[tuple[bytes, bytes]]:
        with self._txn.cursor(db) as cursor:
            yield from cursor

    def _read_versions(self) -> None:
        for row, value in self._rows(self._environment.versions):
            version = (keys.revision_of_key(row), unpack_version(value))
            self._versions.setdefault(row[:-8], []).append(version)

    # --- the log

    def _check_log(self) -> None:
        last_of_type: dict[tuple[str, int], int] = {}
        last, size_bytes = 0, 0
        for row, value in self._rows(self._environment.log):
            revision, entry = keys.revision_of_key(row), unpack_entry(value)
            last, size_bytes = revision, size_bytes + len(value)
            self._check_entry(revision, entry)
            parts = keys.split(entry.key)
            scope = (parts.cluster, parts.type_number)
            expected = last_of_type.get(scope)
            if expected is None and entry.previous_of_type > self._meta.compacted:
                self._report("log", row, "the entry before it of its type is missing")
            elif expected is not None and expected != entry.previous_of_type:
                self._report("log", row, "the chain of its type is broken")
            last_of_type[scope] = revision
            self._log.setdefault(entry.key, []).append((revision, entry.previous))
        if last and last != self._meta.last:
            self._report("meta", b"last", f"says {self._meta.last}, the log ends at {last}")
        if size_bytes != self._meta.log_bytes:
            self._report("meta", b"log_bytes", f"says {self._meta.log_bytes}, the log holds {size_bytes}")

    def _check_entry(self, revision: int, entry: Entry) -> None:
        if revision <= self._meta.compacted:
            self._report("log", entry.key, f"entry {revision} was compacted")
        if (entry.operation == Operation.ADDED) != (entry.before is None):
            self._report("log", entry.key, f"entry {revision} has the wrong operation")
        if (entry.previous == 0) != (entry.before is None):
            self._report("log", entry.key, f"entry {revision} lacks its image")
        if entry.before is not None and entry.before_version is not None:
            self._check_sum("log", entry.key, entry.before, entry.before_version)
        row = dict(self._versions.get(entry.key, ())).get(revision)
        if row is None:
            self._report("versions", entry.key, f"no row for entry {revision}")
        elif row.deleted != (entry.operation == Operation.DELETED):
            self._report("versions", entry.key, f"row {revision} and the log disagree on a delete")

    def _check_sum(self, where: str, key: bytes, stored: bytes, version: Version) -> None:
        if crc32c(covered(stored, version)) != version.crc:
            self._report(where, key, "checksum mismatch")

    def _check_versions(self) -> None:
        """Each row has its entry, unless it is the version that stood when compaction passed."""
        for key, rows in self._versions.items():
            entries = self._log.get(key, [])
            logged = {revision for revision, _ in entries}
            before = 0
            for position, (revision, previous) in enumerate(entries):
                if position and previous not in (0, before):
                    self._report("log", key, f"entry {revision} does not follow {before}")
                before = revision
            retained = {entries[0][1]} if entries else {rows[-1][0]}
            for revision, version in rows:
                if revision not in logged and (revision not in retained or version.deleted):
                    self._report("versions", key, f"row {revision} has no entry")

    # --- objects and what follows from them

    def _check_objects(self) -> None:
        seen: set[bytes] = set()
        for key, stored in self._rows(self._environment.objects):
            seen.add(key)
            rows = self._versions.get(key)
            if not rows or rows[-1][1].deleted:
                self._report("objects", key, "the object has no version")
                continue
            self._check_object(key, stored, *rows[-1])
        for key, rows in self._versions.items():
            if not rows[-1][1].deleted and key not in seen:
                self._report("versions", key, "the object is missing")

    def _check_object(self, key: bytes, stored: bytes, revision: int, version: Version) -> None:
        self._check_sum("objects", key, stored, version)
        self._derived.count(key, len(stored))
        if not version.sealed and stored[version.hole : version.hole + HOLE_SIZE] != b"%016d" % revision:
            self._report("objects", key, "its revision is not that of its version")
        if version.sealed and self._records.sealer is None:
            return
        try:
            plain = self._records.plain(self._txn, key, stored, version)
            facts = object_facts.facts(plain, self._options.system_label_prefixes)
        except (CorruptRecord, msgspec.DecodeError, KeyError):
            self._report("objects", key, "cannot be read")
            return
        self._derived.index(key, facts)
        derived = version.flags & ~(Flag.SEALED | Flag.EXPIRES)
        if derived != facts.flags:
            self._report("versions", key, "flags do not follow from the object")
        self._derived.gate(self._records.object_key(self._txn, key), plain, revision)

    def _check_counters(self) -> None:
        lasts = last_revisions(((key, rows[-1][0]) for key, rows in self._versions.items()), self._meta.compacted)
        derived = self._derived
        for row_key, value in self._rows(self._environment.clusters):
            if row_key.endswith(b"\0" * 5):
                gate = derived.gates.pop(row_key, None)
                if gate is None or gate.state != unpack_gate(value).state:
                    self._report("clusters", row_key, "the gate does not follow from the LogicalCluster")
                continue
            row, counted = unpack_counter(value), derived.counters.pop(row_key, Counter(0, 0, 0))
            if (row.count, row.size_bytes) != (counted.count, counted.size_bytes):
                self._report("clusters", row_key, "count or size is wrong")
            if row.last != lasts.pop(row_key, row.last):
                self._report("clusters", row_key, "last revision is wrong")
        for row_key in (*derived.counters, *derived.gates, *lasts):
            self._report("clusters", row_key, "row is missing")

    def _check_rows(self, name: str, db: Database, expected: set[bytes]) -> None:
        if self._records.sealer is None and self._environment.sealed_types(self._txn):
            return
        found = {row for row, _ in self._rows(db)}
        for row in found - expected:
            self._report(name, row, "row of no object")
        for row in expected - found:
            self._report(name, row, "row is missing")
