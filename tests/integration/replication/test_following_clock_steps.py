"""A shard whose clock steps: its revisions still rise, and followers miss nothing and accept no future revision."""

from __future__ import annotations

from pathlib import Path

from atoll.machinery.meta.names import ROOT, ObjectKey
from atoll.machinery.meta.types import API_EXPORTS
from atoll.machinery.storage.clock import MAX_STEP_S
from atoll.machinery.storage.lmdb_store import open_store
from atoll.machinery.storage.maintenance.fsck import fsck
from harness.data.stores import START_S, HandClock
from harness.servers.in_process.followers import Archipelago, Member

HOUR_S, DAY_S = 3600.0, 86_400.0
EXPORT = ObjectKey(API_EXPORTS, ROOT, "", "e")


async def started(member: Member, now_s: float) -> HandClock:
    """Start a shard again at a time of the day; it publishes."""
    await member.publish_no_more()
    await member.store.close()
    time = HandClock(now_s)
    member.store = open_store(member.options, clock=time.clock())
    member.publish()
    return time


async def followed(root: Member, reader: Member) -> int:
    """Write the export and wait until the follower has it; return its revision."""
    revision = await root.put(EXPORT)
    await reader.until(lambda view: view.replicas.revision_of(EXPORT) == revision)
    return revision


async def test_what_a_shard_writes_is_followed_whatever_its_clock_does(tmp_path: Path) -> None:
    async with Archipelago(tmp_path, "root") as sea:
        root, reader = sea.member("root"), await sea.reader()
        time = await started(root, START_S)
        await root.announce("root")
        first = await followed(root, reader)
        time.wall_s -= HOUR_S
        second = await followed(root, reader)
        time.wall_s += 2 * HOUR_S
        third = await followed(root, reader)
        assert first < second < third < first + MAX_STEP_S * 1_000_000
        # A start with a clock behind the log continues from the log.
        await started(root, START_S - DAY_S)
        fourth = await followed(root, reader)
        assert third < fourth < third + 1000
        # A start with a clock ahead accepts it, and a later start behind it continues from there.
        await started(root, START_S + DAY_S)
        fifth = await followed(root, reader)
        assert fifth > third + int(DAY_S / 2) * 1_000_000
        await started(root, START_S)
        assert fifth < await followed(root, reader) < fifth + 1000
        await root.delete(EXPORT)
        await reader.until(lambda view: view.replicas.get(EXPORT) is None)
        await reader.follow_no_more()
        await reader.store.close()
        assert fsck(reader.options) == []
        reader.store = open_store(reader.options)


async def test_a_follower_whose_clock_steps_follows_all_the_same(tmp_path: Path) -> None:
    async with Archipelago(tmp_path, "root") as sea:
        root, reader = sea.shard("root"), sea.member("proxy-front")
        await root.announce("root")
        for now_s in (START_S, START_S - DAY_S, START_S + DAY_S):
            await reader.follow_no_more()
            await reader.store.close()
            time = HandClock(now_s)
            reader.store = open_store(reader.options, clock=time.clock())
            await reader.follow()
            await followed(root, reader)
            time.wall_s -= HOUR_S
            await followed(root, reader)
