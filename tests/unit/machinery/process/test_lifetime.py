"""A process ends on a signal, or when an essential task fails; it then stops its parts in order."""

from __future__ import annotations

import asyncio

import pytest

from atoll.machinery.process.lifetime import BackgroundWorkFailed, Lifetime

PATIENCE_S = 60.0


async def forever(began: asyncio.Event, ended: list[str], name: str) -> None:
    began.set()
    try:
        await asyncio.Event().wait()
    finally:
        ended.append(name)


async def failing() -> None:
    raise RuntimeError("the disk is gone")


async def failing_to_end(began: asyncio.Event) -> None:
    began.set()
    try:
        await asyncio.Event().wait()
    finally:
        raise RuntimeError("the connection is gone already")


async def test_what_runs_beside_ends_when_it_is_closed() -> None:
    life, began, ended = Lifetime(), asyncio.Event(), list[str]()
    life.run_in_background(forever(began, ended, "rows"))
    async with asyncio.timeout(PATIENCE_S):
        await began.wait()
        life.stop()
        await life.stopped()
        assert ended == []
        await life.close()
    assert ended == ["rows"]
    life.check()


async def test_a_failure_beside_is_the_end_and_says_what_it_was() -> None:
    life = Lifetime()
    life.run_in_background(failing())
    async with asyncio.timeout(PATIENCE_S):
        await life.stopped()
        await life.close()
    with pytest.raises(BackgroundWorkFailed, match="the disk is gone"):
        life.check()


async def test_what_fails_while_the_process_leaves_does_not_change_how_it_ended() -> None:
    life, began = Lifetime(), asyncio.Event()
    life.run_in_background(failing_to_end(began))
    async with asyncio.timeout(PATIENCE_S):
        await began.wait()
        life.stop()
        await life.close()
    life.check()


async def test_work_is_done_unless_the_end_comes_first() -> None:
    life, began, ended = Lifetime(), asyncio.Event(), list[str]()
    async with asyncio.timeout(PATIENCE_S):
        assert await life.run_until_stopped(asyncio.sleep(0))
        waiting = asyncio.create_task(life.run_until_stopped(forever(began, ended, "start")))
        await began.wait()
        life.stop()
        assert not await waiting
    assert ended == ["start"]


async def test_work_that_fails_raises_where_it_is_waited_for() -> None:
    life = Lifetime()
    with pytest.raises(RuntimeError, match="the disk is gone"):
        await life.run_until_stopped(failing())
    life.check()
