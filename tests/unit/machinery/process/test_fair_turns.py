"""Turns of the event loop go to tenants in a circle, a few in each."""

from __future__ import annotations

import asyncio

from atoll.machinery.process.fair_turns import FairTurns


class Going:
    """Notes who goes on, and in which turn of the loop."""

    def __init__(self, turns: FairTurns) -> None:
        self.turns, self.turn = turns, 0
        self.seen: list[tuple[str, int]] = []

    async def go(self, tenant: str) -> None:
        await self.turns.take(tenant)
        self.seen.append((tenant, self.turn))

    async def all(self, *tenants: str) -> list[tuple[str, int]]:
        """Let all begin in one turn of the loop; return who went on in which."""
        tasks = [asyncio.create_task(self.go(tenant)) for tenant in tenants]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            self.turn += 1
        return self.seen


async def test_one_that_is_alone_goes_on_at_once() -> None:
    turns = FairTurns()
    await asyncio.wait_for(turns.take("a"), 1)
    coroutine = FairTurns().take("a")
    try:
        coroutine.send(None)
    except StopIteration:
        return
    raise AssertionError("it waited")


async def test_a_tenant_with_many_delays_another_by_one_turn() -> None:
    seen = await Going(FairTurns()).all(*["many"] * 10, "few", "other")
    order = [tenant for tenant, _ in seen]
    assert order[:4] == ["many", "many", "few", "other"]
    assert order[4:] == ["many"] * 8


async def test_so_many_go_on_in_a_turn_of_the_loop() -> None:
    for per_turn in (1, 3):
        seen = await Going(FairTurns(per_turn)).all(*["a"] * 6, *["b"] * 6)
        each = [turn for _, turn in seen]
        assert max(each.count(turn) for turn in set(each)) == per_turn


async def test_one_that_gave_up_takes_no_turn() -> None:
    turns = FairTurns()
    going = Going(turns)
    first, gone, last = (asyncio.create_task(going.go(tenant)) for tenant in ("first", "gone", "last"))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(first, gone, last, return_exceptions=True)
    assert [tenant for tenant, _ in going.seen] == ["first", "last"]
    assert await Going(turns).all("next") == [("next", 0)]
