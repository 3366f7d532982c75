"""A shared time limit ends each wait at its own time, and nothing else."""

from __future__ import annotations

import asyncio

import pytest

from atoll.machinery.process.shared_timeout import SharedTimeout


async def held(limit: SharedTimeout, until: asyncio.Event) -> str:
    with limit.wait():
        await until.wait()
    return "done"


async def test_a_wait_within_the_limit_ends_as_it_would_without() -> None:
    limit, until = SharedTimeout(60.0), asyncio.Event()
    waiting = asyncio.create_task(held(limit, until))
    await asyncio.sleep(0)
    until.set()
    assert await waiting == "done"


async def test_waits_past_the_limit_raise_each() -> None:
    limit, never = SharedTimeout(0.01), asyncio.Event()
    first = asyncio.create_task(held(limit, never))
    with pytest.raises(TimeoutError):
        await first
    # The timer comes back for what began meanwhile, and for what begins once it rests.
    later = [asyncio.create_task(held(limit, never)) for _ in range(3)]
    found = await asyncio.gather(*later, return_exceptions=True)
    assert [type(each) for each in found] == [TimeoutError] * 3


async def test_a_wait_that_began_later_outlives_an_older_one() -> None:
    limit, never, until = SharedTimeout(60.0), asyncio.Event(), asyncio.Event()
    old = asyncio.create_task(held(limit, never))
    await asyncio.sleep(0)
    # As if it had begun a minute before the other.
    limit._ends = {wait: end_s - 60.0 for wait, end_s in limit._ends.items()}
    young = asyncio.create_task(held(limit, until))
    await asyncio.sleep(0)
    limit._expire()
    with pytest.raises(TimeoutError):
        await old
    assert not young.done()
    until.set()
    assert await young == "done"


async def test_a_cancellation_from_elsewhere_passes_through() -> None:
    limit, never = SharedTimeout(60.0), asyncio.Event()
    waiting = asyncio.create_task(held(limit, never))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_both_at_once_are_a_cancellation() -> None:
    limit, never = SharedTimeout(0.01), asyncio.Event()

    async def cancelled_too() -> None:
        task = asyncio.current_task()
        assert task is not None
        # The timer of the wait runs first, the cancellation in the same turn of the loop.
        asyncio.get_running_loop().call_later(0.01, task.cancel)
        await held(limit, never)

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(cancelled_too())


async def test_an_error_is_raised_as_it_is() -> None:
    limit = SharedTimeout(60.0)
    with pytest.raises(ValueError, match="bad"), limit.wait():
        raise ValueError("bad")
