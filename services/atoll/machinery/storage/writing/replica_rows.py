"""Writes of rows published by other shards: replicas with their labels and counters, routes of clusters, marks.

`submit_transaction` calls it in the child transaction of the submit, so rows and the mark of their stream always agree.
`replica_sweep` deletes rows through it; `reading.replica_view` reads them. Invariant: counters and label rows follow
from the rows; every change that a reader could see raises the apply count, and carries it as its stamp.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from google_crc32c import value as crc32c

from atoll.machinery.storage.contract import ClusterRoute, Mark, Replica, StoreFull
from atoll.machinery.storage.encoding import keys, object_facts
from atoll.machinery.storage.encoding.rows import (
    Counter,
    ReplicaRow,
    generation_of,
    pack_counter,
    pack_replica,
    pack_route,
    unpack_counter,
    unpack_replica,
    unpack_route,
)
from atoll.machinery.storage.environment.databases import ReplicaDatabases
from atoll.machinery.storage.writing.commit_batch import NO_COUNTER, CommitBatch

if TYPE_CHECKING:
    from atoll.machinery.storage.environment.lmdb_types import Txn


class ReplicaRows:
    """Applies replicas, routes and marks of one submit. Use once."""

    def __init__(self, batch: CommitBatch, txn: Txn) -> None:
        environment = batch.records.environment
        assert environment.replicas is not None, "opening for writing creates the databases of replicas"
        self._batch, self._txn, self._marks = batch, txn, environment.marks
        self._db: ReplicaDatabases = environment.replicas
        #: The apply count, this submit's changes included.
        self.applied = environment.applied(txn) if batch.applied is None else batch.applied

    def replica(self, new: Replica) -> int:
        """Write or delete one row. Raise StoreFull, or msgspec.DecodeError if the value is no object."""
        if not new.origin or not new.key.cluster:
            raise ValueError("a replica names its origin and its cluster")
        if new.key.type in self._batch.sealed_types:
            return 0
        raw = keys.object_key(
            self._batch.type_number(self._txn, new.key.type), new.key.cluster, new.key.namespace, new.key.name
        )
        origin = keys.origin_prefix(new.origin)
        stored = self._txn.get(origin + raw, db=self._db.rows)
        old = unpack_replica(stored) if stored is not None else None
        if old is not None and (new.generation, new.revision) <= (old.generation, old.revision):
            return 0
        if not new.value:
            return self._remove(origin, raw, old) if old is not None else 0
        return self._put(origin, raw, old, new)

    def _put(self, origin: bytes, raw: bytes, old: ReplicaRow | None, new: Replica) -> int:
        if old is not None and old.revision == new.revision and old.value == new.value:
            row = ReplicaRow(new.generation, old.revision, old.crc, old.flags, old.labels, old.value)
            self._txn.put(origin + raw, pack_replica(row), db=self._db.rows)
            return 0
        if self._batch.full:
            raise StoreFull("the store has no room for replicas")
        facts = object_facts.facts(new.value, self._batch.options.system_label_prefixes)
        labels = tuple(sorted({keys.label_prefix(*pair) for pair in facts.labels}))
        row = ReplicaRow(new.generation, new.revision, crc32c(new.value), facts.flags, labels, new.value)
        self._txn.put(origin + raw, pack_replica(row), db=self._db.rows)
        self._relabel(origin, raw, old.labels if old is not None else (), labels)
        return self._count(origin, raw, 0 if old else 1, len(new.value) - (len(old.value) if old else 0))

    def _remove(self, origin: bytes, raw: bytes, old: ReplicaRow) -> int:
        self._txn.delete(origin + raw, db=self._db.rows)
        self._relabel(origin, raw, old.labels, ())
        return self._count(origin, raw, -1, -len(old.value))

    def _relabel(self, origin: bytes, raw: bytes, old: tuple[bytes, ...], new: tuple[bytes, ...]) -> None:
        for label in set(old).difference(new):
            self._txn.delete(label + raw + b"\0" + origin, db=self._db.labels)
        for label in set(new).difference(old):
            self._txn.put(label + raw + b"\0" + origin, b"", db=self._db.labels)

    def _count(self, origin: bytes, raw: bytes, count: int, size_bytes: int) -> int:
        """Count a change of one row. Return the apply count."""
        self.applied += 1
        cluster, of_type = keys.cluster_bytes(raw), b"\0" + raw[:4]
        effective = self._route(cluster)[0] == origin
        of_cluster, of_all = origin + cluster + of_type, b"\0" + of_type
        row = self._counter(of_cluster)
        self._set(of_cluster, Counter(row.count + count, row.size_bytes + size_bytes, self.applied), keep=effective)
        row = self._counter(of_all)
        last = self.applied if effective else row.last
        self._set(of_all, Counter(row.count + count, row.size_bytes + size_bytes, last), keep=True)
        return self.applied

    def _counter(self, key: bytes) -> Counter:
        raw = self._txn.get(key, db=self._db.counters)
        return unpack_counter(raw) if raw is not None else NO_COUNTER

    def _set(self, key: bytes, row: Counter, *, keep: bool) -> None:
        """Write a counter; delete one of count 0 unless `keep` says that readers use its last change."""
        if row.count or keep:
            self._txn.put(key, pack_counter(row.count, row.size_bytes, row.last), db=self._db.counters)
        else:
            self._txn.delete(key, db=self._db.counters)

    # --- routes and marks

    def _route(self, cluster: bytes) -> tuple[bytes, int]:
        """Return the row prefix of a cluster's owner (b"" if it has no route) and the route's generation."""
        raw = self._txn.get(cluster, db=self._db.routes)
        if raw is None:
            return b"", 0
        shard, generation = unpack_route(raw)
        return keys.origin_prefix(shard), generation

    def route(self, new: ClusterRoute) -> int:
        """Set or delete the route of a cluster. Return the apply count, 0 if its owner stays."""
        if not new.cluster:
            raise ValueError("a route names its cluster")
        cluster = keys.cluster_part(new.cluster)
        old, generation = self._route(cluster)
        if new.generation < generation:
            return 0
        owner = keys.origin_prefix(new.shard) if new.shard else b""
        if new.shard:
            self._txn.put(cluster, pack_route(new.shard, new.generation), db=self._db.routes)
        else:
            self._txn.delete(cluster, db=self._db.routes)
        if owner == old:
            return 0
        self.applied += 1
        self._stamp_types(cluster, old, owner)
        return self.applied

    def _stamp_types(self, cluster: bytes, old: bytes, owner: bytes) -> None:
        """Stamp every type that the old or the new owner has rows of."""
        left = dict(self._counters_of(old + cluster + b"\0")) if old else {}
        gained = dict(self._counters_of(owner + cluster + b"\0")) if owner else {}
        for of_type in left.keys() | gained.keys():
            of_all = b"\0\0" + of_type
            row = self._counter(of_all)
            self._set(of_all, Counter(row.count, row.size_bytes, self.applied), keep=True)
            if owner:
                row = gained.get(of_type, NO_COUNTER)
                stamped = Counter(row.count, row.size_bytes, self.applied)
                self._set(owner + cluster + b"\0" + of_type, stamped, keep=True)
        for of_type, row in left.items():
            self._set(old + cluster + b"\0" + of_type, row, keep=False)

    def _counters_of(self, prefix: bytes) -> Iterator[tuple[bytes, Counter]]:
        """Yield type and counter of a cluster's rows of one origin."""
        with self._txn.cursor(self._db.counters) as cursor:
            on_row = cursor.set_range(prefix)
            while on_row and cursor.key().startswith(prefix):
                yield cursor.key()[len(prefix) :], unpack_counter(cursor.value())
                on_row = cursor.next()

    def mark(self, mark: Mark) -> int:
        """Write a position."""
        self._txn.put(mark.name.encode(), mark.value, db=self._marks)
        return 0

    # --- sweeps

    def drop(self, origin: bytes, raws: list[bytes], generation: int) -> int:
        """Delete the rows that are still of an earlier generation. Return their number."""
        dropped = 0
        for raw in raws:
            stored = self._txn.get(origin + raw, db=self._db.rows)
            if stored is not None and generation_of(stored) < generation:
                self._remove(origin, raw, unpack_replica(stored))
                dropped += 1
        return dropped
