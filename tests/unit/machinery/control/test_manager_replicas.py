"""Changes of replicas become keys of the controllers that watch them; a restart repeats work and never skips any."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from atoll.machinery.control.manager import (
    POSITION_MARK,
    REPLICA_COUNT_MARK,
    Controller,
    ControllerMetrics,
    Manager,
    ReplicaController,
)
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.types import API_EXPORTS, CLUSTER_ROLES
from atoll.machinery.storage.contract import ClusterRoute, LogEntry, Operation, Replica
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from harness.data.stores import CONFIGMAPS, create, store_options
from harness.servers.nats import eventually

CLUSTER = "abcdefgh12345678"


class Inward(Controller):
    """A controller of objects of this shard."""

    name, workers = "inward", 1

    def __init__(self) -> None:
        self.turns: list[str] = []
        self.listed = 0

    def watches(self, type: ResourceType) -> bool:
        return type == CONFIGMAPS

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        yield entry.key.name

    def all_keys(self) -> Iterable[Hashable]:
        self.listed += 1
        return ()

    async def reconcile(self, key: Any) -> float | None:
        self.turns.append(key)
        return None


class Outgoing(Inward, ReplicaController):
    """A controller that watches exports of other shards too, and waits while `go_on` is clear."""

    name = "outgoing"

    def __init__(self) -> None:
        super().__init__()
        self.go_on = asyncio.Event()
        self.go_on.set()

    def watches_replicas(self, type: ResourceType) -> bool:
        return type == API_EXPORTS

    def keys_of_replica(self, entry: LogEntry) -> Iterable[Hashable]:
        if entry.key.name == "odd":
            raise ValueError("not understood")
        yield f"{entry.key.name} {entry.operation.name}"

    async def reconcile(self, key: Any) -> float | None:
        await self.go_on.wait()
        return await super().reconcile(key)


def arrival(name: str, type: ResourceType = API_EXPORTS, operation: Operation = Operation.ADDED) -> LogEntry:
    return LogEntry(7, operation, ObjectKey(type, CLUSTER, "", name), b"{}", False, 0, 0, 0)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[LmdbStore]:
    store = open_store(store_options(tmp_path / "store"))
    yield store
    await store.close()


@asynccontextmanager
async def running(store: LmdbStore, *controllers: Any) -> AsyncIterator[Manager]:
    manager = Manager(store, store, controllers, ControllerMetrics(CollectorRegistry()))
    task = asyncio.create_task(manager.run())
    try:
        await eventually(lambda: manager.synced)
        yield manager
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def replicate(store: LmdbStore, name: str, revision: int = 1) -> int:
    """Store a row of another shard; return the apply count."""
    key = ObjectKey(API_EXPORTS, CLUSTER, "", name)
    results = await store.submit([ClusterRoute(CLUSTER, "east"), Replica("east", key, b'{"metadata":{}}', revision, 1)])
    return max(results)


async def test_an_arrival_reaches_those_who_ask_for_its_type(store: LmdbStore) -> None:
    inward, outgoing = Inward(), Outgoing()
    async with running(store, inward, outgoing) as manager:
        assert manager.wants_replicas(API_EXPORTS)
        assert not manager.wants_replicas(CLUSTER_ROLES)
        gone = arrival("b", operation=Operation.DELETED)
        manager.replicas_changed([arrival("a"), arrival("odd"), arrival("r", CLUSTER_ROLES), gone], 3)
        await eventually(lambda: outgoing.turns == ["a ADDED", "b DELETED"])
    assert inward.turns == []


async def test_a_restart_lists_keys_only_where_the_count_is_another(store: LmdbStore) -> None:
    count = await replicate(store, "a")
    first = Outgoing()
    async with running(store, Inward(), first) as manager:
        manager.replicas_changed([], count)
        await eventually(manager.idle)
    inward, outgoing = Inward(), Outgoing()
    async with running(store, inward, outgoing):
        assert (inward.listed, outgoing.listed) == (0, 0)
    await replicate(store, "b")
    async with running(store, inward, outgoing):
        assert (inward.listed, outgoing.listed) == (0, 1)


async def test_what_arrived_and_is_not_done_is_listed_after_a_restart(store: LmdbStore) -> None:
    count = await replicate(store, "a")
    outgoing = Outgoing()
    async with running(store, outgoing) as manager:
        manager.replicas_changed([], count)
    assert store.get_mark(REPLICA_COUNT_MARK) == str(count).encode()
    outgoing.go_on.clear()
    async with running(store, outgoing) as manager:
        manager.replicas_changed([arrival("b")], await replicate(store, "b"))
    assert store.get_mark(REPLICA_COUNT_MARK) == str(count).encode()
    again = Outgoing()
    async with running(store, again):
        assert again.listed == 1


async def test_arrivals_hold_no_position_of_the_log_back(store: LmdbStore) -> None:
    outgoing = Outgoing()
    outgoing.go_on.clear()
    async with running(store, outgoing, Inward()) as manager:
        manager.replicas_changed([arrival("b")], 1)
        last = (await create(store, "x"))[-1]
        # The unfinished key of the log may hold the position back, the unfinished key of the replica may not.
        await eventually(lambda: manager.safe_point()[0] >= last - 1)
    assert int((store.get_mark(POSITION_MARK) or b"0").split()[0]) >= last - 1
