"""Reading the current state in one short transaction: `contract.Snapshot` over LMDB.

Handlers and controllers get it from `Store.snapshot()`. Values are copied out of the map, so they outlive the
transaction. Invariant: all reads of one snapshot see one revision.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import islice
from threading import get_ident
from typing import TYPE_CHECKING, Any

import msgspec
from google_crc32c import value as crc32c

from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import HOLE_SIZE
from atoll.machinery.meta.types import NAMESPACES
from atoll.machinery.storage.contract import Flag, Gate, Position, Record, ReplicaView, Scope, Usage
from atoll.machinery.storage.encoding import keys
from atoll.machinery.storage.encoding.rows import (
    NO_TOTALS,
    Totals,
    unpack_counter,
    unpack_gate,
    unpack_last,
    unpack_limits,
    unpack_totals,
    unpack_version,
)
from atoll.machinery.storage.environment.databases import Environment
from atoll.machinery.storage.environment.recent_rows import RecentRows
from atoll.machinery.storage.environment.type_table import NO_TYPE
from atoll.machinery.storage.limits import Limit, TotalObjects, is_counted, total_by_setting
from atoll.machinery.storage.reading.records import Records
from atoll.machinery.storage.reading.replica_view import NO_REPLICAS, LmdbReplicaView

if TYPE_CHECKING:
    from atoll.machinery.storage.environment.lmdb_types import Database, Txn

_SEALED = Flag.SEALED.value
_ZEROES = b"0" * HOLE_SIZE
#: Rows that `under_deletion` reads between two pauses.
_PAUSE_ROWS = 50


class LmdbSnapshot(msgspec.Struct, eq=False):
    """One read transaction, open from `with` to its end. Keep it short: it pins pages."""

    _records: Records
    _environment: Environment
    _revision: int = -1
    _gate: tuple[str, Gate] | None = None
    _replicas: ReplicaView | None = None
    #: Open from `__enter__` on.
    _txn: Any = None
    transaction: int = -1

    def __enter__(self) -> LmdbSnapshot:
        txn = self._txn = self._environment.env.begin()
        self.transaction = txn.id()
        return self

    def __exit__(self, *_raised: object) -> None:
        # A transaction has its place among the readers of the file while anything refers to it, and who waits for an
        # answer keeps the snapshot that lacked it.
        txn, self._txn, self._replicas = self._txn, None, None
        txn.abort()

    @property
    def revision(self) -> int:
        if self._revision < 0:
            self._revision = self._environment.last(self._txn)
        return self._revision

    @property
    def replicas(self) -> ReplicaView:
        if self._replicas is None:
            databases = self._environment.replicas
            # None in a file that no newer version opened for writing.
            self._replicas = NO_REPLICAS if databases is None else LmdbReplicaView(self._records, databases, self._txn)
        return self._replicas

    def stamp(self, types: Sequence[ResourceType]) -> Hashable:
        environment, get = self._environment, self._txn.get
        recent, row_key = environment.recent, keys.cluster_row_key
        is_recent = recent.transaction == (self.transaction, get_ident())
        if is_recent and (known := recent.stamps.get(id(types))) is not None:
            return known[1]
        numbers = environment.type_table.numbers_of(self._txn, types)
        rows = [row_key("", number) for number in numbers if number != NO_TYPE]
        found = (get(b"applied", db=environment.meta), *[get(row, db=environment.clusters) for row in rows])
        if is_recent:
            recent.keep_stamp(types, found, rows)
        return found

    def _cluster_row(self, key: bytes) -> bytes | None:
        """Return a row of `clusters`."""
        recent = self._environment.recent
        row: bytes | None
        if recent.transaction != (self.transaction, get_ident()):
            row = self._txn.get(key, db=self._environment.clusters)
        elif key in recent.rows:
            row = recent.rows[key]
        else:
            row = self._txn.get(key, db=self._environment.clusters)
            recent.keep_row(key, row)
        return row

    def _key(self, key: ObjectKey) -> bytes | None:
        table = self._environment.type_table
        number = table.numbers.get(key.type) or table.number(self._txn, key.type)
        return keys.object_key(number, key.cluster, key.namespace, key.name) if number else None

    def get(self, key: ObjectKey) -> Record | None:
        recent: RecentRows | None = None
        # Every create in a namespace reads it.
        if key.type is NAMESPACES:
            recent = self._environment.recent
            if recent.transaction != (self.transaction, get_ident()):
                recent = None
            elif key in recent.records:
                return recent.records[key]
        table = self._environment.type_table
        number = table.numbers.get(key.type) or table.number(self._txn, key.type)
        if not number:
            return None
        raw = keys.object_key(number, key.cluster, key.namespace, key.name)
        value = self._txn.get(raw, db=self._environment.objects)
        record = None if value is None else self._record(raw, value, key)
        if recent is not None:
            recent.keep_record(key, record)
        return record

    def _record(self, raw: bytes, value: bytes, key: ObjectKey | None = None) -> Record:
        """Verify and unseal a stored object, and return it with its typed key."""
        records, txn = self._records, self._txn
        found = records.live_version(txn, raw)
        if found is None:
            raise records.corrupt(txn, raw, "the object has no version")
        revision, version = found
        is_sealed, hole = version.flags & _SEALED, version.hole
        # As `Records.verify`, without a call.
        plain = value if is_sealed else b"".join((value[:hole], _ZEROES, value[hole + HOLE_SIZE :]))
        if crc32c(plain) != version.crc:
            raise records.corrupt(txn, raw, "checksum mismatch")
        if is_sealed:
            value = records.client_value(txn, raw, value, version, revision)
        return Record(key or records.object_key(txn, raw, value), revision, value, version.flags)

    def revision_of(self, key: ObjectKey) -> int:
        # As `_key`, without a call.
        table = self._environment.type_table
        number = table.numbers.get(key.type) or table.number(self._txn, key.type)
        if not number:
            return 0
        raw = keys.object_key(number, key.cluster, key.namespace, key.name)
        found = self._records.live_version(self._txn, raw)
        return found[0] if found is not None else 0

    def last(self, type: ResourceType, cluster: str) -> int:
        table = self._environment.type_table
        number = table.numbers.get(type) or table.number(self._txn, type)
        if number == NO_TYPE:
            return 0
        row = self._cluster_row(keys.cluster_row_key(cluster, number))
        last: int = unpack_last(row)[0] if row is not None else 0
        return last

    def lasts(self, types: Sequence[ResourceType], cluster: str) -> tuple[int, ...]:
        environment = self._environment
        numbers = environment.type_table.numbers_of(self._txn, types)
        get, clusters = self._txn.get, environment.clusters
        rows = zip(numbers, keys.cluster_row_keys(cluster, numbers), strict=True)
        # The row of no type is the gate of the cluster.
        return tuple(
            [
                unpack_last(row)[0] if number != NO_TYPE and (row := get(key, db=clusters)) is not None else 0
                for number, key in rows
            ]
        )

    def gate(self, cluster: str) -> Gate:
        # Several steps of one request read the gate of its one cluster.
        if self._gate is None or self._gate[0] != cluster:
            row = self._cluster_row(keys.cluster_row_key(cluster, NO_TYPE))
            self._gate = cluster, unpack_gate(row) if row is not None else Gate()
        return self._gate[1]

    def usage(self, cluster: str) -> list[Usage]:
        prefix = keys.cluster_part(cluster) + b"\0"
        found = []
        for key, value in _rows(self._txn, self._environment.clusters, prefix):
            number = keys.type_number_of(key[len(prefix) :])
            if number == NO_TYPE:
                continue
            row = unpack_counter(value)
            if row.count:
                type = self._environment.type_table.type(self._txn, number)
                found.append(Usage(type, row.count, row.size_bytes, row.last))
        return found

    def limits(self, type: ResourceType, cluster: str, namespace: str) -> list[Limit]:
        found: list[Limit] = []
        if self._totals(cluster).limits and (databases := self._environment.limits) is not None:
            for scope in (namespace, "") if namespace else ("",):
                prefix = keys.limit_prefix(cluster, scope, (type.group, type.resource))
                for _, value in _rows(self._txn, databases.limits, prefix):
                    found += unpack_limits(value)
        return found

    def limited(self, cluster: str) -> bool:
        return self._totals(cluster).limits > 0

    def total(self, cluster: str) -> TotalObjects:
        totals = self._totals(cluster)
        hard = totals.limit
        if hard < 0:
            hard = total_by_setting(self._records.total_object_limit, cluster)
        if totals.used >= 0:
            return TotalObjects(totals.used, hard)
        return TotalObjects(sum(usage.count for usage in self.usage(cluster) if is_counted(usage.type)), hard)

    def totals(self, after: str = "", limit: int = 500) -> list[tuple[str, TotalObjects]]:
        """Return up to `limit` clusters behind `after` that are limited or counted, in order."""
        if self._environment.limits is None:
            return []
        behind = keys.cluster_part(after) if after else b""
        rows = _row_keys(self._txn, self._environment.limits.totals, b"", behind)
        named = [raw.decode("utf-8", "replace") for raw in islice(rows, limit)]
        return [(cluster, self.total(cluster)) for cluster in named]

    def _totals(self, cluster: str) -> Totals:
        databases = self._environment.limits
        raw = self._txn.get(keys.cluster_part(cluster), db=databases.totals) if databases is not None else None
        return unpack_totals(raw) if raw is not None else NO_TOTALS

    def identities(self, group: str, resource: str) -> list[str]:
        return self._environment.type_table.identities(self._txn, group, resource)

    def scan(self, scope: Scope, after: Position | None = None, limit: int = 500) -> list[Record]:
        environment, type = self._environment, scope.type
        number = environment.type_table.numbers.get(type) or environment.type_table.number(self._txn, type)
        if number == NO_TYPE:
            return []
        prefix, found = keys.scope_prefix(number, scope), list[Record]()
        start = keys.position_key(number, after) if after is not None else b""
        # A prefix without a cluster holds the other namespaces too.
        is_whole = bool(scope.cluster or not scope.namespace)
        # As `_rows` does, which would be resumed for each row: most scopes of a cluster have one or two.
        with self._txn.cursor(environment.objects) as cursor:
            for key, value in cursor if cursor.set_range(max(prefix, start)) else ():
                if len(found) >= limit or not key.startswith(prefix):
                    break
                if key != start and (is_whole or keys.in_scope(key, scope, prefix)):
                    found.append(self._record(key, value, keys.object_named(type, key)))
        return found

    def revisions(self, scope: Scope, after: Position | None = None, limit: int = 500) -> list[tuple[ObjectKey, int]]:
        number = self._environment.type_table.number(self._txn, scope.type)
        if number == NO_TYPE:
            return []
        prefix = keys.scope_prefix(number, scope)
        start = keys.position_key(number, after) if after is not None else b""
        found: list[tuple[ObjectKey, int]] = []
        for raw in _row_keys(self._txn, self._environment.objects, prefix, start):
            if len(found) >= limit:
                break
            standing = self._records.live_version(self._txn, raw) if keys.in_scope(raw, scope, prefix) else None
            if standing is not None:
                found.append((self._named(raw), standing[0]))
        return found

    def owned(self, cluster: str, uid: str) -> list[ObjectKey]:
        return self._indexed(self._environment.owners, keys.owner_prefix(cluster, uid))

    def labelled(
        self, label: str, value: str, type: ResourceType | None = None, limit: int = 0, after: ObjectKey | None = None
    ) -> list[ObjectKey]:
        prefix, of_type = keys.label_prefix(label, value), b""
        if type is not None:
            number = self._environment.type_table.number(self._txn, type)
            if number == NO_TYPE:
                return []
            of_type = keys.scope_prefix(number, Scope(type))
        start = self._key(after) if after is not None else None
        behind = prefix + start if start is not None else b""
        rows = _row_keys(self._txn, self._environment.labels, prefix + of_type, behind)
        return [self._named(row[len(prefix) :]) for row in islice(rows, limit or None)]

    def all_owned(self) -> Iterator[ObjectKey]:
        for row, _ in _rows(self._txn, self._environment.owners, b""):
            yield self._named(keys.dependent_of(row))

    def under_deletion(self) -> Iterator[ObjectKey | None]:
        for count, (row, packed) in enumerate(_rows(self._txn, self._environment.versions, b"")):
            if unpack_version(packed).flags & Flag.DELETING:
                raw = row[: -keys.REVISION_BYTES]
                live = self._records.live_version(self._txn, raw)
                if live is not None and live[0] == keys.revision_of_key(row):
                    yield self._named(raw)
            if count % _PAUSE_ROWS == 0:
                yield None

    def _indexed(self, db: Database, prefix: bytes) -> list[ObjectKey]:
        return [self._named(row[len(prefix) :]) for row, _ in _rows(self._txn, db, prefix)]

    def _named(self, raw: bytes) -> ObjectKey:
        """Return the typed key of an index row's object; read a hashed name from the object."""
        parts = keys.split(raw)
        if parts.hashed:
            value = self._txn.get(raw, db=self._environment.objects)
            if value is not None:
                return self._record(raw, value).key
        type = self._environment.type_table.type(self._txn, parts.type_number)
        return ObjectKey(type, parts.cluster, parts.namespace, parts.name)


def _row_keys(txn: Txn, db: Database, prefix: bytes, after: bytes) -> Iterator[bytes]:
    """Yield the keys of the same rows as `_rows`; values are not copied."""
    with txn.cursor(db) as cursor:
        if not cursor.set_range(max(prefix, after)):
            return
        for key in cursor.iternext(keys=True, values=False):
            if not key.startswith(prefix):
                return
            if key != after:
                yield key


def _rows(txn: Txn, db: Database, prefix: bytes, after: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
    """Yield the rows of a prefix behind `after`, in key order."""
    with txn.cursor(db) as cursor:
        if not cursor.set_range(max(prefix, after)):
            return
        for key, value in cursor:
            if not key.startswith(prefix):
                return
            if key != after:
                yield key, value
