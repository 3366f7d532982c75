"""Each planted bug is found by the check for it; the product passes the same checks.

Bugs of the writer and of watches run under the campaign of `test_kills`; the others under their own scenarios. A bug
may not show in every run, so each has a few runs with different seeds.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from fault.mutants import MUTANTS, MutantProcess
from fault.scenarios import campaign
from fault.scenarios.campaign import Plan
from fault.scenarios.damage import DAMAGED, served_after_damage
from fault.scenarios.fencing import second_is_refused
from fault.validators import violation as named
from fault.validators.violation import Violation
from harness.seeds import seed_of_run
from harness.servers.shard_process import ShardProcess
from harness.tiers import only

RUNS = 5
ONE_KILL = Plan(kills=1, shortest_s=0.8, longest_s=1.2, survives=False)
NO_KILL = Plan(kills=0, shortest_s=2.5, survives=False)
#: The plan under which each bug shows, and its violations.
OF_CAMPAIGNS: dict[str, tuple[Plan, tuple[type[Violation], ...]]] = {
    "acknowledge_before_commit": (ONE_KILL, (named.LostWrite, named.StaleRead)),
    "publish_before_commit": (ONE_KILL, (named.Unfaithful, named.NotResumed)),
    "early_bookmark": (NO_KILL, (named.EarlyBookmark, named.Unordered)),
    "off_by_one_resume": (NO_KILL, (named.NotResumed, named.Duplicate)),
    "forgotten_cluster": (NO_KILL, (named.Unfiltered,)),
    # It still sends the bookmark that is due before its end.
    "silent_watch": (NO_KILL, (named.Stalled, named.EarlyBookmark)),
    "high_bookmark": (NO_KILL, (named.EarlyBookmark,)),
    "uncharged_delete": (ONE_KILL, (named.StoreDamaged,)),
    # An update may bring back a deleted object, which is then deleted a second time: out of order.
    "lost_precondition": (NO_KILL, (named.LostUpdate, named.BrokenPrecondition, named.LostWrite, named.OutOfOrder)),
}
#: Those of the default run; the others belong to the long tier.
SHORT = {"off_by_one_resume"}
OTHER_SCENARIOS = {"no_fence", "unverified_crc", "lost_cursor", "split_batch", "moving_pages", "tired_publisher"}


def test_every_planted_bug_is_hunted() -> None:
    assert OF_CAMPAIGNS.keys() | OTHER_SCENARIOS == MUTANTS.keys()
    assert len(MUTANTS) >= 8


async def hunt(directory: Path, mutant: str, plan: Plan, seed: int) -> Violation | None:
    try:
        history, stored = await campaign.run(MutantProcess(directory, mutant), plan, seed)
        await asyncio.to_thread(campaign.validate, history, stored, 0)
    except Violation as error:
        return error
    return None


@pytest.mark.parametrize("mutant", only(SHORT, OF_CAMPAIGNS))
async def test_a_bug_under_load_is_found_by_name(tmp_path: Path, mutant: str) -> None:
    plan, expected = OF_CAMPAIGNS[mutant]
    for attempt in range(RUNS):
        found = await hunt(tmp_path / f"run{attempt}", mutant, plan, seed_of_run(700 + attempt))
        if found is not None:
            assert isinstance(found, expected), f"found as {type(found).__name__}: {found}"
            return
    pytest.fail(f"{mutant} was not found in {RUNS} runs")


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    with ShardProcess(tmp_path) as first:
        second_is_refused(first, ShardProcess(tmp_path), tmp_path)


@pytest.mark.long
def test_a_store_without_a_fence_is_found(tmp_path: Path) -> None:
    make = partial(MutantProcess, tmp_path, "no_fence")
    with make() as first, pytest.raises(named.NotFenced):
        second_is_refused(first, make(), tmp_path)


def test_damaged_objects_are_refused_and_the_others_served(tmp_path: Path) -> None:
    assert served_after_damage(ShardProcess(tmp_path)) == DAMAGED


@pytest.mark.long
def test_checksums_nobody_looks_at_are_found(tmp_path: Path) -> None:
    with pytest.raises(named.WrongAnswer):
        served_after_damage(MutantProcess(tmp_path, "unverified_crc"))
