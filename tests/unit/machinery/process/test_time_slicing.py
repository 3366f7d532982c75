from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Callable

import pytest

from atoll.machinery.process import time_slicing
from atoll.machinery.process.time_slicing import Stopped, checkpoint, run_sliced, try_on_loop, within_limit

Pause = Callable[[], None]


def _burn(pause: Pause, cpu_s: float) -> str:
    """Compute for `cpu_s` of CPU time, and call `pause` in each iteration."""
    start = time.thread_time()
    while time.thread_time() - start < cpu_s:
        pause()
    return "done"


async def test_a_short_computation_runs_on_the_loop_itself() -> None:
    def work(_pause: Pause) -> int:
        return threading.get_ident()

    assert await run_sliced(work, 1) == threading.get_ident()


async def test_a_long_computation_is_started_anew_on_a_thread_and_gives_its_result() -> None:
    threads: list[int] = []

    def work(pause: Pause) -> str:
        threads.append(threading.get_ident())
        return _burn(pause, 0.05)

    assert await run_sliced(work, 30) == "done"
    assert len(threads) == 2
    assert threads[0] == threading.get_ident() != threads[1]


async def test_the_loop_goes_on_between_slices() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counter = asyncio.create_task(count())
    await run_sliced(lambda pause: _burn(pause, 0.1), 30)
    counter.cancel()
    assert turns >= 5


async def test_the_loop_and_the_thread_never_run_at_the_same_time() -> None:
    inside = False
    seen: list[bool] = []

    def work(pause: Pause) -> None:
        nonlocal inside
        start = time.thread_time()
        while time.thread_time() - start < 0.05:
            inside = True
            inside = False
            pause()

    async def watch() -> None:
        while True:
            seen.append(inside)
            await asyncio.sleep(0)

    watcher = asyncio.create_task(watch())
    await run_sliced(work, 30)
    watcher.cancel()
    assert seen
    assert not any(seen)


async def test_a_computation_is_cut_at_its_deadline_and_its_thread_ends() -> None:
    before = threading.active_count()
    with pytest.raises(TimeoutError):
        await run_sliced(lambda pause: _burn(pause, 60), 0.05)
    assert threading.active_count() == before


async def test_a_cancelled_caller_takes_the_thread_with_it() -> None:
    before = threading.active_count()
    task = asyncio.create_task(run_sliced(lambda pause: _burn(pause, 60), 60))
    while threading.active_count() == before:  # noqa: ASYNC110 - a thread sets no event
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert threading.active_count() == before


async def test_the_computations_own_error_comes_out() -> None:
    def work(pause: Pause) -> None:
        _burn(pause, 0.02)
        raise ValueError("its own")

    with pytest.raises(ValueError, match="its own"):
        await run_sliced(work, 30)


async def test_a_computation_that_catches_all_exceptions_is_stopped_all_the_same() -> None:
    def work(pause: Pause) -> None:
        while True:
            try:
                pause()
            except Exception:
                continue

    with pytest.raises(TimeoutError):
        await run_sliced(work, 0.05)


async def test_no_more_than_the_slots_run_at_once() -> None:
    running: set[int] = set()
    most = 0

    def work(pause: Pause) -> None:
        nonlocal most
        me = id(pause)
        start = time.thread_time()
        while time.thread_time() - start < 0.03:
            if threading.current_thread() is not threading.main_thread():
                running.add(me)
                most = max(most, len(running))
            pause()
        running.discard(me)

    await asyncio.gather(*(run_sliced(work, 60) for _ in range(6)))
    assert 1 <= most <= time_slicing.SLOTS


async def test_waiting_for_a_slot_counts_towards_the_deadline() -> None:
    held = [asyncio.create_task(run_sliced(lambda pause: _burn(pause, 60), 60)) for _ in range(time_slicing.SLOTS)]
    before = threading.active_count()
    while threading.active_count() < before + time_slicing.SLOTS:  # noqa: ASYNC110 - a thread sets no event
        await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        await run_sliced(lambda pause: _burn(pause, 60), 0.05)
    for task in held:
        task.cancel()
    await asyncio.gather(*held, return_exceptions=True)


async def test_a_checkpoint_pauses_the_computation_around_it_and_nothing_else() -> None:
    def work(_pause: Pause) -> str:
        return _burn(time_slicing.checkpoint, 0.05)

    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            time_slicing.checkpoint()
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    assert await run_sliced(work, 30) == "done"
    task.cancel()
    assert turns >= 3


def test_a_limit_stops_a_computation_on_the_loop_unless_another_one_limits_it() -> None:
    def endless() -> None:
        while True:
            checkpoint()

    with pytest.raises(Stopped):
        within_limit(endless, 0.01)
    assert within_limit(lambda: 7, 0.0) == 7
    start_s = time.monotonic()
    with pytest.raises(Stopped):
        try_on_loop(lambda pause: within_limit(endless, 60.0), 0.01)
    assert time.monotonic() - start_s < 30.0


async def test_garbage_is_not_collected_while_computations_are_in_slices() -> None:
    seen: list[bool] = []

    def work(pause: Pause) -> str:
        seen.append(gc.isenabled())
        return _burn(pause, 0.02)

    await asyncio.gather(*(run_sliced(work, 30, is_long=True) for _ in range(4)))
    assert seen == [False] * 4
    assert gc.isenabled()


async def test_computations_that_go_on_without_end_do_not_hold_off_collections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_slicing, "HOLD_S", 0.0)
    running, most = 0, 0

    def work(pause: Pause) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        _burn(pause, 0.02)
        running -= 1
        return "done"

    collected: list[int] = []
    monkeypatch.setattr(gc, "collect", collected.append)
    await asyncio.gather(*(run_sliced(work, 30, is_long=True) for _ in range(4)))
    assert most == 1
    assert collected == [1] * 4


async def test_what_a_failed_computation_held_is_freed() -> None:
    class Document:
        pass

    held: list[weakref.ref[Document]] = []

    def work(pause: Pause) -> str:
        document = Document()
        held.append(weakref.ref(document))
        raise ValueError("no")

    with pytest.raises(ValueError, match="no") as failed:
        await run_sliced(work, 30, is_long=True)
    assert failed.value.__traceback__ is not None
    assert held[0]() is None


@pytest.mark.parametrize("size", [0, 3, time_slicing.PART, time_slicing.PART + 1, 3 * time_slicing.PART + 7])
def test_items_in_parts_are_all_items(size: int) -> None:
    assert list(time_slicing.in_parts(range(size))) == list(range(size))


async def test_many_items_are_walked_with_pauses() -> None:
    def work(pause: Pause) -> None:
        for _ in time_slicing.in_parts(range(time_slicing.PART * 200)):
            _spend(0.00001)

    with pytest.raises(TimeoutError):
        await run_sliced(work, 0.05, is_long=True)


def _spend(cpu_s: float) -> None:
    end = time.thread_time() + cpu_s
    while time.thread_time() < end:
        pass


class Clocks:
    """A wall clock and the time that this thread ran, in seconds."""

    def __init__(self) -> None:
        self.wall_s = self.ran_s = 0.0

    def monotonic(self) -> float:
        return self.wall_s

    def thread_time(self) -> float:
        return self.ran_s


@pytest.mark.parametrize(("ran_s", "turns"), [(0.001, 10), (0.0, 10), (0.01, 4)])
def test_time_in_which_the_thread_did_not_run_stops_nothing_but_in_the_long_run(
    monkeypatch: pytest.MonkeyPatch, ran_s: float, turns: int
) -> None:
    clocks, done = Clocks(), 0
    monkeypatch.setattr(time_slicing, "time", clocks)

    def endless() -> None:
        nonlocal done
        while True:
            done += 1
            clocks.wall_s += 0.01
            clocks.ran_s += ran_s
            checkpoint()

    with pytest.raises(Stopped):
        within_limit(endless, 0.03)
    assert done == pytest.approx(turns, abs=1)
