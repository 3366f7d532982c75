"""Tasks that swallow cancellations end all the same."""

from __future__ import annotations

import asyncio

import pytest

from atoll.machinery.process.tasks import stop


async def test_a_task_that_swallows_its_cancellation_is_told_again() -> None:
    swallowed = 0

    async def stubborn() -> None:
        nonlocal swallowed
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                swallowed += 1
                if swallowed == 2:
                    raise

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    await asyncio.wait_for(stop(task), 30)
    assert (task.cancelled(), swallowed) == (True, 2)


async def test_what_it_ended_with_is_told() -> None:
    async def broken() -> None:
        raise ValueError("broken")

    task = asyncio.create_task(broken())
    await asyncio.sleep(0)
    with pytest.raises(ValueError, match="broken"):
        await stop(task)


async def test_one_that_had_ended_is_left_alone() -> None:
    task = asyncio.create_task(asyncio.sleep(0))
    await task
    await stop(task)
