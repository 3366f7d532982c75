"""Bounds on concurrent calls: of hosts, tenants and lanes, and who gets a slot that becomes free."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from atoll.machinery.egress.call_slots import CallSlots, SlotBounds, TooManyCalls


class Calls:
    """Calls that end when the test says so."""

    def __init__(self, **bounds: int) -> None:
        found = {"total": 9, "per_host": 9, "per_tenant": 9, "per_lane": 9, "waiting": 9, **bounds}
        self.bounds = SlotBounds(**found)
        self.slots = CallSlots(self.bounds)
        self.entered: list[tuple[str, str]] = []
        self._releases: dict[str, asyncio.Event] = {}

    def start(self, host: str, tenant: str = "") -> asyncio.Task[None]:
        return asyncio.create_task(self.call(host, tenant))

    async def call(self, host: str, tenant: str = "") -> None:
        async with self.slots.slot(host, tenant):
            self.entered.append((tenant, host))
            await self._releases.setdefault(tenant, asyncio.Event()).wait()

    def release(self, *tenants: str) -> None:
        for tenant in tenants or ("",):
            self._releases.setdefault(tenant, asyncio.Event()).set()


async def settle() -> None:
    for _ in range(8):
        await asyncio.sleep(0)


async def test_a_slow_host_keeps_no_more_than_its_share() -> None:
    calls = Calls(per_host=2, total=3, waiting=1)
    slow = [calls.start("slow") for _ in range(3)]
    await settle()
    with pytest.raises(TooManyCalls):
        await calls.call("slow")
    other = calls.start("other")
    await settle()
    assert sorted(calls.entered) == [("", "other"), ("", "slow"), ("", "slow")]
    calls.release()
    await asyncio.gather(*slow, other)
    assert sorted(calls.entered) == [("", "other"), *[("", "slow")] * 3]
    await calls.call("slow")


async def test_all_hosts_together_keep_no_more_than_the_total() -> None:
    calls = Calls(per_host=1, total=2, waiting=99)
    tasks = [calls.start(f"host{index}") for index in range(10)]
    await settle()
    assert len(calls.entered) == 2
    with pytest.raises(TooManyCalls):
        await calls.call("one more")
    calls.release()
    await asyncio.gather(*tasks)
    assert len(calls.entered) == 10


@pytest.mark.parametrize("bound", ["per_tenant", "per_lane"])
async def test_a_tenant_leaves_room_at_a_host_that_others_share(bound: str) -> None:
    calls = Calls(**{bound: 2})
    busy = [calls.start("shared", "busy") for _ in range(9)]
    await settle()
    other = calls.start("shared", "other")
    await settle()
    assert Counter(calls.entered) == {("busy", "shared"): 2, ("other", "shared"): 1}
    calls.release("busy", "other")
    await asyncio.gather(*busy, other)


async def test_a_free_slot_goes_to_the_tenant_with_the_fewest_calls() -> None:
    calls = Calls(total=2)
    busy = [calls.start(f"host{index}", "busy") for index in range(8)]
    await settle()
    other = calls.start("host0", "other")
    await settle()
    assert Counter(calls.entered) == {("busy", "host0"): 1, ("busy", "host1"): 1}
    calls.release("busy")
    await settle()
    assert calls.entered[2] == ("other", "host0")
    calls.release("other")
    await asyncio.gather(*busy, other)


async def test_where_all_places_are_taken_the_tenant_with_the_most_loses_its_newest() -> None:
    calls = Calls(total=1)
    busy = [calls.start("host", "busy") for _ in range(5)]
    await settle()
    other = calls.start("host", "other")
    await settle()
    assert [task.done() for task in busy] == [False] * 4 + [True]
    assert isinstance(busy[4].exception(), TooManyCalls)
    calls.release("busy", "other")
    await asyncio.gather(*busy[:4], other)


async def test_a_call_that_gives_up_leaves_nothing_behind() -> None:
    calls = Calls(total=1)
    first, waiting, last = calls.start("host"), calls.start("host"), calls.start("host")
    await settle()
    waiting.cancel()
    await settle()
    # Cancelled in the same turn in which it is given the slot.
    calls.release()
    first.cancel()
    await asyncio.sleep(0)
    last.cancel()
    await asyncio.gather(first, waiting, last, return_exceptions=True)
    async with asyncio.timeout(60):
        await calls.call("host")


async def test_bounds_hold_and_every_call_ends_whatever_comes() -> None:
    chosen = random.Random(7)
    bounds = SlotBounds(total=6, per_host=4, per_tenant=3, per_lane=2, waiting=5)
    slots = CallSlots(bounds)
    hosts, tenants, lanes, running = Counter[str](), Counter[str](), Counter[tuple[str, str]](), 0

    async def call(tenant: str, host: str, turns: int) -> None:
        nonlocal running
        async with slots.slot(host, tenant):
            running, lane = running + 1, (tenant, host)
            for counts, key in ((hosts, host), (tenants, tenant), (lanes, lane)):
                counts[key] += 1  # type: ignore[index]
            assert running <= bounds.total
            assert hosts[host] <= bounds.per_host
            assert tenants[tenant] <= bounds.per_tenant
            assert lanes[lane] <= bounds.per_lane
            try:
                for _ in range(turns):
                    await asyncio.sleep(0)
            finally:
                running -= 1
                for counts, key in ((hosts, host), (tenants, tenant), (lanes, lane)):
                    counts[key] -= 1  # type: ignore[index]

    tasks = []
    for _ in range(600):
        tasks.append(asyncio.create_task(call(chosen.choice("abc"), chosen.choice("xyz"), chosen.randrange(4))))
        if chosen.random() < 0.2:
            chosen.choice(tasks).cancel()
        if chosen.random() < 0.4:
            await asyncio.sleep(0)
    async with asyncio.timeout(60):
        results = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(result) for result in results} <= {type(None), TooManyCalls, asyncio.CancelledError}
    assert results.count(None) > 100
    async with asyncio.timeout(60):
        await asyncio.gather(*(call("a", "x", 1) for _ in range(2)))
