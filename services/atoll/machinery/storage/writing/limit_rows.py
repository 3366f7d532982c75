"""The rows of limits that one submit changes: quotas appear and go, creates and deletes are charged.

`submit_transaction` calls it behind each write that changes the number of objects or may change what one uses, and for
each write of a ResourceQuota or LogicalCluster. A cluster has a row in `totals` only while something limits it or its
objects are counted in all; the rows in `limits` are one a quota and kind. A new row is filled by one count, of much
before the transaction (`first_counts`, `first_use`); later writes add to it.
Invariant: the use in a row is that of the objects in its scope; an increase that a limit forbids fails the submit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from atoll.machinery.kinds.kubernetes.usage.charge import Amount, in_all
from atoll.machinery.kinds.kubernetes.usage.evaluators import EVALUATORS, GroupResource
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.types import COPIES_GROUP, EVENTS, RESOURCE_QUOTAS
from atoll.machinery.storage.contract import Gate, GateState, GuardFailed, Scope
from atoll.machinery.storage.encoding import keys
from atoll.machinery.storage.encoding.rows import (
    NO_TOTALS,
    Totals,
    pack_limits,
    pack_totals,
    unpack_gate,
    unpack_limits,
    unpack_totals,
)
from atoll.machinery.storage.environment.databases import LimitDatabases
from atoll.machinery.storage.environment.type_table import NO_TYPE
from atoll.machinery.storage.limits import BOOTSTRAP, Charges, Limit, WithinLimits, is_counted, total_by_setting
from atoll.machinery.storage.quota_limits import QuotaLimits, limits_of, total_limit
from atoll.machinery.storage.reading.records import Records
from atoll.machinery.storage.writing.commit_batch import CommitBatch, Counters
from atoll.machinery.storage.writing.first_counts import Counts, FirstCount, standing_use
from atoll.machinery.storage.writing.first_use import FirstUse, use_of_all

if TYPE_CHECKING:
    from atoll.machinery.storage.environment.lmdb_types import Txn

#: Quotas that may limit the same kind in the same scope: each create reads the row of every one.
MAX_QUOTAS_OF_KIND = 100
#: Of the rows that follow from a ResourceQuota; those of the first (`True`) were of numbers of objects alone.
VERSION = 2


class LimitRows:
    """The limits of one submit's transaction."""

    def __init__(self, batch: CommitBatch, txn: Txn, counters: Counters, counts: Counts) -> None:
        self._batch, self._txn, self._counters, self._counts = batch, txn, counters, counts
        self._environment = batch.records.environment

    @property
    def _databases(self) -> LimitDatabases:
        databases = self._environment.limits
        assert databases is not None, "a writer has opened every database"
        return databases

    # --- creates and deletes

    def charge(self, key: ObjectKey, before: bytes | None, after: bytes | None) -> None:
        """Charge a write to every limit of an object, given its JSON. Raise GuardFailed where it may not be."""
        totals = self._totals(key.cluster)
        if totals is None and not self._by_setting(key.cluster):
            return
        count = (after is not None) - (before is not None)
        if count and is_counted(key.type):
            totals = self._charge_total(totals or NO_TOTALS, key, count)
        if totals is not None and totals.limits:
            self._charge_quotas(key, before, after)

    def _charge_total(self, totals: Totals, key: ObjectKey, count: int) -> Totals:
        allowed = totals.limit if totals.limit >= 0 else self._by_setting(key.cluster)
        used = totals.used
        if used >= 0:
            used += count
        elif allowed:
            used = self._objects_in(key.cluster)
        if count > 0 and allowed and used > allowed and self._is_limited(key):
            raise GuardFailed(WithinLimits(key, (Limit("", "", allowed, used - count),)))
        if used != totals.used:
            totals = replace(totals, used=used)
            self._put_totals(key.cluster, totals)
        return totals

    def _charge_quotas(self, key: ObjectKey, before: bytes | None, after: bytes | None) -> None:
        """Charge the quotas of the object's namespace, then those of the whole cluster."""
        kind = (key.type.group, key.type.resource)
        rows = self._rows(keys.limit_prefix(key.cluster, key.namespace, kind))
        if key.namespace:
            rows += self._rows(keys.limit_prefix(key.cluster, "", kind))
        if not rows:
            return
        charges = Charges(key, before, after)
        refusal = charges.refusal([limit for _, limits in rows for limit in limits])
        if refusal is not None:
            raise GuardFailed(refusal)
        for row_key, limits in rows:
            more = charges.amounts(limits)
            if any(more):
                charged = tuple(limit.plus(each) for limit, each in zip(limits, more, strict=True))
                self._txn.put(row_key, pack_limits(charged), db=self._databases.limits)

    def _by_setting(self, cluster: str) -> int:
        return total_by_setting(self._batch.options.total_object_limit, cluster)

    def _is_limited(self, key: ObjectKey) -> bool:
        """Whether the total applies: to a cluster that is Ready, and not to what it needs to become so."""
        raw = self._txn.get(keys.cluster_row_key(key.cluster, NO_TYPE), db=self._environment.clusters)
        gate = unpack_gate(raw) if raw is not None else Gate()
        return gate.state is GateState.OPEN and (key.type, key.name) not in BOOTSTRAP

    # --- limits that appear, change and go

    def set_quota(self, key: ObjectKey, old: bytes | None, new: bytes | None) -> None:
        """Make the rows of a ResourceQuota follow its JSON; None: it does not exist.

        Raise GuardFailed for a quota too many of one kind.
        """
        before, after = _of_quota(key, old), _of_quota(key, new)
        if before == after:
            return
        stays = set(after.hard) if before.namespace == after.namespace else set()
        for kind in set(before.hard) - stays:
            row_key = keys.limit_key(key.cluster, before.namespace, kind, key.name)
            self._txn.delete(row_key, db=self._databases.limits)
        for kind, entries in after.hard.items():
            used = self._use(key, after, kind)
            limits = tuple(Limit(key.name, name, allowed, used(name), after.scopes) for name, allowed in entries)
            row_key = keys.limit_key(key.cluster, after.namespace, kind, key.name)
            self._txn.put(row_key, pack_limits(limits), db=self._databases.limits)
        totals = self._totals(key.cluster) or NO_TOTALS
        count = totals.limits + len(after.hard) - len(before.hard)
        self._put_totals(key.cluster, replace(totals, limits=count))

    def set_total(self, key: ObjectKey, value: bytes | None) -> None:
        """Make the limit of all objects follow a LogicalCluster's JSON; None: it does not exist."""
        allowed, totals = total_limit(value), self._totals(key.cluster) or NO_TOTALS
        if allowed == totals.limit:
            return
        used = totals.used
        if allowed > 0 and used < 0:
            used = self._objects_in(key.cluster)
        elif allowed <= 0 and not self._by_setting(key.cluster):
            used = NO_TOTALS.used
        self._put_totals(key.cluster, replace(totals, limit=allowed, used=used))

    def _use(self, key: ObjectKey, quota: QuotaLimits, kind: GroupResource) -> Callable[[str], Amount]:
        """Return what is used of each entry about a kind. Raise GuardFailed for a quota too many."""
        standing = self._rows(keys.limit_prefix(key.cluster, quota.namespace, kind))
        if len(standing) >= MAX_QUOTAS_OF_KIND and key.name not in {limits[0].quota for _, limits in standing}:
            resource = ResourceType(*kind).group_resource
            raise GuardFailed(WithinLimits(key, (Limit("", resource, MAX_QUOTAS_OF_KIND, len(standing)),)))
        known = standing_use([limits for _, limits in standing], quota, kind)
        if known is not None:
            return known
        identities = self._environment.type_table.identities(self._txn, *kind)
        types = [ResourceType(*kind, each) for each in identities]
        if kind not in EVALUATORS:
            count = sum(self._objects_of(type, key.cluster, quota.namespace) for type in types)
            return lambda name: count
        uses = [self._use_of(type, key.cluster, quota) for type in types]
        return lambda name: in_all(use.get(name, 0) for use in uses)

    def _objects_of(self, type: ResourceType, cluster: str, namespace: str) -> int:
        number = self._batch.type_number(self._txn, type)
        count = self._counters.get(keys.cluster_row_key(cluster, number)).count
        if not count or not namespace:
            return count
        prefix = keys.scope_prefix(number, Scope(type, cluster, namespace))
        known = self._counts.get((prefix, ()))
        found = known.at(self._txn) if isinstance(known, FirstCount) else None
        return self._count(prefix) if found is None else found

    def _use_of(self, type: ResourceType, cluster: str, quota: QuotaLimits) -> Mapping[str, Amount]:
        """Return what the objects of an evaluated kind use of quotas with the scopes."""
        prefix = keys.scope_prefix(self._batch.type_number(self._txn, type), Scope(type, cluster, quota.namespace))
        known = self._counts.get((prefix, quota.scopes))
        found = known.at(self._txn) if isinstance(known, FirstUse) else None
        return use_of_all(self._batch.records, self._txn, prefix, type, quota.scopes) if found is None else found

    def _count(self, prefix: bytes) -> int:
        found = 0
        with self._txn.cursor(self._environment.objects) as cursor:
            if cursor.set_range(prefix):
                for row_key in cursor.iternext(keys=True, values=False):
                    if not row_key.startswith(prefix):
                        break
                    found += 1
        return found

    # --- rows

    def forget_quotas(self) -> None:
        """Delete the rows of all quotas."""
        self._txn.drop(self._databases.limits, delete=False)
        with self._txn.cursor(self._databases.totals) as cursor:
            found = [(row_key, unpack_totals(row)) for row_key, row in cursor]
        for row_key, totals in found:
            self._txn.put(row_key, pack_totals(replace(totals, limits=0)), db=self._databases.totals)

    def _objects_in(self, cluster: str) -> int:
        events = self._batch.type_number(self._txn, EVENTS)
        copies = self._environment.type_table.of_group(self._txn, COPIES_GROUP)
        uncounted = copies if events == NO_TYPE else [events, *copies]
        others = sum(self._counters.get(keys.cluster_row_key(cluster, number)).count for number in uncounted)
        return self._counters.objects_in(cluster) - others

    def _rows(self, prefix: bytes) -> list[tuple[bytes, tuple[Limit, ...]]]:
        found = []
        with self._txn.cursor(self._databases.limits) as cursor:
            on_row = cursor.set_range(prefix)
            while on_row and (row_key := cursor.key()).startswith(prefix):
                found.append((row_key, unpack_limits(cursor.value())))
                on_row = cursor.next()
        return found

    def _totals(self, cluster: str) -> Totals | None:
        raw = self._txn.get(keys.cluster_part(cluster), db=self._databases.totals)
        return unpack_totals(raw) if raw is not None else None

    def _put_totals(self, cluster: str, totals: Totals) -> None:
        """Write the row of a cluster, or delete one that says nothing."""
        row_key, db = keys.cluster_part(cluster), self._databases.totals
        if totals.limits or totals.limit >= 0 or totals.used > 0:
            self._txn.put(row_key, pack_totals(totals), db=db)
        else:
            self._txn.delete(row_key, db=db)


def _of_quota(key: ObjectKey, value: bytes | None) -> QuotaLimits:
    return limits_of(value) if value is not None else QuotaLimits(key.name, key.namespace, {})


def derive(records: Records, batch: CommitBatch, txn: Txn) -> None:
    """Make the rows of every ResourceQuota: of a file of a version that made none, or fewer."""
    rows = LimitRows(batch, txn, Counters(batch, txn), {})
    rows.forget_quotas()
    number = batch.type_number(txn, RESOURCE_QUOTAS)
    with txn.cursor(records.environment.objects) as cursor:
        on_row = number != NO_TYPE and cursor.set_range(keys.scope_prefix(number, Scope(RESOURCE_QUOTAS)))
        while on_row and keys.type_number_of(raw := cursor.key()) == number:
            stored, found = cursor.value(), records.live_version(txn, raw)
            if found is not None:
                plain = records.plain(txn, raw, stored, found[1])
                rows.set_quota(records.object_key(txn, raw, plain), None, plain)
            on_row = cursor.next()
