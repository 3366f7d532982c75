"""The part of `fsck` that checks limits: their rows follow from ResourceQuotas, LogicalClusters and the objects.

`fsck` calls it with its transaction and its reporter, `rebuild` to write the rows anew. It counts the objects itself,
kind by kind in each scope.
Invariant checked: a row a quota and kind, its use that of the objects; totals say how many objects a cluster holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from atoll.machinery.kinds.kubernetes.usage.charge import Amount, in_all
from atoll.machinery.kinds.kubernetes.usage.evaluators import EVALUATORS, GroupResource
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.types import LOGICAL_CLUSTERS, RESOURCE_QUOTAS
from atoll.machinery.storage.contract import CorruptRecord, Scope
from atoll.machinery.storage.encoding import keys
from atoll.machinery.storage.encoding.rows import (
    NO_TOTALS,
    Totals,
    pack_limits,
    pack_totals,
    unpack_limits,
    unpack_totals,
)
from atoll.machinery.storage.environment.type_table import NO_TYPE
from atoll.machinery.storage.limits import Limit, is_counted
from atoll.machinery.storage.quota_limits import QuotaLimits, limits_of, total_limit
from atoll.machinery.storage.reading.records import Records
from atoll.machinery.storage.writing.first_use import use_of_all

if TYPE_CHECKING:
    from atoll.machinery.storage.environment.lmdb_types import Txn

Report = Callable[[str, bytes, str], None]


class LimitCheck:
    """One pass over the rows of limits in one transaction."""

    def __init__(self, records: Records, txn: Txn, report: Report) -> None:
        self._records, self._txn, self._report = records, txn, report
        self._environment = records.environment
        self._limit_rows: dict[bytes, tuple[Limit, ...]] = {}
        #: Number of rows, and what LogicalClusters say, by the cluster's key.
        self._rows_of: Counter[bytes] = Counter()
        self._allowed: dict[bytes, int] = {}

    def run(self) -> None:
        databases = self._environment.limits
        if databases is None:
            return
        self._expect()
        with self._txn.cursor(databases.limits) as cursor:
            for row_key, row in cursor:
                self._check_limits(row_key, unpack_limits(row))
        with self._txn.cursor(databases.totals) as cursor:
            for cluster, row in cursor:
                self._check_totals(cluster, row)
        for cluster in self._limit_rows:
            self._report("limits", cluster, "row is missing")
        for cluster in (*self._rows_of, *self._allowed):
            self._report("totals", cluster, "row is missing")

    def write(self) -> None:
        """Replace the rows by those that follow. How many objects a cluster holds is counted with its next write."""
        databases = self._environment.limits
        assert databases is not None, "a writer has opened every database"
        self._expect()
        for each in (databases.limits, databases.totals):
            self._txn.drop(each, delete=False)
        for row_key, limits in self._limit_rows.items():
            self._txn.put(row_key, pack_limits(limits), db=databases.limits)
        for cluster in {*self._rows_of, *self._allowed}:
            totals = Totals(self._rows_of[cluster], NO_TOTALS.used, self._allowed.get(cluster, NO_TOTALS.limit))
            self._txn.put(cluster, pack_totals(totals), db=databases.totals)

    def _expect(self) -> None:
        for key, value in self._objects(RESOURCE_QUOTAS):
            self._expect_quota(key, value)
        for key, value in self._objects(LOGICAL_CLUSTERS):
            if key.name == "cluster" and total_limit(value) >= 0:
                self._allowed[keys.cluster_part(key.cluster)] = total_limit(value)

    def _objects(self, type: ResourceType) -> Iterator[tuple[ObjectKey, bytes]]:
        number = self._environment.type_table.number(self._txn, type)
        if number == NO_TYPE:
            return
        for raw, stored in self._rows(keys.scope_prefix(number, Scope(type))):
            found = self._records.live_version(self._txn, raw)
            try:
                plain = self._records.plain(self._txn, raw, stored, found[1]) if found is not None else b""
            except CorruptRecord:
                continue
            if plain:
                yield self._records.object_key(self._txn, raw, plain), plain

    def _rows(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        with self._txn.cursor(self._environment.objects) as cursor:
            on_row = cursor.set_range(prefix)
            while on_row and cursor.key().startswith(prefix):
                yield cursor.key(), cursor.value()
                on_row = cursor.next()

    def _expect_quota(self, key: ObjectKey, value: bytes) -> None:
        limits = limits_of(value)
        for kind, entries in limits.hard.items():
            used = self._used(key.cluster, limits, kind)
            row_key = keys.limit_key(key.cluster, limits.namespace, kind, key.name)
            self._limit_rows[row_key] = tuple(
                Limit(key.name, name, allowed, used(name), limits.scopes) for name, allowed in entries
            )
            self._rows_of[keys.cluster_part(key.cluster)] += 1

    def _used(self, cluster: str, limits: QuotaLimits, kind: GroupResource) -> Callable[[str], Amount]:
        """Return what the objects of a kind use of each entry about it."""
        types = self._environment.type_table.all(self._txn).items()
        found = [
            (keys.scope_prefix(number, Scope(type, cluster, limits.namespace)), type)
            for number, type in types
            if (type.group, type.resource) == kind
        ]
        if kind not in EVALUATORS:
            count = sum(1 for prefix, _ in found for _ in self._rows(prefix))
            return lambda name: count
        uses = [use_of_all(self._records, self._txn, prefix, type, limits.scopes) for prefix, type in found]
        return lambda name: in_all(use.get(name, 0) for use in uses)

    def _check_limits(self, row_key: bytes, found: tuple[Limit, ...]) -> None:
        expected = self._limit_rows.pop(row_key, None)
        if expected is None:
            self._report("limits", row_key, "row of no quota")
        elif expected != found:
            self._report("limits", row_key, "what is allowed or in use is wrong")

    def _check_totals(self, cluster: bytes, row: bytes) -> None:
        totals = unpack_totals(row)
        if totals.limits != self._rows_of.pop(cluster, 0):
            self._report("totals", cluster, "the number of limits is wrong")
        if totals.limit != self._allowed.pop(cluster, -1):
            self._report("totals", cluster, "the limit does not follow from the LogicalCluster")
        if totals.used >= 0 and totals.used != self._held(cluster):
            self._report("totals", cluster, "the number of objects is wrong")

    def _held(self, cluster: bytes) -> int:
        types = self._environment.type_table.all(self._txn)
        counted = [keys.scope_prefix(number, Scope(type)) for number, type in types.items() if is_counted(type)]
        return sum(sum(1 for _ in self._rows(prefix + cluster + b"\0")) for prefix in counted)
