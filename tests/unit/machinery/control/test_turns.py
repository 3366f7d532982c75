"""Keys of several tenants in one queue: each gets its turn, whatever another one adds, and no key is lost."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict

import pytest

from atoll.machinery.control.queue import WorkQueue
from atoll.machinery.control.turns import Turns
from harness.seeds import seed_of_run

Key = tuple[str, int]


def tenant_of(key: Key) -> str:
    return key[0]


def test_of_each_tenant_one_key_comes_in_turn_and_those_of_one_in_their_order() -> None:
    turns = Turns[Key](tenant_of)
    for key in (("a", 1), ("a", 2), ("a", 3), ("b", 1), ("c", 1), ("c", 2)):
        turns.append(key)
    assert len(turns) == 6
    order = [turns.popleft() for _ in range(6)]
    assert order == [("a", 1), ("b", 1), ("c", 1), ("a", 2), ("c", 2), ("a", 3)]
    with pytest.raises(StopIteration):
        turns.popleft()


def test_between_two_keys_of_a_tenant_every_other_one_that_waits_has_its_turn() -> None:
    chance, turns = random.Random(seed_of_run(0)), Turns[Key](tenant_of)
    waiting: dict[str, list[int]] = defaultdict(list)
    passed_over: dict[str, set[str]] = defaultdict(set)
    for number in range(5000):
        if chance.random() < 0.55 or not len(turns):
            tenant = chance.choice("aaaabc")
            turns.append((tenant, number))
            waiting[tenant].append(number)
            continue
        tenant, found = turns.popleft()
        assert found == waiting[tenant].pop(0)
        for other in "abc":
            if other != tenant and waiting[other]:
                assert tenant not in passed_over[other], f"{other} waits while {tenant} comes twice"
                passed_over[other].add(tenant)
        passed_over[tenant].clear()
    assert len(turns) == sum(map(len, waiting.values()))


async def test_ten_thousand_keys_of_one_cluster_hold_up_no_key_of_another() -> None:
    queue = WorkQueue[Key](in_turn=True)
    for number in range(10_000):
        queue.add(("tenant", number))
    queue.add(("neighbour", 1))
    assert queue.depth == 10_001
    found = [(await queue.take())[0] for _ in range(3)]
    assert found == [("tenant", 0), ("neighbour", 1), ("tenant", 1)]
    # A key that is added while it is in work comes once that is done, also here.
    queue.add(("neighbour", 1))
    assert (await queue.take())[0] == ("tenant", 2)
    queue.done(("neighbour", 1))
    assert ("neighbour", 1) in [(await queue.take())[0] for _ in range(2)]


async def test_keys_in_work_that_are_added_again_hold_up_no_other_key() -> None:
    queue = WorkQueue[Key](in_turn=True)
    busy = [("a", 1), ("b", 1)]
    for key in busy:
        queue.add(key)
    for _ in busy:
        await queue.take()
    for key in (*busy, ("b", 2)):
        queue.add(key)
    async with asyncio.timeout(5):
        assert (await queue.take())[0] == ("b", 2)
    for key in busy:
        queue.done(key)
    assert [(await queue.take())[0] for _ in busy] == busy
