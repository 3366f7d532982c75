"""What other shards published, applied: replicas with their labels and counters, routes, marks; and sweeps.

`apply` calls this for the mutations that concern them, in the same child transaction as the rest of a submit, so
that rows and the mark of their stream always agree. `sweeps` drops here what a new reading did not bring; reading
is `reading.replica_view`. Invariant: counters and label rows follow from the rows; the apply count rises with every
change that a reader could see, and is the stamp of it.
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
        assert environment.replicas is not None, "whoever writes has made them"
        self._batch, self._txn, self._marks = batch, txn, environment.marks
        self._db: ReplicaDatabases = environment.replicas
        #: The apply count, this submit's changes included.
        self.applied = environment.applied(txn) if batch.applied is None else batch.applied

    def replica(self, new: Replica) -> int:
        """Put or remove one row. Raises StoreFull, or msgspec.DecodeError for what is no object."""
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
        """Count a change of one row; gives the apply count."""
        self.applied += 1
        cluster, of_type = keys.cluster_bytes(raw), b"\0" + raw[:4]
        counts = self._route(cluster)[0] == origin
        here, everywhere = origin + cluster + of_type, b"\0" + of_type
        row = self._counter(here)
        self._set(here, Counter(row.count + count, row.size_bytes + size_bytes, self.applied), keep=counts)
        row = self._counter(everywhere)
        last = self.applied if counts else row.last
        self._set(everywhere, Counter(row.count + count, row.size_bytes + size_bytes, last), keep=True)
        return self.applied

    def _counter(self, key: bytes) -> Counter:
        raw = self._txn.get(key, db=self._db.counters)
        return unpack_counter(raw) if raw is not None else NO_COUNTER

    def _set(self, key: bytes, row: Counter, *, keep: bool) -> None:
        """Write a counter. One that counts nothing stays only where its last change means something."""
        if row.count or keep:
            self._txn.put(key, pack_counter(row.count, row.size_bytes, row.last), db=self._db.counters)
        else:
            self._txn.delete(key, db=self._db.counters)

    # --- routes and marks

    def _route(self, cluster: bytes) -> tuple[bytes, int]:
        """Where a cluster lies, as rows of that origin start; b"" where it is not known."""
        raw = self._txn.get(cluster, db=self._db.routes)
        if raw is None:
            return b"", 0
        shard, generation = unpack_route(raw)
        return keys.origin_prefix(shard), generation

    def route(self, new: ClusterRoute) -> int:
        """Send readers of a cluster to the rows of another origin, or to none."""
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
        self._turn(cluster, old, owner)
        return self.applied

    def _turn(self, cluster: bytes, old: bytes, owner: bytes) -> None:
        """Stamp every type of which rows come or go with the route."""
        left = dict(self._counters_of(old + cluster + b"\0")) if old else {}
        come = dict(self._counters_of(owner + cluster + b"\0")) if owner else {}
        for of_type in left.keys() | come.keys():
            everywhere = b"\0\0" + of_type
            row = self._counter(everywhere)
            self._set(everywhere, Counter(row.count, row.size_bytes, self.applied), keep=True)
            if owner:
                row = come.get(of_type, NO_COUNTER)
                stamped = Counter(row.count, row.size_bytes, self.applied)
                self._set(owner + cluster + b"\0" + of_type, stamped, keep=True)
        for of_type, row in left.items():
            self._set(old + cluster + b"\0" + of_type, row, keep=False)

    def _counters_of(self, prefix: bytes) -> Iterator[tuple[bytes, Counter]]:
        """Type and counter of a cluster's rows of one origin."""
        with self._txn.cursor(self._db.counters) as cursor:
            on_row = cursor.set_range(prefix)
            while on_row and cursor.key().startswith(prefix):
                yield cursor.key()[len(prefix) :], unpack_counter(cursor.value())
                on_row = cursor.next()

    def mark(self, mark: Mark) -> int:
        """Save a position."""
        self._txn.put(mark.name.encode(), mark.value, db=self._marks)
        return 0

    # --- sweeps

    def drop(self, origin: bytes, raws: list[bytes], generation: int) -> int:
        """Remove those of these rows that are still of an earlier generation; gives how many."""
        dropped = 0
        for raw in raws:
            stored = self._txn.get(origin + raw, db=self._db.rows)
            if stored is not None and generation_of(stored) < generation:
                self._remove(origin, raw, unpack_replica(stored))
                dropped += 1
        return dropped
