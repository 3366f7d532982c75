"""What do the rules of a definition cost a write: microseconds of one rule, and of checking and pricing one?

Measured alone, in this process, in CPU time, on an object of 1 KB with ten items; the chain of a write comes on top.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from atoll.machinery.cel.budget import Budget
from atoll.machinery.cel.environment import Environment
from atoll.machinery.cel.libraries.base import rule_libraries
from atoll.machinery.cel.types import INT, STRING, Field, ListType, ObjectType
from loadtest.bench import Bench
from loadtest.report import Row

ITEM = ObjectType("item", {"port": Field(INT), "name": Field(STRING)})
SPEC = ObjectType(
    "spec", {"size": Field(INT), "max": Field(INT), "name": Field(STRING), "ports": Field(ListType(ITEM))}
)
SELF = ObjectType("self", {"spec": Field(SPEC)})
OBJECT = {
    "spec": {
        "size": 3,
        "max": 5,
        "name": "hello",
        "ports": [{"port": 80 + at, "name": f"port-{at}"} for at in range(10)],
    }
}

#: Expressions, and their budgets in microseconds.
RULES = (
    ("self.spec.size <= self.spec.max", 3),
    ("has(self.spec.name) && self.spec.name.size() < 63", 4),
    ("self.spec.name == 'hello' || self.spec.size > 1", 4),
    ("self.spec.name.matches('^[a-z]+$')", 8),
    ("self.spec.ports.all(p, p.port > 0 && p.port < 65536)", 15),
)
NESTED = "self.spec.ports.all(a, self.spec.ports.all(b, self.spec.ports.all(c, a.port + b.port + c.port > 0)))"


async def run(bench: Bench) -> list[Row]:
    turns = bench.size(5_000, 50_000)
    environment = Environment({"self": SELF}, rule_libraries())
    rows = []
    for rule, budget in RULES:
        program = environment.compile(rule)
        spent = _cpu_us(
            partial(lambda each: each.evaluate({"self": OBJECT}, Budget(10_000_000, 1_000_000)), program), turns
        )
        rows.append(Row(f"CEL {rule}", spent, "us", budget))
    rows.append(
        Row("CEL check and compile, one rule", _cpu_us(lambda: environment.compile(RULES[4][0]), 200), "us", 1000)
    )
    priced = environment.compile(NESTED)
    rows.append(Row("CEL static estimate of a nested rule", _cpu_us(priced.estimate, 200), "us", 500))
    cost = priced.cost({"self": OBJECT})
    spent = _cpu_us(lambda: priced.evaluate({"self": OBJECT}), 20)
    rows.append(Row("CEL a million of run-time cost", spent / cost * 1000, "ms", 150, note=f"{cost:,} measured"))
    return rows


def _cpu_us(work: Callable[[], Any], turns: int) -> float:
    """CPU microseconds of one turn; the best of three runs."""
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        for _ in range(turns):
            work()
        best = min(best, time.process_time() - start)
    return best / turns * 1e6
