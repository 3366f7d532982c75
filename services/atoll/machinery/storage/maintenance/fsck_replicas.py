"""The part of `fsck` that checks rows of other shards.

`fsck` calls it with its transaction and its reporter. A route to a shard without rows is valid, and so are rows that
are not effective. Invariant checked: checksums match, label rows and counters follow from the rows, and no stamp is
above the apply count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec
from google_crc32c import value as crc32c

from atoll.machinery.storage.encoding import keys, object_facts
from atoll.machinery.storage.encoding.rows import Counter, ReplicaRow, unpack_counter, unpack_replica, unpack_route
from atoll.machinery.storage.environment.databases import Environment, ReplicaDatabases
from atoll.machinery.storage.writing.commit_batch import NO_COUNTER

if TYPE_CHECKING:
    from atoll.machinery.storage.environment.lmdb_types import Database, Txn

#: Takes the database, the key and what does not hold.
Report = Callable[[str, bytes, str], None]


class ReplicaCheck:
    """One pass over replicas and routes in one transaction."""

    def __init__(self, environment: Environment, prefixes: tuple[str, ...], txn: Txn, report: Report) -> None:
        self._environment, self._prefixes, self._txn, self._report = environment, prefixes, txn, report
        self._labels: set[bytes] = set()
        self._counters: dict[bytes, Counter] = {}
        self._routes: dict[bytes, bytes] = {}

    def run(self) -> None:
        databases = self._environment.replicas
        if databases is None:
            return
        for cluster, raw in self._rows(databases.routes):
            self._routes[cluster] = keys.origin_prefix(unpack_route(raw)[0])
        for key, stored in self._rows(databases.rows):
            self._check_row(key, unpack_replica(stored))
        self._check_labels(databases)
        self._check_counters(databases)

    def _rows(self, db: Database) -> Iterator[tuple[bytes, bytes]]:
        with self._txn.cursor(db) as cursor:
            yield from cursor

    def _check_row(self, key: bytes, row: ReplicaRow) -> None:
        cut = key.index(b"\0") + 1
        origin, raw = key[:cut], key[cut:]
        self._labels.update(label + raw + b"\0" + origin for label in row.labels)
        for counter in (origin + keys.cluster_bytes(raw) + b"\0" + raw[:4], b"\0\0" + raw[:4]):
            counted = self._counters.get(counter, NO_COUNTER)
            self._counters[counter] = Counter(counted.count + 1, counted.size_bytes + len(row.value), 0)
        if crc32c(row.value) != row.crc:
            self._report("replicas", key, "checksum mismatch")
            return
        try:
            facts = object_facts.facts(row.value, self._prefixes)
        except msgspec.DecodeError:
            self._report("replicas", key, "cannot be read")
            return
        if facts.flags != row.flags or {keys.label_prefix(*pair) for pair in facts.labels} != set(row.labels):
            self._report("replicas", key, "flags or labels do not follow from the object")

    def _check_labels(self, databases: ReplicaDatabases) -> None:
        found = {key for key, _ in self._rows(databases.labels)}
        for key in found - self._labels:
            self._report("replica_labels", key, "row of no object")
        for key in self._labels - found:
            self._report("replica_labels", key, "row is missing")

    def _check_counters(self, databases: ReplicaDatabases) -> None:
        applied = self._environment.applied(self._txn)
        for key, raw in self._rows(databases.counters):
            row, counted = unpack_counter(raw), self._counters.pop(key, NO_COUNTER)
            if (row.count, row.size_bytes) != (counted.count, counted.size_bytes):
                self._report("replica_counters", key, "count or size is wrong")
            if row.last > applied:
                self._report("replica_counters", key, f"is stamped {row.last} of {applied} changes")
            if not row.count and not self._is_routed(key):
                self._report("replica_counters", key, "counter without rows or route")
        for key in self._counters:
            self._report("replica_counters", key, "row is missing")

    def _is_routed(self, key: bytes) -> bool:
        """Return whether readers use a counter: that of a type, or of the owner of its cluster."""
        cut = key.index(b"\0") + 1
        return cut == 1 or self._routes.get(key[cut:-5]) == key[:cut]
