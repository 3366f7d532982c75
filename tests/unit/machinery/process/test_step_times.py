"""The steps of a coroutine are told, one by one, and it runs as it would without."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from atoll.machinery.process.step_times import StepTimes


def hold(seconds: float) -> None:
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        pass


async def run(work: Any) -> tuple[object, list[float]]:
    """What the coroutine returned, or raised, in a task of another; and its steps."""
    steps: list[float] = []

    async def outer() -> object:
        return await StepTimes(work, steps.append)

    (found,) = await asyncio.gather(asyncio.create_task(outer()), return_exceptions=True)
    return found, steps


async def test_what_is_waited_for_is_not_told() -> None:
    async def work() -> str:
        hold(0.01)
        await asyncio.sleep(0.05)
        async with asyncio.timeout(1.0):
            await asyncio.sleep(0)
        hold(0.02)
        return "done"

    found, steps = await run(work())
    assert found == "done"
    assert len(steps) == 3
    assert 0.01 <= steps[0] < 0.05
    assert 0.02 <= steps[2] < 0.05


async def test_an_error_and_an_end_from_outside_are_told() -> None:
    async def fails() -> None:
        await asyncio.sleep(0)
        hold(0.01)
        raise ValueError("no")

    found, steps = await run(fails())
    assert isinstance(found, ValueError)
    assert steps[1] >= 0.01

    async def times_out() -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError:
            hold(0.01)
        return "late"

    found, steps = await run(times_out())
    assert found == "late"
    assert steps[-1] >= 0.01


async def test_a_task_that_is_cancelled_ends_its_work() -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cleaned up")

    task = asyncio.create_task(StepTimes(work(), lambda seconds: None))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["cleaned up"]


def test_one_that_never_began_is_closed() -> None:
    async def work() -> None:
        raise AssertionError("it is not begun")

    inner = work()
    StepTimes(inner, lambda seconds: None).close()
    with pytest.raises(RuntimeError):
        inner.send(None)
