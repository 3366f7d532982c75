"""Who is told of arrivals, and what: rows that count now, or did until now, as entries of a log.

`projection` calls this behind each commit. A row counts from its arrival, or from the moment when its cluster's owner
became known; in both cases controllers hear of it here, and of the end likewise. Invariant: what is told stands in the
store already, so whoever reads on being told finds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from atoll.machinery.kcp.sharding.ownership import Owner
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.storage.contract import LogEntry, Operation, Position, Record, Scope, Store
from atoll.machinery.storage.pages import position_after
from atoll.replication.ownership_rows import readable

_PAGE = 200


class ReplicaChange(NamedTuple):
    """One object as a shard sent it in a generation; `value` is empty for one that is gone."""

    key: ObjectKey
    value: bytes
    revision: int
    generation: int

    def follows(self, before: tuple[Record, int] | None) -> bool:
        """Whether it replaces what there is: the store's own rule (`contract.Replica`)."""
        if before is None:
            return bool(self.value)
        return (self.generation, self.revision) > (before[1], before[0].revision)


class OwnerChange(NamedTuple):
    """A cluster that came to lie elsewhere. None: nowhere that is known."""

    cluster: str
    before: Owner | None
    after: Owner | None


class ReplicaListener(Protocol):
    """Who is told; `control.manager.Manager` is one."""

    def wants_replicas(self, type: ResourceType) -> bool:
        """Whether entries of a type are of interest. Cheap."""

    def replicas_changed(self, entries: Sequence[LogEntry], count: int) -> None:
        """Entries of objects of other shards that changed, count now or did until now. Everything up to the apply count
        has been told. `value` of what is gone is what it was; revisions are those of the shard of origin."""


class ReplicaNotifier:
    """Tells one listener, if there is one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.listener: ReplicaListener | None = None

    async def tell(
        self, origin: str, changed: Sequence[tuple[ReplicaChange, Record | None]], turns: Sequence[OwnerChange]
    ) -> None:
        """A shard's rows changed, each with what it was, and clusters came to lie elsewhere."""
        listener = self.listener
        if listener is None:
            return
        with self._store.snapshot() as snapshot:
            there, count = snapshot.replicas, snapshot.replicas.count
            owners = {turn.cluster: turn.before.shard if turn.before is not None else "" for turn in turns}
            entries = [
                _entry(arrival, before)
                for arrival, before in changed
                if listener.wants_replicas(arrival.key.type)
                and origin in (there.shard_of(arrival.key.cluster), owners.get(arrival.key.cluster))
            ]
        for turn in turns:
            entries += [entry async for entry in self._turned(listener, turn)]
        listener.replicas_changed(entries, count)

    async def _turned(self, listener: ReplicaListener, turn: OwnerChange) -> AsyncIterator[LogEntry]:
        for seat, operation in ((turn.before, Operation.DELETED), (turn.after, Operation.ADDED)):
            if seat is None:
                continue
            with self._store.snapshot() as snapshot:
                types = snapshot.replicas.types_of(seat.shard, turn.cluster)
            for type in filter(listener.wants_replicas, types):
                after: Position | None = None
                while page := self._page(seat.shard, Scope(type, turn.cluster), after):
                    for record in page:
                        yield _told(record.key, operation, record)
                    after = position_after(page[-1].key)
                    await asyncio.sleep(0)

    def _page(self, origin: str, scope: Scope, after: Position | None) -> list[Record]:
        with self._store.snapshot() as snapshot:
            return readable(partial(snapshot.replicas.rows_of, origin), scope, after, _PAGE)


def _entry(arrival: ReplicaChange, before: Record | None) -> LogEntry:
    if arrival.value:
        operation = Operation.ADDED if before is None else Operation.MODIFIED
        return LogEntry(arrival.revision, operation, arrival.key, arrival.value, False, 0, 0, 0)
    value, revision = (before.value, before.revision) if before is not None else (b"", 0)
    return LogEntry(max(arrival.revision, revision), Operation.DELETED, arrival.key, value, False, 0, 0, 0)


def _told(key: ObjectKey, operation: Operation, record: Record) -> LogEntry:
    return LogEntry(record.revision, operation, key, record.value, False, 0, 0, 0)
