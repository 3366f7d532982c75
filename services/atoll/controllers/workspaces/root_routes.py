"""Reconcile the routes of roots on the shard `root`, where Shards are own objects and arrive as no replica.

Watches: Shards. Writes: the routes of the roots whose holder changed. Other shards resolve them as the Shards arrive.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from atoll.machinery.control.manager import Controller
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.storage.contract import LogEntry, Operation
from atoll.replication.replica_writer import ReplicaWriter
from atoll.replication.root_holders import roots_in

_ALL = "roots"


class RootRoutes(Controller):
    """Has one key: all roots are resolved at once."""

    name = "roots"
    workers = 1
    lists_at_start = True

    def __init__(self, writer: ReplicaWriter, shards: ResourceType) -> None:
        self._writer, self._type = writer, shards
        #: The annotation of each Shard that has one: most writes of Shards are heartbeats.
        self._annotations: dict[str, str] = {}

    def watches(self, type: ResourceType) -> bool:
        return type == self._type

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        name = entry.key.name
        roots = roots_in(entry.value) if entry.operation is not Operation.DELETED else ""
        if roots != self._annotations.get(name, ""):
            self._annotations[name] = roots
            yield _ALL
        elif entry.operation is Operation.DELETED:
            self._annotations.pop(name, None)
            yield _ALL

    def all_keys(self) -> Iterable[Hashable]:
        return [_ALL]

    async def reconcile(self, key: Any) -> float | None:
        await self._writer.resolve_roots()
        return None
