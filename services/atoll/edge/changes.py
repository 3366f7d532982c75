"""Changes of objects, told by the changes streams of all shards: what happened to which object, and nothing of it.

The placement translator follows the workspaces with placements and their mailboxes here; contents it reads from the
API. Events come without payloads, so they prove nothing: each is a reason to look, and what was looked at counts.
Delivery is at least once. Invariant: a position is stored only while nobody has anything left to do, so what a killed
process had not done is told again.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Collection, Mapping
from typing import Protocol

import msgspec
import structlog
from prometheus_client import CollectorRegistry

from atoll.edge.changes_metrics import ChangesMetrics
from atoll.edge.followed import Followed
from atoll.edge.shard_changes import ShardChanges
from atoll.edge.site_shards import SiteShards
from atoll.edge.store import POSITIONS, EdgeStore
from atoll.events.event import Event
from atoll.machinery.process.tasks import stop
from atoll.machinery.stream.connection import Access

log = structlog.get_logger()

SAVE_S = 1.0


class Change(msgspec.Struct, frozen=True):
    """A change of one object. `identity` is as in `ResourceType`; `revision` that of the change."""

    shard: str
    cluster: str
    group: str
    resource: str
    identity: str
    namespace: str
    name: str
    revision: int
    deleted: bool


class ChangeHandler(Protocol):
    """Who is told. Both calls return at once: they note what to look at."""

    def changed(self, change: Change) -> None:
        """An object may have changed. The changes of a cluster come in order."""

    def reread(self, shard: str) -> None:
        """Any object on a shard may have changed: its changes were missed, or are read for the first time."""

    @property
    def is_idle(self) -> bool:
        """Whether all that was told is done."""


class ChangeSource:
    """`follow`, then `run` it as a task. A cluster may be on any shard: all are read."""

    def __init__(self, access: Access, store: EdgeStore, registry: CollectorRegistry) -> None:
        self._access, self._store = access, store
        self._followed: Followed[ChangeHandler] = Followed()
        self._shards = SiteShards(access, self._wake)
        self._metrics = ChangesMetrics(registry)
        self._reading: dict[str, tuple[ShardChanges, asyncio.Task[None]]] = {}
        self._woken, self._unsaved = asyncio.Event(), asyncio.Event()

    def follow(self, handler: ChangeHandler, clusters: Collection[str] = (), identities: Collection[str] = ()) -> None:
        """Set all that a handler follows. What is listed after this call and what it is told make a whole."""
        self._followed.follow(handler, clusters, identities)
        for reading, _ in self._reading.values():
            reading.filters_changed()
        self._wake()

    def check(self) -> str | None:
        """Return which shards are not read, and why; None if all are."""
        silent = [f"{name}: {each.interruption}" for name, (each, _) in self._reading.items() if each.interruption]
        return f"changes are not read of {'; '.join(sorted(silent))}" if silent else None

    @property
    def interruption(self) -> str:
        """Why NATS is not reached now; empty if it is, also while nothing is followed."""
        return "changes are not read" if self._shards.behind_s else self.check() or ""

    async def run(self) -> None:
        """Read until cancelled. Raises what a handler raises."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._shards.run())
                tasks.create_task(self._keep_positions())
                while True:
                    self._woken.clear()
                    if self._followed:
                        await self._adjust(tasks)
                    await self._woken.wait()
        finally:
            self._store.write({POSITIONS: self._positions()})

    def _wake(self) -> None:
        self._woken.set()

    async def _adjust(self, tasks: asyncio.TaskGroup) -> None:
        """Read the shards of the site, and no other."""
        names = self._shards.names
        for name in self._reading.keys() - set(names):
            reading, task = self._reading.pop(name)
            await stop(task)
            self._metrics.forget(name)
            self._store.write({POSITIONS: {name.encode(): None}})
            log.info("changes of a shard are read no more", shard=name)
        for name in names:
            if name not in self._reading:
                position = self._store.positions.get(name.encode())
                reading = ShardChanges(
                    self._access, name, self._followed, functools.partial(self._tell, name), position
                )
                self._reading[name] = reading, tasks.create_task(reading.run())
                self._metrics.follow(name, reading)

    def _tell(self, shard: str, event: Event) -> None:
        self._unsaved.set()
        if event.key is None:
            self._metrics.reread(shard, event.reason)
            for handler in self._followed.followers:
                handler.reread(shard)
            return
        change = _change(shard, event)
        for handler in self._followed.who(change.cluster, change.identity):
            handler.changed(change)

    # --- positions

    async def _keep_positions(self) -> None:
        while True:
            await self._unsaved.wait()
            await asyncio.sleep(SAVE_S)
            if rows := self._positions():
                self._unsaved.clear()
                await asyncio.to_thread(self._store.write, {POSITIONS: rows})

    def _positions(self) -> Mapping[bytes, bytes | None]:
        """The positions of all shards; nothing while somebody has something left to do."""
        if not all(handler.is_idle for handler in self._followed.followers):
            return {}
        found = {name.encode(): each.position for name, (each, _) in self._reading.items()}
        return {name: position for name, position in found.items() if position}


def _change(shard: str, event: Event) -> Change:
    key = event.key
    assert key is not None, "an event of an object"
    return Change(
        shard,
        key.cluster,
        key.type.group,
        key.type.resource,
        key.type.identity,
        key.namespace,
        key.name,
        event.revision,
        event.operation == "DELETED",
    )
