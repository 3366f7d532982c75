"""Crowds of watchers: the first commit reaches them at once, what follows closely reaches them as one."""

from __future__ import annotations

import asyncio

import pytest

from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.storage.contract import Change, Operation, Scope
from atoll.machinery.storage.watching import wake_batching
from atoll.machinery.storage.watching.hub import Hub
from atoll.machinery.storage.watching.wake_batching import BATCHED_WATCHERS

TYPE = ResourceType("", "configmaps", "core")


class Called:
    """Remembers what it was told, in order."""

    def __init__(self) -> None:
        self.marks: list[int] = []
        self.nudges = 0
        self.nudged = asyncio.Event()

    def wake(self, nothing_before: int) -> None:
        self.mark(nothing_before)
        self.nudge()

    def mark(self, nothing_before: int) -> None:
        self.marks.append(nothing_before)

    def nudge(self) -> None:
        self.nudges += 1
        self.nudged.set()


def crowd(hub: Hub, size: int) -> list[Called]:
    found = [Called() for _ in range(size)]
    for watcher in found:
        hub.register(Scope(TYPE, "c1"), watcher)
    return found


def commit(hub: Hub, revision: int) -> None:
    hub.publish([Change(revision, Operation.ADDED, ObjectKey(TYPE, "c1", "n", "o"), None, b"")], revision)


async def test_a_crowd_is_called_at_once_by_the_first_commit() -> None:
    hub = Hub(5, 1 << 20)
    watchers = crowd(hub, BATCHED_WATCHERS)
    commit(hub, 6)
    assert {watcher.nudges for watcher in watchers} == {1}


async def test_commits_that_follow_closely_reach_a_crowd_as_one_and_are_marked_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # However slow the machine is, the commits follow within the pause.
    for name in ("_WATCHER_S", "_LONGEST_PAUSE_S"):
        monkeypatch.setattr(wake_batching, name, 1.0)
    hub = Hub(5, 1 << 20)
    watchers = crowd(hub, 2 * BATCHED_WATCHERS)
    for revision in range(6, 10):
        commit(hub, revision)
    assert {tuple(watcher.marks) for watcher in watchers} == {(5, 6, 7, 8)}
    assert {watcher.nudges for watcher in watchers} == {1}
    for watcher in watchers:
        watcher.nudged.clear()
    async with asyncio.timeout(30):
        await asyncio.gather(*(watcher.nudged.wait() for watcher in watchers))
    assert {watcher.nudges for watcher in watchers} == {2}


async def test_a_few_watchers_never_wait_for_one_another() -> None:
    hub = Hub(5, 1 << 20)
    watchers = crowd(hub, BATCHED_WATCHERS - 1)
    for revision in range(6, 10):
        commit(hub, revision)
    assert {watcher.nudges for watcher in watchers} == {4}
