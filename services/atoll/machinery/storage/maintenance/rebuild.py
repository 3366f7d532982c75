"""Writes what follows from objects, versions and log anew: indexes, counters, gates, limits, sizes, expiry hints.

`rollback` and `repair` call it in the transaction that changes objects. Invariant: afterwards `fsck` finds nothing in
these databases. Where no retained version tells when a kind of a cluster was last changed, the last compacted revision
stands for it, so that a watch from before begins anew rather than miss a deletion.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from atoll.machinery.storage.contract import Flag
from atoll.machinery.storage.encoding import keys, object_facts
from atoll.machinery.storage.encoding.rows import Version, pack_counter, pack_gate, unpack_version
from atoll.machinery.storage.environment.databases import Environment
from atoll.machinery.storage.maintenance.derived import DerivedRows, last_revisions
from atoll.machinery.storage.maintenance.fsck_limits import LimitCheck
from atoll.machinery.storage.options import StoreOptions, lifetimes_us
from atoll.machinery.storage.reading.records import Records, log_alarm
from atoll.machinery.storage.sealing import Sealer
from atoll.machinery.storage.writing.commit_batch import NO_COUNTER

if TYPE_CHECKING:
    from atoll.machinery.storage.environment.lmdb_types import Txn


def records_of(environment: Environment, options: StoreOptions, txn: Txn) -> Records:
    """Return the records of a store, sealed ones too. Raises KeyFileInvalid."""
    sealed = frozenset(environment.sealed_types(txn))
    return Records(environment, Sealer(Path(options.key_file)) if sealed else None, log_alarm, sealed)


def last_versions(environment: Environment, txn: Txn) -> Iterator[tuple[bytes, int, Version]]:
    """Yield the last version of each object, deleted ones too."""
    last: tuple[bytes, int, Version] | None = None
    with txn.cursor(environment.versions) as cursor:
        for row, value in cursor:
            key = bytes(row[:-8])
            if last is not None and last[0] != key:
                yield last
            last = key, keys.revision_of_key(row), unpack_version(value)
    if last is not None:
        yield last


class Rebuild:
    """One pass over a store in a write transaction."""

    def __init__(self, records: Records, options: StoreOptions, txn: Txn) -> None:
        self._records, self._options, self._txn = records, options, txn
        self._environment = records.environment

    def run(self) -> None:
        """Write everything. Raises CorruptRecord for an object that cannot be read, and msgspec.DecodeError."""
        derived, last = DerivedRows(), []
        for key, revision, version in last_versions(self._environment, self._txn):
            last.append((key, revision))
            if not version.deleted:
                self._add(derived, key, revision, version)
        self._write(derived, last_revisions(last, self._environment.compacted(self._txn)))
        LimitCheck(self._records, self._txn, lambda *_: None).write()
        self._measure_log()

    def _add(self, derived: DerivedRows, key: bytes, revision: int, version: Version) -> None:
        stored = self._txn.get(key, db=self._environment.objects)
        if stored is None:
            raise self._records.corrupt(self._txn, key, "the object is missing, its version is not")
        derived.count(key, len(stored))
        plain = self._records.plain(self._txn, key, bytes(stored), version)
        derived.index(key, object_facts.facts(plain, self._options.system_label_prefixes))
        where = self._records.object_key(self._txn, key)
        derived.gate(where, plain, revision)
        lifetime_us = lifetimes_us(self._options.expiring).get(where.type)
        if version.flags & Flag.EXPIRES and lifetime_us is not None:
            self._txn.put(keys.expiry_key(revision + lifetime_us, key), b"", db=self._environment.expiry)

    def _write(self, derived: DerivedRows, lasts: dict[bytes, int]) -> None:
        environment, txn = self._environment, self._txn
        compacted = environment.compacted(txn)
        for db, rows in ((environment.owners, derived.owners), (environment.labels, derived.labels)):
            txn.drop(db, delete=False)
            for row in sorted(rows):
                txn.put(row, b"", db=db)
        txn.drop(environment.clusters, delete=False)
        for row_key in {*derived.counters, *lasts}:
            counted = derived.counters.get(row_key, NO_COUNTER)
            last = lasts.get(row_key, compacted)
            txn.put(row_key, pack_counter(counted.count, counted.size_bytes, last), db=environment.clusters)
        for row_key, gate in derived.gates.items():
            txn.put(row_key, pack_gate(gate), db=environment.clusters)

    def _measure_log(self) -> None:
        with self._txn.cursor(self._environment.log) as cursor:
            size_bytes = sum(len(value) for _, value in cursor)
        self._environment.put_meta(self._txn, "log_bytes", size_bytes)
