"""What other shards say about subscriptions of an identity, and what this shard makes of it.

An identity's resources are on every shard. The shard of the export decides who may have them (`keeper`, there) and says
so in the state stream; here `keeper` makes this shard's part from what is said, under the same slot, and says where it
begins. A shard that joins later finds all rows. Invariants: only the owner of an export's cluster, whose export has the
identity, is believed; what is said no more has no consumer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator
from functools import partial
from itertools import chain

import msgspec
import structlog

from atoll.machinery.meta.types import API_EXPORTS, LOGICAL_CLUSTERS
from atoll.machinery.storage.contract import Position, Record, ReplicaView, Scope, Snapshot, Store
from atoll.machinery.storage.pages import PAGE, each_record, pages, position_after
from atoll.machinery.stream.subjects import CHANGES, stream_name
from atoll.machinery.stream.tenants.subscription_consumer import subscription_filters
from atoll.machinery.stream.tenants.subscriptions import StreamPart
from atoll.replication.readable_pages import readable
from atoll.shard.subscriptions.access_check import EXPIRED, AccessDecision
from atoll.shard.subscriptions.records import StoredSubscription
from atoll.shard.subscriptions.shared_rows import SHARED_SCOPE, SharedSubscription, read_shared, shared_key

log = structlog.get_logger()

#: How long an answer waits for the parts of shards that should have one.
PARTS_S = 2.0
_UNKNOWN = "the workspace of the export, or its identity, is not known here"


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    identity_hash: str = ""


class _Export(msgspec.Struct, frozen=True):
    status: _Status = _Status()


_export = msgspec.json.Decoder(_Export)


class OtherShards:
    """Reads the rows of other shards. `names` returns the shards of the site but this one."""

    def __init__(self, store: Store, names: Callable[[], Collection[str]]) -> None:
        self._store, self._names = store, names

    def stamp(self) -> tuple[int, tuple[object, ...]]:
        """The apply count, and what changes with all that is read here; the rows are not decoded."""
        with self._store.snapshot() as snapshot:
            replicas = snapshot.replicas
            rows = [(name, each.revision) for name in self._names() for each in _records(snapshot, name)]
            return replicas.count, (*rows, *(replicas.last(type, "") for type in (API_EXPORTS, LOGICAL_CLUSTERS)))

    async def changed(self, count: int) -> None:
        """Wait until replicas changed since an apply count."""
        await self._store.replicated(count)

    def wanted(self) -> list[SharedSubscription]:
        """What shards say of subscriptions that were asked of them."""
        with self._store.snapshot() as snapshot:
            rows = ((name, read_shared(each)) for name in self._names() for each in _records(snapshot, name))
            return [row for name, row in rows if row is not None and row.home == name]

    def decision(self, stored: StoredSubscription) -> tuple[AccessDecision, float] | None:
        """What the home of a subscription decided, and when the credential ends; None if it has no such one."""
        with self._store.snapshot() as snapshot:
            row = _row(snapshot, stored.home, stored)
            if row is None or row.home != stored.home or row.slot != stored.slot or row.request != stored.request:
                return None
            if not is_of_export(snapshot.replicas, row):
                return AccessDecision("Revoked", _UNKNOWN, sources=(row.cluster,)), row.expires_s
        if 0 < row.expires_s <= time.time():
            return AccessDecision("Revoked", EXPIRED, sources=(row.cluster,)), row.expires_s
        decided = AccessDecision(row.state, row.reason, row.selected, row.refused, (row.cluster,))
        return decided, row.expires_s

    def parts(self, stored: StoredSubscription) -> tuple[StreamPart, ...]:
        """The parts of a subscription on other shards that there are now."""
        if not stored.request.identity:
            return ()
        types = [each.type for each in stored.selected]
        found: list[StreamPart] = []
        with self._store.snapshot() as snapshot:
            for name in sorted(self._names()):
                row = _row(snapshot, name, stored)
                if row is not None and types:
                    filters = tuple(subscription_filters(name, types, ""))
                    found.append(StreamPart(name, stream_name(CHANGES, name), filters, row.begin))
        return tuple(found)

    async def until_parts(self, stored: StoredSubscription) -> None:
        """Wait until each shard says where its part begins, for as long as an answer may take."""
        end_s = time.monotonic() + PARTS_S
        while (left_s := end_s - time.monotonic()) > 0:
            count, _ = self.stamp()
            if len(self.parts(stored)) >= len(self._names()):
                return
            try:
                async with asyncio.timeout(left_s):
                    await self.changed(count)
            except TimeoutError:
                log.info("subscription without the parts of all shards", cluster=stored.cluster)


def is_of_export(replicas: ReplicaView, row: SharedSubscription) -> bool:
    """Whether a row is about the own resources of an export in a cluster that its shard owns."""
    identity = row.request.identity
    if not identity or replicas.shard_of(row.cluster) != row.home:
        return False
    if any(each.identity != identity for each in row.selected):
        return False
    return has_identity(replicas, row.cluster, identity)


def has_identity(replicas: ReplicaView, cluster: str, identity: str) -> bool:
    """Whether a cluster of another shard has an export of an identity."""
    exports = each_record(replicas, Scope(API_EXPORTS, cluster))
    return any(_export.decode(each.value).status.identity_hash == identity for each in exports)


def _records(snapshot: Snapshot, shard: str) -> Iterator[Record]:
    def page(after: Position | None) -> list[Record]:
        return readable(partial(snapshot.replicas.rows_of, shard), SHARED_SCOPE, after, PAGE)

    return chain.from_iterable(pages(page, lambda record: position_after(record.key)))


def _row(snapshot: Snapshot, shard: str, stored: StoredSubscription) -> SharedSubscription | None:
    found = snapshot.replicas.row_of(shard, shared_key(stored))
    return read_shared(found[0]) if found is not None else None
