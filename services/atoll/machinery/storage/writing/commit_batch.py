"""State shared by the submits of one transaction, and the rows derived from objects: counters, owners, labels, gate.

`writer` makes a `CommitBatch` for each transaction, `submit_transaction` one `IndexRows` for each submit in it.
Counters stay in memory until the batch ends, as hot rows would otherwise be rewritten a hundred times. Invariant:
counters of a submit join the batch only when the submit succeeded; index rows follow from the object's bytes alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.storage.clock import HybridClock
from atoll.machinery.storage.contract import Change, Flag, Gate
from atoll.machinery.storage.encoding import keys, object_facts
from atoll.machinery.storage.encoding.object_facts import ObjectFacts
from atoll.machinery.storage.encoding.rows import (
    Counter,
    Version,
    pack_counter,
    pack_gate,
    unpack_counter_row,
    unpack_gate,
)
from atoll.machinery.storage.environment.recent_rows import NONE
from atoll.machinery.storage.environment.type_table import NO_TYPE
from atoll.machinery.storage.options import StoreOptions, lifetimes_us
from atoll.machinery.storage.reading.records import Records

if TYPE_CHECKING:
    from atoll.machinery.storage.environment.lmdb_types import Txn


NO_COUNTER = Counter(0, 0, 0)
_NO_FACTS = ObjectFacts(0)
_INDEXED = (Flag.OWNED | Flag.LABELLED).value


class Image(msgspec.Struct, frozen=True, gc=False):
    """One version of an object: revision, row, bytes as stored, JSON (of a sealed one with its hole zeroed)."""

    revision: int
    version: Version
    stored: bytes
    plain: bytes


class LiveObject(msgspec.Struct, frozen=True, gc=False):
    """An object that exists: its key in `objects`, its revision and its `versions` row."""

    raw: bytes
    revision: int
    version: Version


class CommitBatch:
    """State of one write transaction across its submits."""

    def __init__(self, options: StoreOptions, records: Records, clock: HybridClock) -> None:
        self.options, self.records, self.clock = options, records, clock
        #: Whether creates and updates are refused.
        self.full = False
        #: Whether any cluster is limited or counted; else no write looks for limits.
        self.limited = options.total_object_limit > 0
        self.counters: dict[bytes, Counter] = {}
        self.fresh_types: dict[ResourceType, int] = {}
        self.changes: list[Change] = []
        self.log_bytes = 0
        #: The number of the transaction once it is committed.
        self.transaction = NONE
        #: Whether a gate changed; whether a namespace did; whether there was maintenance.
        self.gated = self.namespaced = self.has_jobs = False
        #: What guards of earlier submits found, until such a change: gates by cluster, active namespaces.
        self.gates: dict[str, int] = {}
        self.active: set[tuple[str, str]] = set()
        #: The apply count of replicas and routes, once any was applied; None before.
        self.applied: int | None = None
        self.sealed_types = options.sealed_types
        self.ttl_us = lifetimes_us(options.expiring)

    def write_counters(self, txn: Txn) -> None:
        """Write every counter row that the batch changed; delete rows of zeroes."""
        db = self.records.environment.clusters
        for key, row in self.counters.items():
            if row == NO_COUNTER:
                txn.delete(key, db=db)
            else:
                txn.put(key, pack_counter(row.count, row.size_bytes, row.last), db=db)

    def type_number(self, txn: Txn, type: ResourceType) -> int:
        """Return the number of a type in this transaction, NO_TYPE if no object of it was ever stored."""
        table = self.records.environment.type_table
        return table.numbers.get(type) or self.fresh_types.get(type) or table.number(txn, type)

    def intern(self, txn: Txn, type: ResourceType) -> None:
        """Assign a number to a type, in the batch's own transaction: it outlives a submit that fails."""
        self.records.environment.type_table.intern(txn, type, self.fresh_types)

    def finish(self, *, committed: bool) -> None:
        """Cache or drop new type numbers after the transaction."""
        self.records.environment.type_table.finish(self.fresh_types, committed=committed)


class Counters:
    """Counter rows as one submit sees them: its own changes over the batch's over the database."""

    def __init__(self, batch: CommitBatch, txn: Txn) -> None:
        self._batch, self._txn = batch, txn
        self.changed: dict[bytes, Counter] = {}

    def get(self, key: bytes) -> Counter:
        row = self.changed.get(key) or self._batch.counters.get(key)
        if row is None:
            raw = self._txn.get(key, db=self._batch.records.environment.clusters)
            row = Counter(*unpack_counter_row(raw)) if raw is not None else NO_COUNTER
        return row

    def objects_in(self, cluster: str) -> int:
        """Return the number of a cluster's objects."""
        prefix, environment = keys.cluster_part(cluster) + b"\0", self._batch.records.environment
        touched = {key for rows in (self.changed, self._batch.counters) for key in rows if key.startswith(prefix)}
        with self._txn.cursor(environment.clusters) as cursor:
            on_row = cursor.set_range(prefix)
            while on_row and cursor.key().startswith(prefix):
                touched.add(bytes(cursor.key()))
                on_row = cursor.next()
        numbers = keys.type_number_of
        return sum(self.get(key).count for key in touched if numbers(key[len(prefix) :]) != NO_TYPE)

    def resize(self, key: bytes, size_bytes: int) -> None:
        """Add to the size of a row, not to its count."""
        row = self.get(key)
        self.changed[key] = Counter(row.count, row.size_bytes + size_bytes, row.last)

    def drop(self, key: bytes, compacted: int) -> None:
        """Zero a row with count 0 whose last revision was compacted."""
        row = self.get(key)
        if not row.count and row.last <= compacted:
            self.changed[key] = NO_COUNTER

    def add(self, rows: tuple[bytes, bytes], count: int, size_bytes: int, revision: int) -> int:
        """Add to two rows and set their last revision. Return the last revision of the first before."""
        changed, before = self.changed, []
        for key in rows:
            row = changed.get(key) or self._batch.counters.get(key) or self.get(key)
            changed[key] = Counter(row.count + count, row.size_bytes + size_bytes, revision)
            before.append(row.last)
        return before[0]


class IndexRows:
    """Writes the `owners`, `labels`, `expiry` and gate rows that follow from one write."""

    def __init__(self, batch: CommitBatch, txn: Txn) -> None:
        self._batch, self._txn = batch, txn
        self._environment = batch.records.environment

    def replace(self, cluster: str, key: bytes, image: Image | None, new: ObjectFacts) -> None:
        """Replace the `owners` and `labels` rows of an object; a replaced record is decoded only if it has some."""
        old = _NO_FACTS
        if image is not None and image.version.flags & _INDEXED:
            old = object_facts.facts(image.plain, self._batch.options.system_label_prefixes)
        if not (old.owners or old.labels or new.owners or new.labels):
            return
        for uid in set(old.owners).difference(new.owners):
            self._txn.delete(keys.owner_prefix(cluster, uid) + key, db=self._environment.owners)
        for uid in set(new.owners).difference(old.owners):
            self._txn.put(keys.owner_prefix(cluster, uid) + key, b"", db=self._environment.owners)
        for pair in set(old.labels).difference(new.labels):
            self._txn.delete(keys.label_prefix(*pair) + key, db=self._environment.labels)
        for pair in set(new.labels).difference(old.labels):
            self._txn.put(keys.label_prefix(*pair) + key, b"", db=self._environment.labels)

    def note_expiry(self, type: ResourceType, key: bytes, revision: int) -> int:
        """Write the expiry row of an object. Return the flag for its version, 0 if its type does not expire.

        A revision is its time in microseconds.
        """
        ttl_us = self._batch.ttl_us.get(type)
        if ttl_us is None:
            return 0
        self._txn.put(keys.expiry_key(revision + ttl_us, key), b"", db=self._environment.expiry)
        return Flag.EXPIRES.value

    def set_gate(self, key: ObjectKey, value: bytes | None, revision: int) -> None:
        """Set a cluster's gate from its LogicalCluster; `value` is None for a delete. A cluster that another shard
        has, has no gate here."""
        row = keys.cluster_row_key(key.cluster, NO_TYPE)
        state = object_facts.gate_state(value) if value is not None else None
        if state is None:
            self._batch.gated = True
            self._txn.delete(row, db=self._environment.clusters)
            return
        found = self._txn.get(row, db=self._environment.clusters)
        if found is None or unpack_gate(found).state != state:
            self._batch.gated = True
            self._txn.put(row, pack_gate(Gate(state, revision)), db=self._environment.clusters)
