"""The event loop keeps running during any rule: the most expensive rules within the static estimate, with the largest
data that their schema allows, ten times, as the rules of one object.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import Callable
from typing import Any

import pytest

from atoll.machinery.cel.bounds import replace_pause
from atoll.machinery.cel.budget import Budget
from atoll.machinery.cel.environment import Environment
from atoll.machinery.cel.errors import BudgetExceeded, EvaluationError
from atoll.machinery.cel.functions import Node
from atoll.machinery.cel.libraries.base import CALL_LIMIT, OBJECT_LIMIT, rule_libraries
from atoll.machinery.cel.program import Program
from atoll.machinery.cel.sizes import SizeEstimate
from atoll.machinery.cel.types import INT, STRING, Field, ListType, MapType, ObjectType
from atoll.machinery.process.time_slicing import run_sliced

#: Kubernetes' limit of the static estimate of one rule.
STATIC_LIMIT = 10_000_000
#: Limit of the CPU time between two iterations of the loop: four times the sum of a slice, its uninterruptible part and
#: the loop's own work, which is 10 to 30 ms on an idle machine.
STALL_S = 0.2
DEADLINE_S = 0.5

ITEM = ObjectType("item", {"name": Field(STRING), "tags": Field(MapType(STRING, STRING))})
SELF = ObjectType(
    "self",
    {
        "few": Field(ListType(INT)),
        "ints": Field(ListType(INT)),
        "texts": Field(ListType(STRING)),
        "items": Field(ListType(ITEM)),
        "text": Field(STRING),
        "long": Field(STRING),
    },
)
SIZES = {
    "self.few": 21,
    "self.ints": 2000,
    "self.texts": 1000,
    "self.texts.@items": 100,
    "self.items": 1000,
    "self.items.@items.name": 60,
    "self.items.@items.tags": 5,
    "self.text": 1000,
    "self.long": 1_000_000,
}
DATA = {
    "few": list(range(21)),
    "ints": list(range(2000)),
    "texts": [f"{at:0100d}" for at in range(1000)],
    "items": [{"name": f"{at:060d}", "tags": {f"k{i}": "v" for i in range(5)}} for at in range(1000)],
    "text": "a" * 1000,
    "long": "ab" * 500_000,
}


class _Declared:
    def size(self, node: Node) -> SizeEstimate | None:
        found = SIZES.get(".".join(node.path))
        return None if found is None else SizeEstimate(0, found)


RULES = {
    "nested loops": "self.few.all(a, self.few.all(b, self.few.all(c, self.few.all(d, a + b + c + d >= 0))))",
    "a loop over many items": "self.ints.all(a, self.few.exists(b, b == a - 1990) || a < 1990)",
    "sums of lists": "self.ints.map(a, self.ints + self.ints).size() > 0",
    "sums of lists in sums": "self.ints.map(a, (self.ints + self.ints) + (self.ints + self.ints)).size() > 0",
    "sorting": "self.ints.sort().size() > 0",
    "sorting by keys": "self.ints.sortBy(x, -x).size() > 0",
    "distinct objects": "self.items.distinct().size() > 0",
    "sets of objects": "sets.contains(self.items, self.items)",
    "equal objects": "self.items.all(x, self.items == self.items)",
    "objects in lists": "self.items.all(x, x in self.items)",
    "texts in lists": "self.texts.all(x, x in self.texts)",
    "patterns": "self.long.matches('(a|b)*(ba)?(ab)+[a-b]+$')",
    "found patterns": "self.long.findAll('[a-b]').size() >= 0",
    "splitting": "self.few.all(a, self.long.split('').size() >= 0)",
    "growing replacement": "self.few.all(a, self.long.replace('a', self.text).size() >= 0)",
    "formats": "self.few.all(a, '%s%s%s'.format([self.texts, self.texts, self.items]).size() > 0)",
    "joins": "self.texts.join(self.text).size() > 0",
    "ranges": "[1, 2, 3, 4, 5].all(a, lists.range(900000).size() > 0)",
    "flattening": "[self.ints, self.ints, self.ints].map(x, [x, x, x, x]).flatten().flatten().size() > 0",
    "doubling": "self.few.all(a, (self.long + self.long).size() > 0)",
    "case": "self.few.all(a, self.long.upperAscii().lowerAscii().size() > 0)",
}


def _program(rule: str) -> Program:
    return Environment({"self": SELF}, rule_libraries()).compile(rule)


def _ten_times(program: Program) -> Callable[[Callable[[], None]], int]:
    def work(pause: Callable[[], None]) -> int:
        budget = Budget(OBJECT_LIMIT, CALL_LIMIT, pause)
        for _ in range(10):
            try:
                program.evaluate({"self": DATA}, budget)
            except (EvaluationError, BudgetExceeded):
                continue
        return budget.spent

    return work


async def _longest_stall(work: Callable[[Callable[[], None]], Any]) -> float:
    """Return the longest CPU time of this process between two iterations of the loop."""
    longest = 0.0

    async def tick() -> None:
        nonlocal longest
        last = time.process_time()
        while True:
            await asyncio.sleep(0)
            now = time.process_time()
            longest = max(longest, now - last)
            last = now

    ticker = asyncio.create_task(tick())
    await asyncio.sleep(0)
    # A garbage collection visits the objects of all earlier tests of this process, which is not a cost of the rule.
    gc.disable()
    try:
        with contextlib.suppress(TimeoutError):
            await run_sliced(work, DEADLINE_S)
    finally:
        await asyncio.sleep(0)
        gc.enable()
        ticker.cancel()
    return longest


@pytest.mark.parametrize("name", RULES)
async def test_the_loop_is_not_blocked_by(name: str) -> None:
    program = _program(RULES[name])
    assert program.estimate(_Declared()).max <= STATIC_LIMIT
    stall = await _longest_stall(_ten_times(program))
    assert stall < STALL_S


async def test_the_loop_is_not_blocked_by_checking_and_pricing_a_long_rule() -> None:
    rule = " && ".join(f"self.few.size() != {at}" for at in range(1500))

    def work(pause: Callable[[], None]) -> None:
        before = replace_pause(pause)
        try:
            _program(rule).estimate(_Declared())
        finally:
            replace_pause(before)

    assert await _longest_stall(work) < STALL_S


async def test_a_rule_without_a_pause_would_block_the_loop() -> None:
    program = _program(RULES["nested loops"])

    def work(_pause: Callable[[], None]) -> None:
        _ten_times(program)(lambda: None)

    assert await _longest_stall(work) > STALL_S
