"""What arrives from other shards is written here: rows, routes and the mark of their stream in one transaction.

The applications of all followed shards of a process hand their arrivals to one `ReplicaWriter`. It asks the reckoning
whose word counts now, submits, and has `announcing` tell who listens what came to count, changed or ceased to count.
One hand at a time: a decision and the rows that it rests on must not be overtaken by another shard's. Invariants: a
mark is never kept without the rows it speaks of; a reckoning that was cut off is begun again at the next start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec
import structlog

from atoll.machinery.kcp.sharding.ownership import ROOT_SHARD, Claim, Owner, claim_of
from atoll.machinery.kcp.sharding.ownership_resolver import OwnershipResolver
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
from atoll.replication.ownership_rows import OwnershipRows, RootTypes, readable

log = structlog.get_logger()

#: Set while a reckoning is under way in more than one transaction.
OWNERS_PENDING = "replication.unsettled"
_PAGE = 500
_BACKOFF = Backoff(0.1, 5.0)
#: What who is cancelled waits for a write, so that what it changes is told.
_LAST_WRITE_S = 5.0

T = TypeVar("T")


class MarkStore(Store, Protocol):
    """A store with marks."""

    def get_mark(self, name: str) -> bytes | None:
        """A mark, None if it was never set."""


class ReplicaWriter:
    """Writes what other shards published. `own` is this shard's name, "" for a process that is none."""

    def __init__(self, store: MarkStore, own: str, metrics: ReplicationMetrics) -> None:
        self.store, self.own, self.metrics = store, own, metrics
        #: Root's types; until they are known nothing but root's own cluster counts.
        self.types: RootTypes | None = None
        #: Whom this process follows.
        self.origins: list[str] = []
        self._announcer = ReplicaNotifier(store)
        self._lock = asyncio.Lock()

    def tell(self, listener: ReplicaListener) -> None:
        """Have somebody told of arrivals. Once, before the first."""
        self._announcer.listener = listener

    async def take(self, origin: str, arrivals: Sequence[ReplicaChange], then: Sequence[Mutation] = ()) -> None:
        """Write what a shard sent, with what follows from it and `then`. Waits for room where the store is full."""
        async with self._lock:
            await self._take(origin, _last(arrivals), then)

    async def settle(self) -> None:
        """Reckon from everything that is there: after a reckoning was cut off, or when `types` became known."""
        async with self._lock:
            await self.write([Mark(OWNERS_PENDING, b"1")])
            for origin in (self.own, *self.origins) if self.types is not None else ():
                if origin:
                    await self._settle_all(origin)
            await self.write([Mark(OWNERS_PENDING, b"")])

    async def name_root(self) -> None:
        """The cluster `root` lies on the shard `root`."""
        if self.own != ROOT_SHARD:
            await self.write([ClusterRoute(ROOT, ROOT_SHARD, 0)])

    async def reckon(self, cluster: str, name: str, claim: Claim) -> None:
        """A Workspace of this shard's own names a cluster elsewhere, or did: route it if nobody has, look at what was
        sent from it, and announce that."""
        if self.types is None:
            return
        async with self._lock:
            known = self._known()
            reckoning = OwnershipResolver(known)
            with self.store.snapshot() as snapshot:
                known.view = snapshot
                seat, now = known.seat(claim.cluster), claim_of(cluster, known.workspace(self.own, cluster, name))
                reckoning.workspace(self.own, cluster, name, claim)
                reckoning.seated(claim.cluster)
            if seat is not None and now is not None and now.cluster == claim.cluster:
                await self._announcer.tell("", (), [OwnerChange(claim.cluster, None, seat)])
            await self._finish(reckoning, known)

    async def write(self, mutations: Sequence[Mutation]) -> list[int]:
        """Submit, again and again where there is no room. Raises what else the store raises."""
        failures = 0
        while True:
            try:
                return await self.store.submit(mutations)
            except StoreFull as error:
                pause_s = _BACKOFF.delay_s(failures)
                log.warning("no room for what other shards publish", error=str(error), again_s=pause_s)
            failures += 1
            await asyncio.sleep(pause_s)

    # --- one transaction ---

    async def _take(self, origin: str, arrivals: Sequence[ReplicaChange], then: Sequence[Mutation]) -> None:
        known = self._known()
        reckoning = OwnershipResolver(known)
        with self.store.snapshot() as snapshot:
            known.view = snapshot
            befores = [_before(snapshot, origin, arrival) for arrival in arrivals]
            for arrival, before in zip(arrivals, befores, strict=True):
                if arrival.follows(before):
                    known.arrive(origin, arrival.key, arrival.value)
            if self.types is not None:
                for arrival, before in zip(arrivals, befores, strict=True):
                    self._consider(reckoning, origin, arrival, before)
            turns = _turns(reckoning, snapshot)
        await _uncut(
            self._write_and_tell(
                origin,
                list(zip(arrivals, befores, strict=True)),
                turns,
                [Mark(OWNERS_PENDING, b"1"), *then] if reckoning.pending else then,
            )
        )
        known.settled()
        if reckoning.pending:
            await self._finish(reckoning, known)
            await self.write([Mark(OWNERS_PENDING, b"")])

    async def _write_and_tell(
        self,
        origin: str,
        arrivals: Sequence[tuple[ReplicaChange, tuple[Record, int] | None]],
        turns: Sequence[OwnerChange],
        then: Sequence[Mutation],
    ) -> None:
        """Rows, each with what it was, and what was decided, with `then`."""
        rows = [Replica(origin, each.key, each.value, each.revision, each.generation) for each, _ in arrivals]
        results = await self._write_rows(origin, rows, [*_routes(turns), *then])
        changed = [
            (arrival, before[0] if before is not None else None)
            for (arrival, before), result in zip(arrivals, results, strict=False)
            if result
        ]
        if changed:
            self.metrics.wrote(origin, len(changed))
        await self._announcer.tell(origin, changed, turns)

    def _consider(
        self, reckoning: OwnershipResolver, origin: str, arrival: ReplicaChange, before: tuple[Record, int] | None
    ) -> None:
        """Tell the reckoning of a Workspace or a LogicalCluster, also of one that is there already: whoever was cut off
        behind the rows hands them in again."""
        assert self.types is not None
        key, value = arrival.key, before[0].value if before is not None else None
        if key.type == self.types.workspaces:
            reckoning.workspace(origin, key.cluster, key.name, claim_of(key.cluster, value))
        elif key.type == LOGICAL_CLUSTERS:
            reckoning.logical_cluster(origin, key.cluster, value)

    async def _write_rows(self, origin: str, rows: Sequence[Replica], then: Sequence[Mutation]) -> list[int]:
        """Rows and what goes with them in one transaction; where one is not an object, that one is left out."""
        try:
            return (await self.write([*rows, *then]))[: len(rows)]
        except (msgspec.DecodeError, ValueError) as error:
            log.warning("row of another shard is no object", shard=origin, error=str(error))
        results: list[int] = []
        for row in rows:
            try:
                results += await self.write([row])
            except (msgspec.DecodeError, ValueError):
                self.metrics.refused(origin, MALFORMED)
                results.append(0)
        await self.write(then)
        return results

    # --- what follows in more than one ---

    async def _finish(self, reckoning: OwnershipResolver, known: OwnershipRows) -> None:
        while reckoning.pending:
            with self.store.snapshot() as snapshot:
                known.view = snapshot
                turns = _turns(reckoning, snapshot)
            if turns:
                await _uncut(self._write_and_tell("", (), turns, ()))
            await asyncio.sleep(0)

    async def _settle_all(self, origin: str) -> None:
        assert self.types is not None
        known = self._known()
        reckoning = OwnershipResolver(known)
        for type in (LOGICAL_CLUSTERS, self.types.workspaces):
            after: Position | None = None
            while page := self._page(origin, type, after):
                with self.store.snapshot() as snapshot:
                    known.view = snapshot
                    for key in page:
                        if type == LOGICAL_CLUSTERS:
                            reckoning.logical_cluster(origin, key.cluster, None)
                        else:
                            reckoning.workspace(origin, key.cluster, key.name, None)
                await self._finish(reckoning, known)
                after = position_after(page[-1])

    def _page(self, origin: str, type: ResourceType, after: Position | None) -> list[ObjectKey]:
        with self.store.snapshot() as snapshot:
            if origin == self.own:
                return [key for key, _ in snapshot.revisions(Scope(type), after, _PAGE)]
            records = readable(partial(snapshot.replicas.rows_of, origin), Scope(type), after, _PAGE)
            return [record.key for record in records]

    def _known(self) -> OwnershipRows:
        return OwnershipRows(self.own, self.types or _NO_TYPES, self.origins)


_NO_TYPES = RootTypes(ResourceType("", "", ""), ResourceType("", "", ""))


async def _uncut(work: Coroutine[Any, Any, T]) -> T:
    """Have work done though whoever waits for it is cancelled, if that takes no longer than `_LAST_WRITE_S`: of what is
    written nobody would hear again, as the next batch is told with a later count."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    finally:
        if not task.done():
            await asyncio.wait({task}, timeout=_LAST_WRITE_S)
            task.cancel()


def _last(arrivals: Iterable[ReplicaChange]) -> list[ReplicaChange]:
    """What is last of each object: a batch may hold several states of one."""
    found: dict[ObjectKey, ReplicaChange] = {}
    for arrival in arrivals:
        known = found.get(arrival.key)
        if known is None or arrival.revision >= known.revision:
            found[arrival.key] = arrival
    return list(found.values())


def _before(snapshot: Snapshot, origin: str, arrival: ReplicaChange) -> tuple[Record, int] | None:
    try:
        return snapshot.replicas.row_of(origin, arrival.key)
    except CorruptRecord:
        return None


def _turns(reckoning: OwnershipResolver, snapshot: Snapshot) -> list[OwnerChange]:
    found: list[OwnerChange] = []
    for cluster, seat in reckoning.decisions():
        route = snapshot.replicas.route_of(cluster)
        found.append(OwnerChange(cluster, Owner(route.shard, route.generation) if route is not None else None, seat))
    return found


def _routes(turns: Sequence[OwnerChange]) -> list[Mutation]:
    routes: list[Mutation] = []
    for turn in turns:
        seat = turn.after or Owner("", turn.before.generation if turn.before is not None else 0)
        routes.append(ClusterRoute(turn.cluster, seat.shard, seat.generation))
    return routes
