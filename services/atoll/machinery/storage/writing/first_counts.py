"""The first count of a quota in a large namespace, made in slices before the transaction of the quota.

`LmdbStore` awaits `counted` and hands the counts to the writer with the submit. Each slice of keys has a transaction of
its own; the log tells what came and went in a slice since then. So writers wait for no count, however many objects
there are, and a quota holds from its first moment. Invariant: `FirstCount.at` is the number of objects in the
transaction that it is given; None where the log no longer tells.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from atoll.machinery.kinds.kubernetes.usage.charge import Amount
from atoll.machinery.kinds.kubernetes.usage.evaluators import EVALUATORS, GroupResource
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.meta.types import RESOURCE_QUOTAS
from atoll.machinery.storage.contract import Mutation, Operation, Put, Scope
from atoll.machinery.storage.encoding import keys
from atoll.machinery.storage.encoding.rows import unpack_counter, unpack_head, unpack_limits
from atoll.machinery.storage.environment.databases import Environment
from atoll.machinery.storage.limits import Limit
from atoll.machinery.storage.quota_limits import QuotaLimits, limits_of
from atoll.machinery.storage.reading.records import Records
from atoll.machinery.storage.writing import first_use
from atoll.machinery.storage.writing.first_use import FirstUse, Scopes
from atoll.machinery.storage.writing.sliced_reading import SlicedReading

if TYPE_CHECKING:
    from atoll.machinery.storage.environment.lmdb_types import Txn

#: Rows that one transaction reads for a count. The writer counts as few by itself.
SLICE_ROWS = 2000


class FirstCount(SlicedReading):
    """The number of objects in one namespace, by the prefix of their keys."""

    def __init__(self, environment: Environment, prefix: bytes) -> None:
        super().__init__(environment, prefix)
        self._count = 0

    def at(self, txn: Txn) -> int | None:
        """Return the number of objects in a transaction that is not older than the count."""
        if self._environment.compacted(txn) > self._at:
            return None
        return self._followed(txn)[0]

    def _read(self) -> bool:
        after, last, left = self._ends[-1] if self._ends else b"", b"", SLICE_ROWS
        with self._environment.reading() as txn, txn.cursor(self._environment.objects) as cursor:
            self._revisions.append(self._environment.last(txn))
            if cursor.set_range(max(self._prefix, after)):
                for key in cursor.iternext(keys=True, values=False):
                    if not left or not key.startswith(self._prefix):
                        break
                    if key != after:
                        last, left = key, left - 1
        self._count += SLICE_ROWS - left
        if not left:
            self._ends.append(last)
        return not left

    def _follow(self) -> bool:
        with self._environment.reading() as txn:
            if self._environment.compacted(txn) > self._at:
                return False
            self._count, self._at, is_more = self._followed(txn, SLICE_ROWS)
        return is_more

    def _followed(self, txn: Txn, limit: int = 0) -> tuple[int, int, bool]:
        """Return the count with up to `limit` further entries of the log (0: all), its revision, and whether there are
        more."""
        count, at, read = self._count, self._at, 0
        with txn.cursor(self._environment.log) as cursor:
            on_row = cursor.set_range(keys.revision_key(at + 1))
            while on_row and (not limit or read < limit):
                at, read = keys.revision_of_key(cursor.key()), read + 1
                head = unpack_head(cursor.value())
                counts = head.operation != Operation.MODIFIED and head.key.startswith(self._prefix)
                if counts and self._is_later(head.key, at):
                    count += 1 if head.operation == Operation.ADDED else -1
                on_row = cursor.next()
        return count, at, on_row


#: By the prefix of the keys, and the scopes of the quota.
Counts = Mapping[tuple[bytes, Scopes], FirstCount | FirstUse]


def standing_use(
    standing: Sequence[tuple[Limit, ...]], quota: QuotaLimits, kind: GroupResource
) -> Callable[[str], Amount] | None:
    """Return the use of a quota's entries about a kind that standing rows of the same namespace tell; None: not all."""
    if kind not in EVALUATORS:
        # Every entry counts the same objects.
        return (lambda name: standing[0][0].used) if standing else None
    known = {limit.resource: limit.used for row in standing for limit in row if limit.scopes == quota.scopes}
    return known.__getitem__ if all(name in known for name, _ in quota.hard[kind]) else None


def to_count(records: Records, mutations: Sequence[Mutation]) -> Counts:
    """Return the counts to make before a submit: of what its quotas limit and nothing counts yet, if that is much."""
    found: dict[tuple[bytes, Scopes], FirstCount | FirstUse] = {}
    total = 0
    with records.environment.reading() as txn:
        for mutation in mutations:
            if isinstance(mutation, Put) and mutation.key.type == RESOURCE_QUOTAS:
                quota = limits_of(mutation.value)
                for type, count in _uncounted(records.environment, txn, mutation.key.cluster, quota):
                    prefix = _prefix(records.environment, txn, type, mutation.key.cluster, quota.namespace)
                    if (type.group, type.resource) in EVALUATORS:
                        found[prefix, quota.scopes] = FirstUse(records, prefix, type, quota.scopes)
                        # It takes longer to read an object than its key.
                        total += count * (SLICE_ROWS // first_use.SLICE_ROWS)
                    else:
                        found[prefix, ()] = FirstCount(records.environment, prefix)
                        total += count
    return found if total > SLICE_ROWS else {}


def _uncounted(
    environment: Environment, txn: Txn, cluster: str, quota: QuotaLimits
) -> Iterator[tuple[ResourceType, int]]:
    """Yield the types that a quota limits without a standing row, and how many objects the cluster has of each."""
    assert environment.limits is not None, "a writer has opened every database"
    for kind in quota.hard:
        if not quota.namespace and kind not in EVALUATORS:
            # Counters tell it.
            continue
        if standing_use(_standing(environment, txn, cluster, quota.namespace, kind), quota, kind) is not None:
            continue
        for identity in environment.type_table.identities(txn, *kind):
            type = ResourceType(*kind, identity)
            row_key = keys.cluster_row_key(cluster, environment.type_table.number(txn, type))
            row = txn.get(row_key, db=environment.clusters)
            if row is not None and (count := unpack_counter(row).count):
                yield type, count


def _standing(
    environment: Environment, txn: Txn, cluster: str, namespace: str, kind: GroupResource
) -> list[tuple[Limit, ...]]:
    assert environment.limits is not None, "a writer has opened every database"
    found, prefix = [], keys.limit_prefix(cluster, namespace, kind)
    with txn.cursor(environment.limits.limits) as cursor:
        on_row = cursor.set_range(prefix)
        while on_row and cursor.key().startswith(prefix):
            found.append(unpack_limits(cursor.value()))
            on_row = cursor.next()
    return found


def _prefix(environment: Environment, txn: Txn, type: ResourceType, cluster: str, namespace: str) -> bytes:
    return keys.scope_prefix(environment.type_table.number(txn, type), Scope(type, cluster, namespace))


async def counted(records: Records, mutations: Sequence[Mutation], turn: asyncio.Lock) -> Counts:
    """Make the counts that a submit needs, one at a time in the process; return them."""
    found = to_count(records, mutations)
    if found:
        async with turn:
            for each in found.values():
                await each.run()
    return found
