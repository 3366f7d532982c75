"""Runs seeded cases through the oracle and through the product, and compares the results.

A suite has cases and the product's result for each; `differing` returns the numbers of cases with different results.
The known differences stand in differences.json with a reason each; a test fails for a new one, and for a listed one
that has gone, so the list can only shrink.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from harness.oracles.kubernetes import Oracle

Object = dict[str, Any]
#: The cases of each suite in the long tier.
LONG = 5000
_LISTED = Path(__file__).with_name("differences.json")
_MAX_LISTED = 3
_BATCH = 500
#: The number of repetitions of a case that differs.
_AGAIN = 20


class Suite(NamedTuple):
    """`case(number)` is a request to the oracle; `ours(case)` the product's result in the oracle's format."""

    name: str
    case: Callable[[int], Object]
    ours: Callable[[Object], Any]
    #: Normalizes an answer of the oracle for the comparison.
    theirs: Callable[[Any], Any] = lambda answer: answer
    #: Whether both results agree; the product's comes first.
    same: Callable[[Any, Any], bool] = operator.eq


class Difference(NamedTuple):
    """One case with different results."""

    number: int
    case: Object
    ours: Any
    theirs: Any

    def __str__(self) -> str:
        return "\n".join(
            (
                f"case {self.number}: {json.dumps(self.case)}",
                f"ours:   {json.dumps(self.ours, sort_keys=True)}",
                f"theirs: {json.dumps(self.theirs, sort_keys=True)}",
            )
        )


def differing(suite: Suite, oracle: Oracle, numbers: range) -> list[Difference]:
    """The cases of `numbers` that the product and the oracle answer differently, in order.

    Upstream walks Go's maps, whose order is another each time, so some of its answers are one of several. A case that
    differs is repeated, and agrees if one of the answers does.
    """
    found: list[Difference] = []
    for start in range(numbers.start, numbers.stop, _BATCH):
        cases = [(number, suite.case(number)) for number in range(start, min(start + _BATCH, numbers.stop))]
        for (number, case), answer in zip(cases, oracle.ask([case for _, case in cases]), strict=True):
            ours, theirs = suite.ours(case), suite.theirs(answer)
            if not suite.same(ours, theirs):
                found.append(Difference(number, case, ours, theirs))
    if not found:
        return []
    again = oracle.ask([each.case for each in found for _ in range(_AGAIN)])
    answers = [again[index : index + _AGAIN] for index in range(0, len(again), _AGAIN)]
    return [
        each
        for each, others in zip(found, answers, strict=True)
        if not any(suite.same(each.ours, suite.theirs(other)) for other in others)
    ]


def listed(suite: Suite) -> dict[int, str]:
    """The numbers of the known differences of a suite, each with its reason."""
    groups = json.loads(_LISTED.read_text()).get(suite.name, [])
    return {number: group["reason"] for group in groups for number in group["cases"]}


def agree(suite: Suite, oracle: Oracle, count: int) -> None:
    """Fail unless the first `count` cases agree, except exactly those that are listed."""
    known = {number for number in listed(suite) if number < count}
    found = {each.number: each for each in differing(suite, oracle, range(count))}
    new = [each for number, each in found.items() if number not in known]
    shown = "\n\n".join(map(str, new[:_MAX_LISTED]))
    assert not new, f"{suite.name}: {len(new)} of {count} differ: {[each.number for each in new[:50]]}\n{shown}"
    gone = sorted(known - found.keys())
    assert not gone, f"{suite.name}: these agree now and leave the list: {gone}"
