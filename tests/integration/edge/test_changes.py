"""Changes of all shards for the controllers of the edge service, over a real nats-server and real stores."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from atoll.edge import followed
from atoll.edge.changes import Change, ChangeSource
from atoll.edge.shard_changes import BATCH
from atoll.edge.store import EdgeStore
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.stream.permissions import changes_permissions
from atoll.machinery.stream.server.config import NatsUser
from harness.models.shard_log import CONFIGMAPS
from harness.servers.in_process.followers import Archipelago
from harness.servers.nats import eventually

SHARDS = ("root", "east")
GADGETS = ResourceType("gadgets.example.com", "gadgets", "3f" * 32)
EDGE = NatsUser("edge-0", "secret", changes_permissions("edge-0", SHARDS, "root"))


def config_map(cluster: str, name: str) -> ObjectKey:
    return ObjectKey(CONFIGMAPS, cluster, "default", name)


class Handler:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.rereads: list[str] = []
        self.is_idle = True

    def changed(self, change: Change) -> None:
        self.changes.append(change)

    def reread(self, shard: str) -> None:
        self.rereads.append(shard)

    @property
    def names(self) -> list[str]:
        return [change.name for change in self.changes]


class Reader:
    """A process that reads changes, with its directory."""

    def __init__(self, sea: Archipelago, directory: Path) -> None:
        self.handler = Handler()
        self.store = EdgeStore(directory, allow_any_filesystem=True)
        self.source = ChangeSource(sea.access(EDGE), self.store, CollectorRegistry())

    async def until_read(self) -> None:
        await eventually(lambda: self.source.check() is None and bool(self.source._reading))

    async def until_changed(self, *names: str) -> None:
        await eventually(lambda: set(names) <= set(self.handler.names))


@asynccontextmanager
async def reading(sea: Archipelago, directory: Path, *, clusters: tuple[str, ...] = ("c1",)) -> AsyncIterator[Reader]:
    reader = Reader(sea, directory)
    reader.source.follow(reader.handler, clusters)
    task = asyncio.ensure_future(reader.source.run())
    try:
        yield reader
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        reader.store.close()


@pytest.fixture
async def sea(tmp_path: Path) -> AsyncIterator[Archipelago]:
    async with Archipelago(tmp_path, *SHARDS) as sea:
        await sea.with_users(EDGE)
        for name in SHARDS:
            await sea.shard("root").announce(name)
        sea.shard("east")
        yield sea


@pytest.mark.long
async def test_what_is_followed_is_told_of_every_shard_and_after_a_restart_what_was_missed(
    sea: Archipelago, tmp_path: Path
) -> None:
    root, east, there = sea.shard("root"), sea.shard("east"), tmp_path / "edge"
    await east.put(config_map("c1", "before"))
    async with reading(sea, there) as reader:
        await eventually(lambda: sorted(reader.handler.rereads) == ["east", "root"])
        await reader.until_read()
        await root.put(config_map("other", "unseen"))
        await root.put(config_map("c1", "one"))
        revision = await east.put(config_map("c1", "two"))
        await east.delete(config_map("c1", "two"))
        await eventually(lambda: len(reader.handler.changes) == 3)
        written, deleted = (change for change in reader.handler.changes if change.name == "two")
        assert written == Change("east", "c1", "", "configmaps", "core", "default", "two", revision, False)
        assert (deleted.deleted, deleted.revision > revision) == (True, True)
        # What is followed from now on is read from here on, though it came before the consumer.
        reader.source.follow(reader.handler, ("c1", "c2"))
        await root.put(config_map("c2", "three"))
        await reader.until_changed("three")
    await root.put(config_map("c2", "four"))
    async with reading(sea, there, clusters=("c1", "c2")) as reader:
        await reader.until_changed("four")
        assert reader.handler.names == ["four"], "what was handled is not told again"
        assert reader.handler.rereads == []


async def test_what_a_killed_process_had_not_done_is_told_again(sea: Archipelago, tmp_path: Path) -> None:
    root, there = sea.shard("root"), tmp_path / "edge"
    async with reading(sea, there) as reader:
        await eventually(lambda: len(reader.handler.rereads) == 2)
    async with reading(sea, there) as reader:
        await reader.until_read()
        reader.handler.is_idle = False
        await root.put(config_map("c1", "one"))
        await reader.until_changed("one")
    async with reading(sea, there) as reader:
        await reader.until_changed("one")
        assert reader.handler.rereads == []


async def test_of_what_waited_others_are_served_after_each_batch(sea: Archipelago, tmp_path: Path) -> None:
    root, there = sea.shard("root"), tmp_path / "edge"
    async with reading(sea, there) as reader:
        await eventually(lambda: len(reader.handler.rereads) == 2)
    names = [f"m{number}" for number in range(5 * BATCH)]
    await asyncio.gather(*(root.put(config_map("c1", name)) for name in names))
    async with reading(sea, there) as reader:
        at_once, handler = [0], reader.handler
        while handler.names != names:
            before = len(handler.changes)
            await asyncio.sleep(0)
            at_once.append(len(handler.changes) - before)
        assert 0 < max(at_once) <= BATCH


async def test_of_a_whole_stream_only_what_is_followed_is_told_and_quiet_parts_keep_their_place(
    sea: Archipelago, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed, "MAX_FILTERS", 1)
    root, there = sea.shard("root"), tmp_path / "edge"
    async with reading(sea, there) as reader:
        await eventually(lambda: len(reader.handler.rereads) == 2)
        reader.source.follow(reader.handler, ("c1", "c2"), (GADGETS.identity,))
        await reader.until_read()
        await root.put(ObjectKey(GADGETS, "far", "", "gadget"))
        await root.put(config_map("c1", "one"))
        await reader.until_changed("gadget", "one")
        for number in range(20):
            await root.put(config_map("other", f"o{number}"))
        await root.put(config_map("c2", "two"))
        await reader.until_changed("two")
        assert len(reader.handler.changes) == 3
    async with reading(sea, there, clusters=("c1", "c2")) as reader:
        await root.put(config_map("c1", "three"))
        await reader.until_changed("three")
        assert (reader.handler.names, reader.handler.rereads) == (["three"], [])


@pytest.mark.long
async def test_lost_history_is_told_and_a_lost_server_is_reported_and_made_up_for(
    sea: Archipelago, tmp_path: Path
) -> None:
    there = tmp_path / "edge"
    async with reading(sea, there) as reader:
        await eventually(lambda: len(reader.handler.rereads) == 2)
        await reader.until_read()
        address = sea.nats.server.address
        await sea.nats.stop()
        await eventually(lambda: "changes are not read of east" in (reader.source.check() or ""))
        await sea.shard("east").put(config_map("c1", "one"))
        await sea.nats.start()
        assert address == sea.nats.server.address
        await reader.until_changed("one")
        await reader.until_read()
        assert len(reader.handler.rereads) == 2
        east = sea.shard("east")
        copy = await east.keep_store()
        east.publish()
        await east.put(config_map("c1", "lost"))
        await reader.until_changed("lost")
        await east.restore(copy)
        east.publish()
        await eventually(lambda: reader.handler.rereads.count("east") == 2)
        await east.put(config_map("c1", "after"))
        await reader.until_changed("after")
