"""The condition that there are two edge clusters of one SyncTarget: who does nothing tells it, as long as it lives."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from atoll.machinery.client.client import Client
from atoll.machinery.edge.failures import Failure
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.meta import times
from atoll.machinery.meta.conditions import find
from atoll.machinery.meta.objects import Object, conditions_of
from atoll.machinery.patch.merge_patch import merge_patch
from atoll.syncer import report
from atoll.syncer.mailbox import Mailbox
from atoll.syncer.report import DUPLICATE, DUPLICATE_S, Report
from harness.waits import until


class Center:
    """A mailbox with its SyncerConfig, as both syncers see it."""

    is_complete, last_change = True, 0

    def __init__(self) -> None:
        self.config: Object = {"metadata": {"name": "the-one"}, "status": {}}
        self.writes = self.looks = 0

    def the_one(self) -> Object:
        self.looks += 1
        return self.config

    def keep_config(self, config: Object) -> None:
        self.config = config

    async def patch(self, resource: object, name: str, body: Object, subresource: str) -> Object:
        self.writes += 1
        self.config = merge_patch(self.config, body)
        return self.config

    @property
    def condition(self) -> Object | None:
        return find(conditions_of(self.config), DUPLICATE)


class Progress:
    """What one syncer has to report."""

    applied = 7

    def __init__(self, rival: str) -> None:
        self.failures: dict[ObjectRef, Failure] = {}
        self.may_report, self.rival = not rival, rival


class Clock:
    """Time that is moved by hand."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


async def run(center: Center, made: Report) -> None:
    """Let one report a few times."""
    enough = center.looks + 3

    async def looked() -> bool:
        return center.looks >= enough

    task = asyncio.create_task(made.run())
    try:
        await until(looked, "it looked a few times")
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(report, "time", found)
    monkeypatch.setattr(times, "now", lambda: "2026-01-01T00:00:00Z")
    monkeypatch.setattr(report, "INTERVAL_S", 0.001)
    return found


def reporter(center: Center, progress: Progress, uid: str) -> Report:
    return Report(cast(Client, center), cast(Mailbox, center), progress, uid)


async def test_it_is_told_once_stays_while_two_work_and_is_taken_away_now_and_then(clock: Clock) -> None:
    center = Center()
    first, second = reporter(center, Progress(""), "uid-1"), reporter(center, Progress("uid-1/host"), "uid-2")
    await run(center, first)
    assert (center.writes, center.condition) == (1, None)
    before = center.config["status"]
    await run(center, second)
    told = center.condition
    assert told is not None and "uid-1/host works for the SyncTarget" in told["message"]
    assert {**center.config["status"], "conditions": before["conditions"]} == before, "it says nothing else"
    await run(center, first)
    clock.now_s += DUPLICATE_S - 1
    for each in (first, second):
        await run(center, each)
    assert (center.writes, center.condition) == (2, told), "it stays, and nobody writes it twice"
    clock.now_s += 1
    await run(center, first)
    assert (center.writes, center.condition) == (3, None)
    await run(center, second)
    assert (center.writes, center.condition) == (4, told), "it is still there"


async def test_who_waits_for_the_lease_of_its_own_cluster_says_nothing(clock: Clock) -> None:
    center, progress = Center(), Progress("")
    progress.may_report = False
    await run(center, reporter(center, progress, "uid-1"))
    assert center.writes == 0


async def test_what_is_new_after_a_quiet_time_is_reported(clock: Clock) -> None:
    center, progress = Center(), Progress("")
    made = reporter(center, progress, "uid-1")
    await run(center, made)
    await run(center, made)
    assert center.writes == 1
    progress.failures = {ObjectRef("", "configmaps", "default", "a"): Failure("apply", "Forbidden", "no", "", 1, 0.0)}
    await run(center, made)
    assert center.writes == 2 and center.config["status"]["errors"]
    progress.failures, progress.applied, center.last_change = {}, 9, 9
    await run(center, made)
    assert center.writes == 3 and center.config["status"]["appliedRevision"] == "9"
    center.config = {**center.config, "status": {}}
    await run(center, made)
    assert center.writes == 4, "somebody took it away"
