"""Writes replicas: the rows, the cluster routes and the stream's mark in one transaction.

The replicas of all followed shards of a process (`shard_replica`) pass their changes to one `ReplicaWriter`. It has
the resolver decide which shard owns each cluster, submits, and notifies. One lock serialises all shards: a decision
must not be overtaken by a write of the rows it rests on. Invariants: a mark is never stored without the rows it
covers; a resolution that was interrupted is repeated at the next start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar

import msgspec
import structlog

from atoll.machinery.kcp.sharding.ownership import ROOT_SHARD, Claim, Owner, claim_of
from atoll.machinery.kcp.sharding.ownership_resolver import OwnershipResolver, Resolution
from atoll.machinery.meta.names import ROOT, ObjectKey, ResourceType
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.process.backoff import Backoff
from atoll.machinery.storage.contract import (
    ClusterRoute,
    CorruptRecord,
    Mark,
    Mutation,
    Position,
    Record,
    Replica,
    Scope,
    Snapshot,
    Store,
    StoreFull,
)
from atoll.machinery.storage.pages import position_after
from atoll.replication.metrics import MALFORMED, ReplicationMetrics
from atoll.replication.notifications import OwnerChange, ReplicaChange, ReplicaListener, ReplicaNotifier
from atoll.replication.ownership_rows import IncomingRows, OwnershipRows
from atoll.replication.readable_pages import readable
from atoll.replication.root_holders import ROOTS_MARK, RootHolders, mark, names_roots
from atoll.replication.root_types import RootTypes
from atoll.replication.stranger_rows import StrangerRows

log = structlog.get_logger()

#: Set while a resolution takes more than one transaction.
OWNERS_PENDING = "replication.unsettled"
_PAGE = 500
_BACKOFF = Backoff(0.1, 5.0)
#: How long a cancelled task waits for its write, so that the listener is notified of it.
_LAST_WRITE_S = 5.0
_NO_TYPES = RootTypes(ResourceType("", "", ""), ResourceType("", "", ""))

T = TypeVar("T")
#: Called with a shard, its changed rows (each with the record before) and the changed owners.
WrittenListener: TypeAlias = Callable[[str, Sequence[tuple[ReplicaChange, Record | None]], Sequence[OwnerChange]], None]


class MarkStore(Store, Protocol):
    """A store with marks."""

    def get_mark(self, name: str) -> bytes | None:
        """A mark, None if it was never set."""


class ReplicaWriter:
    """Writes the replicas of a process. `own` is this shard's name, "" for a process that is not a shard."""

    def __init__(self, store: MarkStore, own: str, metrics: ReplicationMetrics) -> None:
        self.store, self.own, self.metrics = store, own, metrics
        #: Root's types; until they are known, only the cluster `root` has an owner.
        self.types: RootTypes | None = None
        #: The shards that this process follows.
        self.origins: list[str] = []
        #: Called with the rows and owners of each write, if set.
        self.written: WrittenListener | None = None
        self._notifier = ReplicaNotifier(store)
        self._holders = RootHolders(own, store.get_mark(ROOTS_MARK))
        self._strangers = StrangerRows(metrics)
        self._lock = asyncio.Lock()

    @property
    def root_holders(self) -> Mapping[str, str]:
        """The shards that may hold roots, by cluster."""
        return self._holders.resolved

    def set_listener(self, listener: ReplicaListener) -> None:
        """Set what is notified of changes. Once, before the first change."""
        self._notifier.listener = listener

    async def apply(self, origin: str, changes: Sequence[ReplicaChange], then: Sequence[Mutation] = ()) -> None:
        """Write a shard's changes, what follows from them, and `then`. Waits while the store is full."""
        async with self._lock:
            await self._apply(origin, _newest(changes), then)

    async def resolve_all(self) -> None:
        """Resolve owners from all rows held: after an interrupted resolution, or when `types` became known."""
        async with self._lock:
            await self.write([Mark(OWNERS_PENDING, b"1")])
            await self._resolve_roots()
            for origin in (self.own, *self.origins) if self.types is not None else ():
                if origin:
                    await self._resolve_origin(origin)
            await self.write([Mark(OWNERS_PENDING, b"")])

    async def resolve_roots(self) -> None:
        """Resolve the roots whose holder changed, where Shards are this shard's own objects."""
        async with self._lock:
            await self._resolve_roots()

    async def route_root(self) -> None:
        """Route the cluster `root` to the shard `root`."""
        if self.own != ROOT_SHARD:
            await self.write([ClusterRoute(ROOT, ROOT_SHARD, 0)])

    async def resolve_workspace(self, cluster: str, name: str, claim: Claim) -> None:
        """Resolve a cluster on another shard that a Workspace of this shard names or named: route it if it has no
        route, and notify of the rows that its owner sent before it was known."""
        if self.types is None:
            return
        async with self._lock:
            resolution = Resolution()
            with self.store.snapshot() as snapshot:
                rows = self._rows(snapshot)
                owner, now = rows.seat(claim.cluster), claim_of(cluster, rows.workspace(self.own, cluster, name))
                resolver = OwnershipResolver(rows, resolution)
                resolver.workspace(self.own, cluster, name, claim)
                resolver.seated(claim.cluster)
            if owner is not None and now is not None and now.cluster == claim.cluster:
                await self._notifier.notify("", (), [OwnerChange(claim.cluster, None, owner)])
            await self._finish(resolution)

    async def release(self, origin: str, keys: Sequence[ObjectKey], is_needed: Callable[[str], bool]) -> None:
        """Drop rows that this process does not follow any more, and routes of clusters that it does not need.

        Nothing is concluded from their absence: the objects exist on. A route stays as long as its shard's row does:
        what else it rests on may be held and is not sent again, so it would not be learnt again.
        """
        async with self._lock:
            mutations: list[Mutation] = []
            with self.store.snapshot() as snapshot:
                for key in keys:
                    row, route = _row(snapshot, origin, key), snapshot.replicas.route_of(key.cluster)
                    if row is not None:
                        mutations.append(Replica(origin, key, b"", row[0].revision + 1, row[1]))
                    if route is None or key.type != LOGICAL_CLUSTERS or is_needed(key.cluster):
                        continue
                    if route.shard == origin or _row(snapshot, route.shard, key) is None:
                        mutations.append(ClusterRoute(key.cluster, "", route.generation))
            if mutations:
                await self.write(mutations)

    async def write(self, mutations: Sequence[Mutation]) -> list[int]:
        """Submit; try again while the store is full. Raises the store's other errors."""
        failures = 0
        while True:
            try:
                return await self.store.submit(mutations)
            except StoreFull as error:
                pause_s = _BACKOFF.delay_s(failures)
                log.warning("store full, replicas wait", error=str(error), again_s=pause_s)
            failures += 1
            await asyncio.sleep(pause_s)

    # --- one transaction ---

    async def _apply(self, origin: str, changes: Sequence[ReplicaChange], then: Sequence[Mutation]) -> None:
        resolution = Resolution()
        with self.store.snapshot() as snapshot:
            replaced = [(change, _row(snapshot, origin, change.key)) for change in changes]
            incoming = {(origin, change.key): change.value for change, row in replaced if change.replaces(row)}
            rows = self._rows(snapshot, incoming)
            resolver = OwnershipResolver(rows, resolution)
            if self.types is not None and _rename_holders(origin, replaced, self.types.shards):
                rows.holders = self._holders.read(snapshot, self.types.shards, incoming)
                then = [mark(rows.holders), *then]
                for cluster in self._holders.changed(rows.holders):
                    resolver.held(cluster)
            for change, row in replaced if self.types is not None else ():
                self._consider(resolver, origin, change.key, row[0].value if row is not None else None)
            owners = _owner_changes(resolver, snapshot)
            for change in changes:
                if change.key.type == LOGICAL_CLUSTERS:
                    self._strangers.note(origin, change.key.cluster, change.value, resolver.owner(change.key.cluster))
            self._strangers.report(snapshot)
        if resolution.pending:
            then = [Mark(OWNERS_PENDING, b"1"), *then]
        await _shielded(self._write_and_notify(origin, replaced, owners, then))
        self._holders.resolved = rows.holders
        if resolution.pending:
            await self._finish(resolution)
            await self.write([Mark(OWNERS_PENDING, b"")])

    def _consider(self, resolver: OwnershipResolver, origin: str, key: ObjectKey, before: bytes | None) -> None:
        """Pass a Workspace or a LogicalCluster to the resolver, also one that did not change: after an interruption
        between rows and decisions the same rows arrive again."""
        assert self.types is not None
        if key.type == self.types.workspaces:
            resolver.workspace(origin, key.cluster, key.name, claim_of(key.cluster, before))
        elif key.type == LOGICAL_CLUSTERS:
            resolver.logical_cluster(origin, key.cluster, before)

    async def _write_and_notify(
        self,
        origin: str,
        replaced: Sequence[tuple[ReplicaChange, tuple[Record, int] | None]],
        owners: Sequence[OwnerChange],
        then: Sequence[Mutation],
    ) -> None:
        """Write changes, each given with the row it replaces, the owners decided, and `then`; notify."""
        rows = [Replica(origin, each.key, each.value, each.revision, each.generation) for each, _ in replaced]
        results = await self._write_rows(origin, rows, [*_routes(owners), *then])
        changed = [
            (change, row[0] if row is not None else None)
            for (change, row), result in zip(replaced, results, strict=False)
            if result
        ]
        if changed:
            self.metrics.wrote(origin, len(changed))
        if self.written is not None:
            self.written(origin, changed, owners)
        await self._notifier.notify(origin, changed, owners)

    async def _write_rows(self, origin: str, rows: Sequence[Replica], then: Sequence[Mutation]) -> list[int]:
        """Write rows and `then` in one transaction. If a row is not an object, write one by one without it."""
        try:
            return (await self.write([*rows, *then]))[: len(rows)]
        except (msgspec.DecodeError, ValueError) as error:
            log.warning("replica is not an object", shard=origin, error=str(error))
        results: list[int] = []
        for row in rows:
            try:
                results += await self.write([row])
            except (msgspec.DecodeError, ValueError):
                self.metrics.refused(origin, MALFORMED)
                results.append(0)
        await self.write(then)
        return results

    # --- further transactions ---

    async def _finish(self, resolution: Resolution) -> None:
        """Resolve the rest, one page of steps a transaction."""
        while resolution.pending:
            with self.store.snapshot() as snapshot:
                owners = _owner_changes(OwnershipResolver(self._rows(snapshot), resolution), snapshot)
            if owners:
                await _shielded(self._write_and_notify("", (), owners, ()))
            await asyncio.sleep(0)

    async def _resolve_roots(self) -> None:
        if self.types is None:
            return
        resolution = Resolution()
        with self.store.snapshot() as snapshot:
            rows = self._rows(snapshot)
            holders = self._holders.read(snapshot, self.types.shards, {})
            resolver = OwnershipResolver(rows, resolution)
            for cluster in self._holders.changed(holders):
                resolver.held(cluster)
        if not resolution.pending:
            return
        self._holders.resolved = holders
        await self._finish(resolution)
        await self.write([mark(holders)])

    async def _resolve_origin(self, origin: str) -> None:
        assert self.types is not None
        resolution = Resolution()
        for type in (LOGICAL_CLUSTERS, self.types.workspaces):
            after: Position | None = None
            while page := self._page(origin, type, after):
                with self.store.snapshot() as snapshot:
                    resolver = OwnershipResolver(self._rows(snapshot), resolution)
                    for key in page:
                        self._consider(resolver, origin, key, None)
                await self._finish(resolution)
                after = position_after(page[-1])

    def _page(self, origin: str, type: ResourceType, after: Position | None) -> list[ObjectKey]:
        with self.store.snapshot() as snapshot:
            if origin == self.own:
                return [key for key, _ in snapshot.revisions(Scope(type), after, _PAGE)]
            records = readable(partial(snapshot.replicas.rows_of, origin), Scope(type), after, _PAGE)
            return [record.key for record in records]

    def _rows(self, snapshot: Snapshot, incoming: IncomingRows | None = None) -> OwnershipRows:
        rows = OwnershipRows(snapshot, self.own, self.types or _NO_TYPES, self.origins, incoming or {})
        rows.holders = self._holders.resolved
        return rows


async def _shielded(work: Coroutine[Any, Any, T]) -> T:
    """Finish work although the waiting task is cancelled, within `_LAST_WRITE_S`: a change that is written and not
    notified would never be notified, as the next notification has a later count."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    finally:
        if not task.done():
            await asyncio.wait({task}, timeout=_LAST_WRITE_S)
            task.cancel()


def _newest(changes: Iterable[ReplicaChange]) -> list[ReplicaChange]:
    """The newest change of each object: a batch may hold several."""
    newest: dict[ObjectKey, ReplicaChange] = {}
    for change in changes:
        other = newest.get(change.key)
        if other is None or change.revision >= other.revision:
            newest[change.key] = change
    return list(newest.values())


def _row(snapshot: Snapshot, origin: str, key: ObjectKey) -> tuple[Record, int] | None:
    try:
        return snapshot.replicas.row_of(origin, key)
    except CorruptRecord:
        return None


def _rename_holders(
    origin: str, replaced: Sequence[tuple[ReplicaChange, tuple[Record, int] | None]], shards: ResourceType
) -> bool:
    """Whether changes of a shard, each with the row it replaces, may change who holds a root."""
    return any(
        names_roots(origin, change.key, shards, change.value, row[0].value if row is not None else b"")
        for change, row in replaced
        if change.replaces(row)
    )


def _owner_changes(resolver: OwnershipResolver, snapshot: Snapshot) -> list[OwnerChange]:
    changes: list[OwnerChange] = []
    for cluster, after in resolver.decisions():
        route = snapshot.replicas.route_of(cluster)
        before = Owner(route.shard, route.generation) if route is not None else None
        changes.append(OwnerChange(cluster, before, after))
    return changes


def _routes(changes: Sequence[OwnerChange]) -> list[Mutation]:
    routes: list[Mutation] = []
    for change in changes:
        owner = change.after or Owner("", change.before.generation if change.before is not None else 0)
        routes.append(ClusterRoute(change.cluster, owner.shard, owner.generation))
    return routes
