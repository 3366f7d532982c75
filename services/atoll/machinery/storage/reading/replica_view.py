"""Rows published by other shards, read in the transaction of a snapshot: `contract.ReplicaView` over LMDB.

`LmdbSnapshot.replicas` makes one at its first use. A row is effective if its origin is the shard of its cluster's
route, so the route is read first, and only that origin's rows are read. Invariant: rows, routes, counters and the
snapshot's own objects are of one commit.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING

from google_crc32c import value as crc32c

from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.storage.contract import ClusterRoute, Position, Record, Scope
from atoll.machinery.storage.encoding import keys
from atoll.machinery.storage.encoding.rows import (
    ReplicaRow,
    generation_of,
    unpack_counter,
    unpack_replica,
    unpack_route,
)
from atoll.machinery.storage.environment.databases import ReplicaDatabases
from atoll.machinery.storage.environment.type_table import NO_TYPE
from atoll.machinery.storage.reading.records import Records

if TYPE_CHECKING:
    from atoll.machinery.storage.environment.lmdb_types import Txn

#: Object key, row prefix of the origin, row. A plain tuple, as merging origins makes many.
_OriginRow = tuple[bytes, bytes, ReplicaRow]
_by_key = itemgetter(0)


class LmdbReplicaView:
    """The rows, routes and counters of one transaction."""

    __slots__ = ("_cluster", "_count", "_db", "_environment", "_owner_prefix", "_records", "_txn", "empty")

    def __init__(self, records: Records, databases: ReplicaDatabases, txn: Txn) -> None:
        self._records, self._environment, self._db, self._txn = records, records.environment, databases, txn
        #: The last cluster looked up, and the row prefix of its owner.
        self._cluster = self._owner_prefix = b""
        self._count = -1
        self.empty = not txn.stat(databases.routes)["entries"]

    @property
    def count(self) -> int:
        if self._count < 0:
            self._count = self._environment.applied(self._txn)
        return self._count

    # --- routes

    def shard_of(self, cluster: str) -> str:
        raw = self._txn.get(keys.cluster_part(cluster), db=self._db.routes) if cluster else None
        return unpack_route(raw)[0] if raw is not None else ""

    def route_of(self, cluster: str) -> ClusterRoute | None:
        raw = self._txn.get(keys.cluster_part(cluster), db=self._db.routes) if cluster else None
        return ClusterRoute(cluster, *unpack_route(raw)) if raw is not None else None

    def _owner(self, cluster: bytes) -> bytes:
        """Return the row prefix of a cluster's owner, b"" without a route."""
        if self._cluster != cluster:
            raw = self._txn.get(cluster, db=self._db.routes)
            self._owner_prefix = keys.origin_prefix(unpack_route(raw)[0]) if raw is not None else b""
            self._cluster = cluster
        return self._owner_prefix

    def _owner_of(self, cluster: str) -> bytes:
        return self._owner(keys.cluster_part(cluster)) if cluster else b""

    # --- single objects

    def get(self, key: ObjectKey) -> Record | None:
        raw, owner = self._key(key), self._owner_of(key.cluster)
        stored = self._txn.get(owner + raw, db=self._db.rows) if raw and owner else None
        return self._record(raw, unpack_replica(stored), key) if stored is not None else None

    def revision_of(self, key: ObjectKey) -> int:
        raw, owner = self._key(key), self._owner_of(key.cluster)
        stored = self._txn.get(owner + raw, db=self._db.rows) if raw and owner else None
        return unpack_replica(stored).revision if stored is not None else 0

    def _key(self, key: ObjectKey) -> bytes:
        number = self._environment.type_table.number(self._txn, key.type)
        return keys.object_key(number, key.cluster, key.namespace, key.name) if number else b""

    def _record(self, raw: bytes, row: ReplicaRow, key: ObjectKey | None = None) -> Record:
        """Verify a row's checksum and return it with its typed key."""
        if crc32c(row.value) != row.crc:
            raise self._records.corrupt(self._txn, raw, "replica checksum mismatch")
        named = key or self._records.object_key(self._txn, raw, row.value)
        return Record(named, row.revision, row.value, row.flags)

    def last(self, type: ResourceType, cluster: str) -> int:
        number = self._environment.type_table.number(self._txn, type)
        owner = self._owner_of(cluster) if cluster else b"\0"
        if number == NO_TYPE or not owner:
            return 0
        row = self._txn.get(owner + keys.cluster_row_key(cluster, number), db=self._db.counters)
        return unpack_counter(row).last if row is not None else 0

    # --- many

    def scan(self, scope: Scope, after: Position | None = None, limit: int = 500) -> list[Record]:
        return [self._record(raw, row) for raw, _, row in islice(self._effective(scope, after), limit)]

    def revisions(self, scope: Scope, after: Position | None = None, limit: int = 500) -> list[tuple[ObjectKey, int]]:
        return [
            (self._records.object_key(self._txn, raw, row.value), row.revision)
            for raw, _, row in islice(self._effective(scope, after), limit)
        ]

    def rows_of(self, origin: str, scope: Scope, after: Position | None = None, limit: int = 500) -> list[Record]:
        rows = self._of(keys.origin_prefix(origin), scope, after) if origin else iter(())
        return [self._record(raw, row) for raw, _, row in islice(rows, limit)]

    def row_of(self, origin: str, key: ObjectKey) -> tuple[Record, int] | None:
        raw = self._key(key) if origin else b""
        stored = self._txn.get(keys.origin_prefix(origin) + raw, db=self._db.rows) if raw else None
        if stored is None:
            return None
        row = unpack_replica(stored)
        return self._record(raw, row, key), row.generation

    def types_of(self, origin: str, cluster: str) -> list[ResourceType]:
        prefix = keys.origin_prefix(origin) + keys.cluster_part(cluster) + b"\0"
        found: list[ResourceType] = []
        with self._txn.cursor(self._db.counters) as cursor:
            on_row = cursor.set_range(prefix)
            while on_row and cursor.key().startswith(prefix):
                if unpack_counter(cursor.value()).count:
                    number = keys.type_number_of(cursor.key()[len(prefix) :])
                    found.append(self._environment.type_table.type(self._txn, number))
                on_row = cursor.next()
        return found

    def _effective(self, scope: Scope, after: Position | None) -> Iterator[_OriginRow]:
        """Yield the effective rows of a scope in key order."""
        if scope.cluster:
            owner = self._owner_of(scope.cluster)
            return self._of(owner, scope, after) if owner else iter(())
        streams = [self._of(origin, scope, after) for origin in self._origins()]
        rows = heapq.merge(*streams, key=_by_key)
        return (row for row in rows if self._owner(keys.cluster_bytes(row[0])) == row[1])

    def _of(self, origin: bytes, scope: Scope, after: Position | None) -> Iterator[_OriginRow]:
        """Yield the rows of one origin in a scope, in key order."""
        number = self._environment.type_table.number(self._txn, scope.type)
        if number == NO_TYPE:
            return
        prefix = keys.scope_prefix(number, scope)
        start = max(prefix, keys.position_key(number, after) + b"\0") if after is not None else prefix
        with self._txn.cursor(self._db.rows) as cursor:
            on_row = cursor.set_range(origin + start)
            while on_row and cursor.key().startswith(origin + prefix):
                raw = cursor.key()[len(origin) :]
                if keys.in_scope(raw, scope, prefix):
                    yield raw, origin, unpack_replica(cursor.value())
                on_row = cursor.next()

    def _origins(self) -> list[bytes]:
        """Return the row prefixes of all origins, by one seek an origin."""
        found: list[bytes] = []
        with self._txn.cursor(self._db.rows) as cursor:
            on_row = cursor.first()
            while on_row:
                origin = cursor.key()[: cursor.key().index(b"\0") + 1]
                found.append(origin)
                on_row = cursor.set_range(origin[:-1] + keys.BEHIND)
        return found

    def labelled(
        self, label: str, value: str, type: ResourceType | None = None, limit: int = 0, after: ObjectKey | None = None
    ) -> list[ObjectKey]:
        prefix, of_type = keys.label_prefix(label, value), b""
        if type is not None:
            number = self._environment.type_table.number(self._txn, type)
            if number == NO_TYPE:
                return []
            of_type = keys.scope_prefix(number, Scope(type))
        start = self._key(after) if after is not None else b""
        behind = prefix + start + keys.BEHIND if start else b""
        return list(islice(self._labelled(prefix, of_type, behind), limit or None))

    def _labelled(self, prefix: bytes, of_type: bytes, behind: bytes) -> Iterator[ObjectKey]:
        """Yield the keys of effective objects from the label rows of one pair."""
        with self._txn.cursor(self._db.labels) as cursor:
            on_row = cursor.set_range(max(prefix + of_type, behind))
            while on_row and cursor.key().startswith(prefix + of_type):
                raw, _, origin = cursor.key()[len(prefix) : -1].rpartition(b"\0")
                if self._owner(keys.cluster_bytes(raw)) == origin + b"\0":
                    yield self._named(raw, origin + b"\0")
                on_row = cursor.next()

    def _named(self, raw: bytes, origin: bytes) -> ObjectKey:
        """Return the typed key of an index row's object; read a hashed name from the object."""
        stored = self._txn.get(origin + raw, db=self._db.rows) if keys.split(raw).hashed else None
        value = unpack_replica(stored).value if stored is not None else b""
        return self._records.object_key(self._txn, raw, value)

    def outdated(
        self, origin: str, generation: int, after: ObjectKey | None = None, limit: int = 1000
    ) -> tuple[list[ObjectKey], ObjectKey | None]:
        prefix = keys.origin_prefix(origin)
        start = self._key(after) if after is not None else b""
        found, raw = outdated_rows(self._txn, self._db, prefix, start, generation, limit)
        return [self._named(each, prefix) for each in found], self._named(raw, prefix) if raw else None


class NoReplicas:
    """The replicas of a store that never received any."""

    empty = True
    count = 0

    def shard_of(self, cluster: str) -> str:
        return ""

    def route_of(self, cluster: str) -> ClusterRoute | None:
        return None

    def get(self, key: ObjectKey) -> Record | None:
        return None

    def revision_of(self, key: ObjectKey) -> int:
        return 0

    def last(self, type: ResourceType, cluster: str) -> int:
        return 0

    def scan(self, scope: Scope, after: Position | None = None, limit: int = 500) -> list[Record]:
        return []

    def revisions(self, scope: Scope, after: Position | None = None, limit: int = 500) -> list[tuple[ObjectKey, int]]:
        return []

    def labelled(
        self, label: str, value: str, type: ResourceType | None = None, limit: int = 0, after: ObjectKey | None = None
    ) -> list[ObjectKey]:
        return []

    def rows_of(self, origin: str, scope: Scope, after: Position | None = None, limit: int = 500) -> list[Record]:
        return []

    def row_of(self, origin: str, key: ObjectKey) -> tuple[Record, int] | None:
        return None

    def types_of(self, origin: str, cluster: str) -> list[ResourceType]:
        return []

    def outdated(
        self, origin: str, generation: int, after: ObjectKey | None = None, limit: int = 1000
    ) -> tuple[list[ObjectKey], ObjectKey | None]:
        return [], None


NO_REPLICAS = NoReplicas()


def outdated_rows(
    txn: Txn, db: ReplicaDatabases, origin: bytes, after: bytes, generation: int, limit: int
) -> tuple[list[bytes], bytes]:
    """Read an origin's next `limit` rows behind the object key `after` (b"": from the first).

    Return the object keys of those of an earlier generation, and the key to go on behind (b"": the end was reached).
    """
    raw = after
    found: list[bytes] = []
    with txn.cursor(db.rows) as cursor:
        on_row = cursor.set_range(origin + raw + b"\0" if raw else origin)
        for _ in range(limit):
            if not on_row or not cursor.key().startswith(origin):
                return found, b""
            raw = cursor.key()[len(origin) :]
            if generation_of(cursor.value()) < generation:
                found.append(raw)
            on_row = cursor.next()
    return found, raw
