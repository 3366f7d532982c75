"""Reconcile the routes of this shard's Workspaces whose clusters are on other shards.

Scheduling writes the route and the Workspace in one transaction, so after a crash or a restore both exist or neither.
This controller does the rest, from the log: it applies the rows that the other shard sent before the route existed,
removes the routes of deleted Workspaces, and adds missing ones. Invariant: routes follow from stored Workspaces.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Any

from atoll.machinery.control.manager import Controller
from atoll.machinery.kcp.sharding.ownership import Claim, claim_of
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.storage.contract import CorruptRecord, LogEntry, Operation, Position, Scope, Snapshot
from atoll.machinery.storage.pages import PAGE, pages, position_after
from atoll.replication.replica_writer import ReplicaWriter

#: Number of Workspaces whose resolved claim is cached: resolving one again announces all rows of its cluster.
_REMEMBERED = 4096


class RemoteRoutes(Controller):
    """Key: (parent cluster, Workspace name, claim)."""

    name = "ownership"
    workers = 1

    def __init__(self, writer: ReplicaWriter, workspaces: ResourceType) -> None:
        self._writer, self._type = writer, workspaces
        self._done: LruCache[tuple[str, str], Claim] = LruCache(_REMEMBERED)

    def watches(self, type: ResourceType) -> bool:
        return type == self._type

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        where = entry.key.cluster, entry.key.name
        claim = claim_of(entry.key.cluster, entry.value)
        if claim is None or claim.shard == self._writer.own:
            return
        if entry.operation is Operation.DELETED or self._done.get(where) != claim:
            yield *where, claim

    def all_keys(self) -> Iterator[Hashable]:
        for page in pages(self._read, lambda row: position_after(row[0])):
            for key, claim in page:
                if claim is not None and claim.shard != self._writer.own:
                    yield key.cluster, key.name, claim

    def _read(self, after: Position | None) -> list[tuple[ObjectKey, Claim | None]]:
        with self._writer.store.snapshot() as snapshot:
            found = snapshot.revisions(Scope(self._type), after, PAGE)
            return [(key, _claim(snapshot, key)) for key, _ in found]

    async def reconcile(self, key: Any) -> float | None:
        cluster, name, claim = key
        await self._writer.resolve_workspace(cluster, name, claim)
        with self._writer.store.snapshot() as snapshot:
            stands = snapshot.revision_of(ObjectKey(self._type, cluster, "", name))
        if stands:
            self._done.put((cluster, name), claim)
        return None


def _claim(snapshot: Snapshot, key: ObjectKey) -> Claim | None:
    """Return the claim of a Workspace; None for a corrupt record, which the store reports."""
    try:
        record = snapshot.get(key)
    except CorruptRecord:
        return None
    return claim_of(key.cluster, record.value) if record is not None else None
