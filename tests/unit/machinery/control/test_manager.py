"""The manager on a real store: every change becomes a key, and a restart repeats keys but skips none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Hashable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from atoll.machinery.control import manager as module
from atoll.machinery.control.manager import POSITION_MARK, Controller, ControllerMetrics, Manager
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.storage.contract import LogEntry, Operation, Scope
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from harness.data.stores import CONFIGMAPS, HandClock, create, delete, key, put, store_options
from harness.servers.nats import eventually

RETENTION_S = 60


class Noting(Controller):
    """A controller of ConfigMaps that records its keys; keys in `held` wait, and keys in `odd` fail."""

    workers = 2

    def __init__(self, store: LmdbStore, name: str = "noting") -> None:
        self.name, self._store = name, store
        self.turns: list[str] = []
        self.held: dict[str, asyncio.Event] = {}
        self.odd: set[str] = set()
        self.again: dict[str, float] = {}

    def watches(self, type: ResourceType) -> bool:
        return type == CONFIGMAPS

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        if entry.key.name in self.odd:
            raise ValueError("not understood")
        if entry.operation is not Operation.DELETED:
            yield entry.key.name

    def all_keys(self) -> Iterable[Hashable]:
        with self._store.snapshot() as snapshot:
            return [record.key.name for record in snapshot.scan(Scope(CONFIGMAPS))]

    async def reconcile(self, key: Any) -> float | None:
        if key in self.held:
            await self.held[key].wait()
        self.turns.append(key)
        return self.again.get(key)


class Deletions(Noting):
    """A controller that deletions alone concern; it records the operations that it is called for."""

    def __init__(self, store: LmdbStore) -> None:
        super().__init__(store, "deletions")
        self.entries: list[tuple[Operation, str]] = []

    def operations(self, type: ResourceType) -> Collection[Operation]:
        return {Operation.DELETED}

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        self.entries.append((entry.operation, entry.key.name))
        yield entry.key.name


class Inside(Noting):
    """A controller whose entries concern nothing outside their logical cluster."""

    def ends_with_cluster(self, type: ResourceType) -> bool:
        return True


class Shard:
    """A store that can be closed and opened again, and managers over it."""

    def __init__(self, directory: Path) -> None:
        self.clock = HandClock()
        self.options = store_options(directory / "store", log_retention_s=RETENTION_S)
        self.store = open_store(self.options, clock=self.clock.clock())
        self.registry = CollectorRegistry()

    async def reopen(self) -> None:
        await self.store.close()
        self.store = open_store(self.options, clock=self.clock.clock())

    def manager(self, *controllers: Any) -> Manager:
        self.registry = CollectorRegistry()
        return Manager(self.store, self.store, controllers, ControllerMetrics(self.registry))

    @asynccontextmanager
    async def running(self, *controllers: Any) -> AsyncIterator[Manager]:
        manager = self.manager(*controllers)
        task = asyncio.create_task(manager.run())
        try:
            yield manager
            assert not task.done() or task.result() is None
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def compact(self) -> None:
        """Let every entry of the log exceed its retention, and compact the log."""
        self.clock.pass_time(RETENTION_S + 1)
        assert await self.store.compact()

    @property
    def saved(self) -> int:
        return int((self.store.get_mark(POSITION_MARK) or b"-1").split()[0])

    @property
    def lagging(self) -> list[bytes]:
        """Controllers that list their keys after a restart."""
        return (self.store.get_mark(POSITION_MARK) or b"").split()[1:]

    @property
    def revision(self) -> int:
        with self.store.snapshot() as snapshot:
            return snapshot.revision


@pytest.fixture
async def shard(tmp_path: Path) -> AsyncIterator[Shard]:
    shard = Shard(tmp_path)
    yield shard
    await shard.store.close()


async def test_every_change_of_a_watched_type_is_reconciled(shard: Shard) -> None:
    controller = Noting(shard.store)
    async with shard.running(controller) as manager:
        first, *_ = await create(shard.store, "a", "b")
        await shard.store.submit([put(key("s", type=ResourceType("", "secrets")))])
        await eventually(manager.idle)
        await shard.store.submit([delete(key("a"), first)])
        await eventually(manager.idle)
    assert sorted(controller.turns) == ["a", "b"]


async def test_a_controller_is_asked_about_the_operations_that_concern_it_alone(shard: Shard) -> None:
    all_of_them, deletions = Noting(shard.store), Deletions(shard.store)
    async with shard.running(all_of_them, deletions) as manager:
        first, *_ = await create(shard.store, "a", "b")
        await eventually(manager.idle)
        await shard.store.submit([delete(key("a"), first)])
        await eventually(manager.idle)
    assert sorted(all_of_them.turns) == ["a", "b"]
    assert deletions.entries == [(Operation.DELETED, "a")]
    assert deletions.turns == ["a"]


async def test_what_ends_with_its_cluster_is_passed_to_controllers_that_look_further_alone(shard: Shard) -> None:
    """Entries of the cluster behind its end, as it is there again, and those of other clusters are passed to all."""
    async with shard.running(Noting(shard.store), Inside(shard.store, "inside")) as manager:
        await create(shard.store, "first")
        await eventually(manager.idle)
    own = key("cluster", cluster="going", namespace="", type=LOGICAL_CLUSTERS)
    made, _ = await shard.store.submit([put(own), put(key("ended", cluster="going"))])
    await shard.store.submit([delete(own, made)])
    await create(shard.store, "beside", cluster="other")
    await create(shard.store, "later", cluster="going")
    wide, inside = Noting(shard.store), Inside(shard.store, "inside")
    async with shard.running(wide, inside) as manager:
        await eventually(manager.idle)
    assert sorted(wide.turns) == ["beside", "ended", "later"]
    assert sorted(inside.turns) == ["beside", "later"]


async def test_state_from_before_the_first_start_is_listed(shard: Shard) -> None:
    await create(shard.store, "a", "b")
    controller = Noting(shard.store)
    async with shard.running(controller) as manager:
        await eventually(manager.idle)
    assert sorted(controller.turns) == ["a", "b"]


async def test_a_restart_goes_on_behind_what_was_done(shard: Shard) -> None:
    async with shard.running(Noting(shard.store)) as manager:
        await create(shard.store, "a")
        await eventually(manager.idle)
    await shard.reopen()
    await create(shard.store, "b")
    controller = Noting(shard.store)
    async with shard.running(controller) as manager:
        await eventually(manager.idle)
    assert controller.turns == ["b"]


async def test_the_position_saved_is_below_unfinished_work(shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SAVE_INTERVAL_S", 0.001)
    controller = Noting(shard.store)
    async with shard.running(controller) as manager:
        await create(shard.store, "before")
        await eventually(manager.idle)
        controller.held["slow"] = asyncio.Event()
        slow, last = await create(shard.store, "slow", "after")
        await eventually(lambda: "after" in controller.turns)
        await eventually(lambda: shard.saved == slow - 1)
        assert not manager.idle()
        controller.held["slow"].set()
        await eventually(lambda: shard.saved >= last)


async def test_what_was_unfinished_at_the_end_is_reconciled_after_a_restart(shard: Shard) -> None:
    controller = Noting(shard.store)
    async with shard.running(controller):
        controller.held["slow"] = asyncio.Event()
        await create(shard.store, "slow", "after")
        await eventually(lambda: controller.turns == ["after"])
    await shard.reopen()
    again = Noting(shard.store)
    async with shard.running(again) as manager:
        await eventually(manager.idle)
    assert "slow" in again.turns


async def test_a_log_that_does_not_reach_back_means_listing_from_state(shard: Shard) -> None:
    async with shard.running(Noting(shard.store)) as manager:
        await create(shard.store, "a")
        await eventually(manager.idle)
    await create(shard.store, "b")
    await shard.compact()
    await create(shard.store, "c")
    controller = Noting(shard.store)
    async with shard.running(controller) as manager:
        await eventually(manager.idle)
    assert sorted(controller.turns) == ["a", "b", "c"]


async def test_keys_listed_from_state_and_unfinished_survive_a_restart(shard: Shard) -> None:
    await create(shard.store, "listed")
    await shard.compact()
    await create(shard.store, "logged")
    controller = Noting(shard.store)
    controller.held["listed"] = asyncio.Event()
    async with shard.running(controller):
        await eventually(lambda: controller.turns == ["logged"])
    await shard.reopen()
    again = Noting(shard.store)
    async with shard.running(again) as manager:
        await eventually(manager.idle)
    assert "listed" in again.turns


async def test_an_entry_that_one_controller_cannot_read_stops_nobody(shard: Shard) -> None:
    odd, sound = Noting(shard.store, "odd"), Noting(shard.store, "sound")
    odd.odd.add("a")
    async with shard.running(odd, sound) as manager:
        await create(shard.store, "a", "b")
        await eventually(manager.idle)
    assert (odd.turns, sorted(sound.turns)) == (["b"], ["a", "b"])


async def test_depth_and_turns_are_measured_by_kubernetes_names(shard: Shard) -> None:
    controller = Noting(shard.store)
    controller.workers = 1
    async with shard.running(controller) as manager:
        await eventually(manager.idle)
        controller.held["a"] = asyncio.Event()
        await create(shard.store, "a", "b", "c")
        await eventually(lambda: b'workqueue_depth{name="noting"} 2.0' in generate_latest(shard.registry))
        controller.held["a"].set()
        await eventually(manager.idle)
        metrics = generate_latest(shard.registry)
    assert b'workqueue_depth{name="noting"} 0.0' in metrics
    assert b'workqueue_work_duration_seconds_count{name="noting"} 3.0' in metrics


async def test_a_key_that_is_always_looked_at_again_holds_the_position_back_for_a_while_only(
    shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SAVE_INTERVAL_S", 0.001)
    controller, other = Noting(shard.store), Noting(shard.store, "other")
    controller.again["pinned"] = 3600.0
    async with shard.running(controller, other):
        [pinned] = await create(shard.store, "pinned")
        await eventually(lambda: shard.saved == pinned - 1)
        assert not shard.lagging
        shard.clock.pass_time(module.MAX_HELD_BACK_US / 1e6 + 1)
        [late] = await create(shard.store, "late")
        await eventually(lambda: shard.saved == late)
        assert shard.lagging == [b"noting"]
    await shard.reopen()
    again, others = Noting(shard.store), Noting(shard.store, "other")
    async with shard.running(again, others) as manager:
        await eventually(manager.idle)
    assert sorted(again.turns) == ["late", "pinned"]
    assert others.turns == []


async def test_a_listing_gives_others_their_turn_and_is_not_done_before_its_end(
    shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LIST_BATCH", 10)
    await create(shard.store, *(f"n{number}" for number in range(40)))
    controller = Noting(shard.store)
    manager, turns = shard.manager(controller), 0
    task = asyncio.create_task(manager.run())
    while not controller.turns:
        turns += 1
        if turns == 2:
            assert manager.safe_point()[1] == ("noting",)
            assert not manager.idle()
        await asyncio.sleep(0)
    assert turns >= 4
    await eventually(manager.idle)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert len(controller.turns) == 40


async def test_a_commit_announced_before_the_log_shows_it_is_not_asked_for_in_a_spin(shard: Shard) -> None:
    controller, reads = Noting(shard.store), 0
    tail = shard.store.tail

    def counting(revision: int, limit: int = 500) -> list[LogEntry]:
        nonlocal reads
        reads += 1
        return tail(revision, limit)

    shard.store.tail = counting  # type: ignore[method-assign]
    async with shard.running(controller) as manager:
        await eventually(manager.idle)
        shard.store.hub.last += 1000
        before = reads
        await eventually(lambda: reads >= before + 3)
        turns = reads
        for _ in range(500):
            await asyncio.sleep(0)
        # A spin asks in each of them; the retries that a busy machine has time for meanwhile are few.
        assert reads <= turns + 50


class Learning(Noting):
    """A controller whose `all_keys` collects what `keys` needs, and counts its lists."""

    lists_at_start = True

    def __init__(self, store: LmdbStore) -> None:
        super().__init__(store, "learning")
        self.listed = 0

    def all_keys(self) -> Iterable[Hashable]:
        self.listed += 1
        return super().all_keys()


async def test_a_controller_that_collects_what_it_follows_lists_once_at_every_start(shard: Shard) -> None:
    first = Learning(shard.store)
    async with shard.running(first) as manager:
        await create(shard.store, "a", "b")
        await eventually(manager.idle)
    await shard.reopen()
    again, other = Learning(shard.store), Noting(shard.store)
    async with shard.running(again, other) as manager:
        await eventually(lambda: again.listed == 1 and manager.idle())
    assert (sorted(again.turns), other.turns) == (["a", "b"], [])
    await shard.compact()
    await shard.reopen()
    behind = Learning(shard.store)
    async with shard.running(behind) as manager:
        await eventually(lambda: sorted(behind.turns) == ["a", "b"] and manager.idle())
    assert (first.listed, behind.listed) == (1, 1)


async def test_a_controller_that_reconciles_in_a_new_way_lists_its_keys_once(shard: Shard) -> None:
    await create(shard.store, "a")
    turns = []
    for version in (0, 1, 1, 2, 2):
        controller = Noting(shard.store)
        controller.version = version
        async with shard.running(controller) as manager:
            await eventually(manager.idle)
        turns.append(controller.turns)
        await shard.reopen()
    assert turns == [["a"], ["a"], [], ["a"], []]
