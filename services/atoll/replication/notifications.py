"""Notifications of changed replicas, as log entries.

`replica_writer` sends them after each commit. A replica counts from its arrival, or from the moment its cluster's owner
becomes known; controllers are notified here in both cases, and when it ceases to count. Invariant: a notified change is
already in the store.
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
from atoll.replication.readable_pages import readable

_PAGE = 200


class ReplicaChange(NamedTuple):
    """One object as its shard sent it in a generation; `value` is empty for a deletion.

    `withheld`: the object exists, but is not held here any more.
    """

    key: ObjectKey
    value: bytes
    revision: int
    generation: int
    withheld: bool = False

    def replaces(self, before: tuple[Record, int] | None) -> bool:
        """Whether it replaces the row held now: the store's own rule (`contract.Replica`)."""
        if before is None:
            return bool(self.value)
        return (self.generation, self.revision) > (before[1], before[0].revision)


class OwnerChange(NamedTuple):
    """A cluster whose owner changed. None: no owner is known."""

    cluster: str
    before: Owner | None
    after: Owner | None


class ReplicaListener(Protocol):
    """What is notified; `control.manager.Manager` is one."""

    def wants_replicas(self, type: ResourceType) -> bool:
        """Whether entries of a type are of interest. Cheap."""

    def replicas_changed(self, entries: Sequence[LogEntry], count: int) -> None:
        """Replicas changed, began to count or ceased to count. All changes up to the apply count have been notified.
        A deleted entry carries its last value, and so does a modified one whose object is not held any more; revisions
        are those of the shard of origin."""


class ReplicaNotifier:
    """Notifies the listener, if one is set."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.listener: ReplicaListener | None = None

    async def notify(
        self, origin: str, changed: Sequence[tuple[ReplicaChange, Record | None]], owners: Sequence[OwnerChange]
    ) -> None:
        """Notify of changed rows of one shard, each with the row before, and of clusters whose owner changed."""
        listener = self.listener
        if listener is None:
            return
        with self._store.snapshot() as snapshot:
            replicas, count = snapshot.replicas, snapshot.replicas.count
            before = {each.cluster: each.before.shard if each.before is not None else "" for each in owners}
            entries = [
                _change_entry(change, row)
                for change, row in changed
                if listener.wants_replicas(change.key.type)
                and origin in (replicas.shard_of(change.key.cluster), before.get(change.key.cluster))
            ]
        for each in owners:
            entries += [entry async for entry in self._owner_entries(listener, each)]
        listener.replicas_changed(entries, count)

    async def _owner_entries(self, listener: ReplicaListener, change: OwnerChange) -> AsyncIterator[LogEntry]:
        """Every row of the old owner as deleted, then every row of the new one as added."""
        for owner, operation in ((change.before, Operation.DELETED), (change.after, Operation.ADDED)):
            if owner is None:
                continue
            with self._store.snapshot() as snapshot:
                types = snapshot.replicas.types_of(owner.shard, change.cluster)
            for type in filter(listener.wants_replicas, types):
                after: Position | None = None
                while page := self._page(owner.shard, Scope(type, change.cluster), after):
                    for record in page:
                        yield _entry(record.revision, operation, record.key, record.value)
                    after = position_after(page[-1].key)
                    await asyncio.sleep(0)

    def _page(self, origin: str, scope: Scope, after: Position | None) -> list[Record]:
        with self._store.snapshot() as snapshot:
            return readable(partial(snapshot.replicas.rows_of, origin), scope, after, _PAGE)


def _change_entry(change: ReplicaChange, before: Record | None) -> LogEntry:
    if change.value:
        operation = Operation.ADDED if before is None else Operation.MODIFIED
        return _entry(change.revision, operation, change.key, change.value)
    value, revision = (before.value, before.revision) if before is not None else (b"", 0)
    operation = Operation.MODIFIED if change.withheld else Operation.DELETED
    return _entry(max(change.revision, revision), operation, change.key, value)


def _entry(revision: int, operation: Operation, key: ObjectKey, value: bytes) -> LogEntry:
    return LogEntry(revision, operation, key, value, False, 0, 0, 0)
