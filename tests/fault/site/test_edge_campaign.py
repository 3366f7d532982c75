"""An edge cluster of a site with one or two broken parts under edits ends as its workspaces say, and keeps the rest."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from fault.site.edge_world import LONG_S, Fault, running
from harness.clients.api import eventually
from harness.seeds import seed_of_run
from harness.servers.small_disk import leave, small_disk

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

PAIRS = 12
DISK_BYTES = 16 << 30


@contextlib.contextmanager
def full(disk: Path, is_refused: Callable[[], bool]) -> Iterator[None]:
    """Inside the context every store on a disk has measured that less than its reserve is left."""
    leave(disk, 0.01)
    try:
        eventually(is_refused, "every store has measured its room")
        yield
    finally:
        leave(disk, 0.9)


async def test_each_part_of_a_site_breaks_alone_in_every_way_under_edits(tmp_path: Path) -> None:
    seed = seed_of_run(19)
    async with running(tmp_path, seed) as world:
        rounds: list[tuple[Fault, ...]] = [(), *((fault,) for fault in world.faults())]
        await asyncio.to_thread(world.run, rounds, seed)


async def test_two_parts_of_a_site_break_together_under_edits(tmp_path: Path) -> None:
    seed = seed_of_run(20)
    async with running(tmp_path, seed) as world:
        dice, rounds = random.Random(seed), list[tuple[Fault, ...]]()
        while len(rounds) < PAIRS:
            one, other = dice.sample(world.faults(), 2)
            if one[0] != other[0]:
                rounds.append((one, other))
        await asyncio.to_thread(world.run, rounds, seed)


async def test_a_mailbox_that_is_deleted_leaves_the_edge_running_until_it_is_registered_with_the_new_one(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, seed_of_run(21)) as world:
        await asyncio.to_thread(world.round)
        before = await asyncio.to_thread(world.uids)
        target = await asyncio.to_thread(world.lose_mailbox)
        assert await asyncio.to_thread(world.uids) == before, "without a mailbox the edge goes on"
        await world.machine.register(target)
        await asyncio.to_thread(partial(world.round, before=before))


@pytest.mark.parametrize("place", ["center", "cluster"])
async def test_a_disk_that_fills_up_at_one_side_holds_up_what_is_new_and_takes_nothing_away(
    tmp_path: Path, place: str
) -> None:
    with small_disk(tmp_path / "image", tmp_path / place, DISK_BYTES) as disk:
        async with running(tmp_path, seed := seed_of_run(22)) as world:
            is_refused = world.is_center_full if place == "center" else world.is_cluster_full
            rounds: list[tuple[Fault, ...]] = [(), ((f"disk of {place}", partial(full, disk, is_refused)),)]
            await asyncio.to_thread(world.run, [*rounds, *rounds], seed)
            assert bool(world.refused) == (place == "center")


async def test_a_center_of_yesterday_deletes_nothing_at_the_edge_before_its_next_list(tmp_path: Path) -> None:
    async with running(tmp_path, seed_of_run(23)) as world:
        await asyncio.to_thread(world.round)
        yesterday = await asyncio.to_thread(world.back_up, tmp_path / "backups")
        later = await asyncio.to_thread(world.work_on)
        before = await asyncio.to_thread(world.uids)
        await asyncio.to_thread(world.restore, tmp_path / "backups", dict(yesterday))
        mixed = {**later, **yesterday}
        await asyncio.to_thread(eventually, lambda: world.found() == mixed, "the edge has both days", LONG_S)
        stayed = await asyncio.to_thread(world.uids)
        assert {name: stayed[name] for name in before} == before
        await asyncio.to_thread(partial(world.round, before=stayed))
