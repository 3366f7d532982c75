"""A worker returns every key to the queue, and yields to other tasks."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import Any

from atoll.machinery.control.queue import WorkQueue
from atoll.machinery.control.worker import work
from atoll.machinery.process.relief import ask_for_relief


@asynccontextmanager
async def working(*workers: Any) -> Any:
    tasks = [asyncio.create_task(worker) for worker in workers]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_failure_is_observed_and_means_another_turn() -> None:
    queue: WorkQueue[str] = WorkQueue()
    turns: list[bool] = []
    finished = asyncio.Event()

    async def reconcile(key: str) -> None:
        if len(turns) < 2:
            raise ValueError("not yet")

    def observe(seconds: float, *, failed: bool) -> None:
        assert seconds >= 0
        turns.append(failed)
        if not failed:
            finished.set()

    queue.add("a", 8)
    async with working(work("test", queue, reconcile, observe)):
        await asyncio.wait_for(finished.wait(), 30)
    assert turns == [True, True, False]
    assert not queue


async def test_the_answer_of_a_reconcile_says_when_to_look_again() -> None:
    queue: WorkQueue[str] = WorkQueue()
    turns: list[str] = []
    twice = asyncio.Event()

    async def reconcile(key: str) -> float | None:
        turns.append(key)
        if len(turns) == 2:
            twice.set()
            return None
        return 0.001

    queue.add("a")
    async with working(work("test", queue, reconcile)):
        await asyncio.wait_for(twice.wait(), 30)
    assert turns == ["a", "a"]


async def test_no_two_workers_have_one_key() -> None:
    queue: WorkQueue[str] = WorkQueue()
    inside: set[str] = set()
    turns, most = 0, 0
    finished = asyncio.Event()

    async def reconcile(key: str) -> None:
        nonlocal turns, most
        assert key not in inside
        inside.add(key)
        most = max(most, len(inside))
        queue.add(key) if turns < 40 else None
        await asyncio.sleep(0)
        inside.discard(key)
        turns += 1
        if turns == 50:
            finished.set()

    for key in ("a", "b", "c"):
        queue.add(key)
    async with working(*(work("test", queue, reconcile) for _ in range(5))):
        for extra in range(20):
            queue.add(f"extra-{extra}")
        await asyncio.wait_for(finished.wait(), 30)
    assert most > 1


async def test_a_cancelled_worker_gives_its_key_back() -> None:
    queue: WorkQueue[str] = WorkQueue()
    begun = asyncio.Event()

    async def reconcile(key: str) -> None:
        begun.set()
        await asyncio.Event().wait()

    queue.add("a", 6)
    async with working(work("test", queue, reconcile)):
        await asyncio.wait_for(begun.wait(), 30)
    assert await asyncio.wait_for(queue.take(), 30) == ("a", 6)


async def test_reconciles_that_never_wait_leave_others_their_turn() -> None:
    queue: WorkQueue[int] = WorkQueue()
    finished = 0

    async def reconcile(key: int) -> None:
        nonlocal finished
        finished += 1

    for key in range(100_000):
        queue.add(key)
    async with working(work("test", queue, reconcile)):
        for _ in range(3):
            await asyncio.sleep(0)
        # One iteration of the loop finishes several keys, so that a queue drains during writes, but not all keys.
        assert 3 < finished < 100_000


async def test_a_worker_that_waits_outside_is_relieved_and_ends_with_its_key() -> None:
    queue: WorkQueue[tuple[str, int]] = WorkQueue()
    answers, done = asyncio.Event(), asyncio.Event()
    ended: list[tuple[str, int]] = []

    async def reconcile(key: tuple[str, int]) -> None:
        if key[0] == "slow":
            ask_for_relief()
            ask_for_relief()
            await answers.wait()
        ended.append(key)
        if len(ended) in (1, 4):
            done.set()

    for key in (("slow", 0), ("slow", 1), ("slow", 2), ("other", 0)):
        queue.add(key)
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(work("test", queue, reconcile, spawn=tasks.create_task))
        await asyncio.wait_for(done.wait(), 30)
        assert ended == [("other", 0)]
        done.clear()
        answers.set()
        await asyncio.wait_for(done.wait(), 30)
        await asyncio.wait_for(first, 30)
        assert len(tasks._tasks) == 1, "as many work as before"
        for task in list(tasks._tasks):
            task.cancel()


async def test_nobody_is_relieved_in_a_task_of_another_kind() -> None:
    ask_for_relief()
