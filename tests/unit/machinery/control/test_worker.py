"""A worker returns every key to the queue, and yields to other tasks."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import Any

from atoll.machinery.control.queue import WorkQueue
from atoll.machinery.control.worker import work


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
        await asyncio.wait_for(finished.wait(), 5)
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
        await asyncio.wait_for(twice.wait(), 5)
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
        await asyncio.wait_for(finished.wait(), 5)
    assert most > 1


async def test_a_cancelled_worker_gives_its_key_back() -> None:
    queue: WorkQueue[str] = WorkQueue()
    begun = asyncio.Event()

    async def reconcile(key: str) -> None:
        begun.set()
        await asyncio.Event().wait()

    queue.add("a", 6)
    async with working(work("test", queue, reconcile)):
        await asyncio.wait_for(begun.wait(), 5)
    assert await asyncio.wait_for(queue.take(), 5) == ("a", 6)


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
