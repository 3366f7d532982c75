"""The work queue: each key once, one worker for a key, growing delays after failures, no lost key."""

from __future__ import annotations

import asyncio

import pytest

from atoll.machinery.control.queue import BASE_DELAY_S, MAX_DELAY_S, MAX_OUTSIDE, WorkQueue
from atoll.machinery.process.backoff import Backoff


class HandTime:
    """A clock in seconds that a test advances."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def time() -> HandTime:
    return HandTime()


@pytest.fixture
def queue(time: HandTime) -> WorkQueue[str]:
    return WorkQueue(time)


async def waiting(queue: WorkQueue[str]) -> list[tuple[str, int]]:
    """Take all available keys; return each with its revision."""
    found = []
    while True:
        try:
            async with asyncio.timeout(0):
                found.append(await queue.take())
        except TimeoutError:
            return found


async def test_keys_come_in_order_and_each_at_most_once_with_its_oldest_revision(queue: WorkQueue[str]) -> None:
    for key, revision in (("a", 5), ("b", 6), ("a", 7), ("a", 3)):
        queue.add(key, revision)
    assert queue.depth == 2
    assert await waiting(queue) == [("a", 3), ("b", 6)]


async def test_a_key_in_work_waits_until_that_is_done(queue: WorkQueue[str]) -> None:
    queue.add("a", 1)
    await queue.take()
    queue.add("a", 2)
    queue.add("b", 3)
    assert await waiting(queue) == [("b", 3)]
    queue.done("a")
    assert await waiting(queue) == [("a", 2)]


async def test_a_taker_wakes_for_a_key_that_was_asked_for_while_in_work(queue: WorkQueue[str]) -> None:
    queue.add("a")
    await queue.take()
    taker = asyncio.create_task(queue.take())
    queue.add("a")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not taker.done()
    queue.done("a")
    assert (await asyncio.wait_for(taker, 30))[0] == "a"


async def test_a_failed_key_that_was_asked_for_meanwhile_comes_at_once(queue: WorkQueue[str]) -> None:
    queue.add("a", 4)
    await queue.take()
    queue.add("a", 9)
    taker = asyncio.create_task(queue.take())
    await asyncio.sleep(0)
    queue.failed("a")
    assert await asyncio.wait_for(taker, 30) == ("a", 4)


async def test_every_waiting_taker_gets_a_key(queue: WorkQueue[str]) -> None:
    takers = [asyncio.create_task(queue.take()) for _ in range(3)]
    await asyncio.sleep(0)
    for key in ("a", "b", "c"):
        queue.add(key)
    taken = await asyncio.wait_for(asyncio.gather(*takers), 30)
    assert sorted(key for key, _ in taken) == ["a", "b", "c"]


async def test_a_key_rouses_one_taker_and_not_all() -> None:
    looks = 0

    def clock() -> float:
        nonlocal looks
        looks += 1
        return 0.0

    queue: WorkQueue[str] = WorkQueue(clock)
    # Who looks for a key looks at the clock while any is delayed.
    queue.add("later", delay_s=1000.0)
    takers = [asyncio.create_task(queue.take()) for _ in range(16)]
    await asyncio.sleep(0)
    looks = 0
    queue.add("a")
    done, _ = await asyncio.wait(takers, timeout=30, return_when=asyncio.FIRST_COMPLETED)
    queue.done("a")
    for _ in range(4):
        await asyncio.sleep(0)
    assert (len(done), looks) == (1, 1)
    for taker in takers:
        taker.cancel()
    await asyncio.gather(*takers, return_exceptions=True)
    assert not queue._idle


async def test_a_taker_that_waits_gets_a_key_when_it_is_due_though_another_gave_up_and_the_delay_was_shortened() -> (
    None
):
    queue: WorkQueue[str] = WorkQueue()
    first, second = (asyncio.create_task(queue.take()) for _ in range(2))
    await asyncio.sleep(0)
    queue.add("late", 1, 600)
    queue.add("soon", 2, 0.02)
    first.cancel()
    assert await asyncio.wait_for(second, 30) == ("soon", 2)
    last = asyncio.create_task(queue.take())
    await asyncio.sleep(0)
    queue.add("late", 1, 0.02)
    assert (await asyncio.wait_for(last, 30))[0] == "late"


async def test_each_delayed_key_rouses_a_taker_of_its_own() -> None:
    queue: WorkQueue[str] = WorkQueue()
    takers = [asyncio.create_task(queue.take()) for _ in range(2)]
    await asyncio.sleep(0)
    queue.add("sooner", 1, 0.02)
    queue.add("later", 2, 0.04)
    taken = await asyncio.wait_for(asyncio.gather(*takers), 30)
    assert sorted(key for key, _ in taken) == ["later", "sooner"]


async def test_a_taker_that_waits_gets_the_key_that_its_cluster_held_back() -> None:
    queue: WorkQueue[tuple[str, int]] = WorkQueue()
    for number in range(MAX_OUTSIDE + 1):
        queue.add(("a", number))
    taken = [(await queue.take())[0] for _ in range(MAX_OUTSIDE)]
    for key in taken:
        queue.waits_outside(key)
    taker = asyncio.create_task(queue.take())
    await asyncio.sleep(0)
    queue.done(taken[0])
    assert (await asyncio.wait_for(taker, 30))[0] == ("a", MAX_OUTSIDE)


async def test_a_cancelled_taker_takes_no_key_with_it(queue: WorkQueue[str]) -> None:
    taker = asyncio.create_task(queue.take())
    await asyncio.sleep(0)
    queue.add("a")
    taker.cancel()
    await asyncio.gather(taker, return_exceptions=True)
    assert await waiting(queue) == [("a", 0)]


async def test_a_taker_that_is_cancelled_when_it_is_roused_leaves_the_key_to_another(queue: WorkQueue[str]) -> None:
    first, second = (asyncio.create_task(queue.take()) for _ in range(2))
    await asyncio.sleep(0)
    queue.add("a")
    first.cancel()
    assert await asyncio.wait_for(second, 30) == ("a", 0)


async def test_a_delayed_key_comes_when_it_is_due(queue: WorkQueue[str], time: HandTime) -> None:
    queue.add("later", 1, 10)
    queue.add("sooner", 2, 5)
    assert (await waiting(queue), queue.depth, len(queue)) == ([], 0, 2)
    time.now_s += 5
    assert await waiting(queue) == [("sooner", 2)]
    time.now_s += 5
    assert await waiting(queue) == [("later", 1)]


@pytest.mark.parametrize("delays_s", [(10, 5), (5, 10)])
async def test_of_two_due_times_the_earlier_holds_and_only_once(
    queue: WorkQueue[str], time: HandTime, delays_s: tuple[int, int]
) -> None:
    for delay_s in delays_s:
        queue.add("a", 1, delay_s)
    time.now_s += 5
    assert await waiting(queue) == [("a", 1)]
    queue.done("a")
    time.now_s += 5
    assert (await waiting(queue), len(queue)) == ([], 0)


async def test_a_delayed_key_that_is_asked_for_comes_at_once_and_only_once(
    queue: WorkQueue[str], time: HandTime
) -> None:
    queue.add("a", 7, 10)
    queue.add("a", 8)
    assert await waiting(queue) == [("a", 7)]
    queue.done("a")
    time.now_s += 10
    assert await waiting(queue) == []


async def test_a_delay_does_not_put_off_a_key_that_waits(queue: WorkQueue[str]) -> None:
    queue.add("a", 2)
    queue.add("a", 1, 10)
    assert await waiting(queue) == [("a", 1)]


async def test_a_taker_sleeps_no_longer_than_until_the_next_key_is_due() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a", 1, 0.02)
    assert await asyncio.wait_for(queue.take(), 30) == ("a", 1)


async def test_failures_double_the_delay_up_to_a_limit_and_success_forgets_them(
    queue: WorkQueue[str], time: HandTime
) -> None:
    queue.add("a", 3)
    for expected in [*(BASE_DELAY_S * 2**turn for turn in range(16)), MAX_DELAY_S, MAX_DELAY_S]:
        assert await waiting(queue) == [("a", 3)]
        delay_s = queue.failed("a")
        assert 0.75 * expected <= delay_s <= 1.25 * expected
        assert await waiting(queue) == []
        time.now_s += delay_s
    await queue.take()
    queue.done("a")
    queue.add("a")
    await queue.take()
    assert queue.failed("a") <= BASE_DELAY_S * 1.25


async def test_a_queue_may_have_a_limit_of_its_own(time: HandTime) -> None:
    queue: WorkQueue[str] = WorkQueue(time, max_delay_s=10.0)
    queue.add("a", 3)
    for _ in range(20):
        await queue.take()
        delay_s = queue.failed("a")
        time.now_s += delay_s
    assert 7.5 <= delay_s <= 12.5


async def test_oldest_is_the_lowest_revision_of_all_that_is_unfinished(queue: WorkQueue[str], time: HandTime) -> None:
    assert queue.oldest() is None
    queue.add("working", 5)
    await queue.take()
    queue.add("delayed", 6, 10)
    queue.add("ready", 7)
    seen = [queue.oldest()]
    queue.done("working", 3.0)
    seen.append(queue.oldest())
    time.now_s += 3
    assert await waiting(queue) == [("ready", 7), ("working", 5)]
    queue.done("working")
    seen.append(queue.oldest())
    queue.failed("ready")
    time.now_s += 10
    for key, _ in await waiting(queue):
        queue.done(key)
    assert [*seen, queue.oldest()] == [5, 5, 6, None]
    assert not queue


async def test_done_with_no_wait_means_another_turn_at_once(queue: WorkQueue[str]) -> None:
    queue.add("a", 4)
    await queue.take()
    queue.done("a", 0.0)
    assert await waiting(queue) == [("a", 4)]


async def test_a_key_asked_for_again_and_again_costs_no_memory(queue: WorkQueue[str]) -> None:
    for _ in range(1000):
        queue.add("a", 1, 60)
        queue.add("a", 1)
        await queue.take()
        queue.done("a")
    assert len(queue._delayed) <= 1


async def test_a_key_that_asks_for_itself_again_does_so_later_and_later_until_it_is_added(time: HandTime) -> None:
    queue: WorkQueue[str] = WorkQueue(time)
    held = Backoff(5.0, 60.0, 1.0, 1.0)

    async def delays(count: int) -> list[float]:
        found = []
        for _ in range(count):
            queue.done((await queue.take())[0], held)
            since_s = time.now_s
            while not await peek(queue):
                time.now_s += 1.0
            found.append(time.now_s - since_s)
        return found

    queue.add("a")
    assert await delays(6) == [5.0, 10.0, 20.0, 40.0, 60.0, 60.0]
    queue.add("a")
    assert await delays(2) == [5.0, 10.0]


async def test_a_key_that_was_added_in_work_begins_its_delays_again(queue: WorkQueue[str], time: HandTime) -> None:
    held = Backoff(5.0, 60.0, 1.0, 1.0)
    queue.add("a")
    for _ in range(3):
        await queue.take()
        queue.done("a", held)
        time.now_s += 60.0
    await queue.take()
    queue.add("a")
    queue.done("a", held)
    await queue.take()
    queue.done("a", held)
    time.now_s += 10.0
    assert await peek(queue)


async def peek(queue: WorkQueue[str]) -> bool:
    """Return whether a key is available, without taking it."""
    queue._promote()
    return queue.depth > 0


async def test_a_cluster_with_enough_keys_outside_holds_back_its_others_and_nobody_elses() -> None:
    queue: WorkQueue[tuple[str, int]] = WorkQueue()
    for number in range(MAX_OUTSIDE + 10):
        queue.add(("a", number))
    taken = [(await queue.take())[0] for _ in range(MAX_OUTSIDE)]
    for key in taken:
        queue.waits_outside(key)
    queue.add(("b", 0))
    assert (await queue.take())[0] == ("b", 0)
    assert (queue.depth, len(queue)) == (10, MAX_OUTSIDE + 11)
    queue.done(taken.pop())
    found = []
    for _ in range(10):
        key, _ = await asyncio.wait_for(queue.take(), 30)
        found.append(key)
        queue.done(key)
    assert found == [("a", number) for number in range(MAX_OUTSIDE, MAX_OUTSIDE + 10)], "each that ends lets one follow"
    for key in taken:
        queue.failed(key)
    assert queue.depth == 0


async def test_keys_of_a_cluster_follow_when_all_that_wait_outside_end_at_once() -> None:
    queue = WorkQueue[tuple[str, int]]()
    count = 3 * MAX_OUTSIDE
    for number in range(count):
        queue.add(("a", number))
    outside = [(await queue.take())[0] for _ in range(MAX_OUTSIDE)]
    for key in outside:
        queue.waits_outside(key)
    taker = asyncio.create_task(queue.take())
    await asyncio.sleep(0)
    for key in outside:
        queue.done(key)
    found = [(await asyncio.wait_for(taker, 5))[0]]
    while len(found) < count - MAX_OUTSIDE:
        queue.done(found[-1])
        found.append((await asyncio.wait_for(queue.take(), 5))[0])
    assert found == [("a", number) for number in range(MAX_OUTSIDE, count)]
