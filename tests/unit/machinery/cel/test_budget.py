"""Budgets: the limits that end an evaluation, the costs charged to it, and its pauses."""

from __future__ import annotations

import contextlib

import pytest

from atoll.machinery.cel import bounds
from atoll.machinery.cel.budget import Budget
from atoll.machinery.cel.environment import Environment
from atoll.machinery.cel.errors import BudgetExceeded, EvaluationError
from atoll.machinery.cel.libraries.base import base_libraries
from atoll.machinery.cel.types import DYN, INT, STRING, ListType

ENVIRONMENT = Environment({"l": ListType(INT), "s": STRING, "d": DYN}, base_libraries())
LONG = {"l": list(range(1000)), "s": "x" * 1000, "d": {}}


def test_an_evaluation_stops_when_it_costs_more_than_a_call_may() -> None:
    budget = Budget(call_limit=100)
    with pytest.raises(BudgetExceeded, match="operation cancelled: actual cost limit exceeded"):
        ENVIRONMENT.compile("l.all(x, x >= 0)").evaluate(LONG, budget)
    assert budget.spent == 101


def test_the_limit_itself_may_be_reached() -> None:
    program = ENVIRONMENT.compile("l.all(x, x >= 0)")
    cost = program.cost(LONG)
    assert program.evaluate(LONG, Budget(call_limit=cost)) is True
    with pytest.raises(BudgetExceeded):
        program.evaluate(LONG, Budget(call_limit=cost - 1))


@pytest.mark.parametrize("over", [1, 2])
def test_a_failure_or_a_value_slightly_beyond_the_limit_is_no_result(over: int) -> None:
    """These costs are checked only at the end of the evaluation, not in a loop."""
    for text in ("d.a + 1", "d.b"):
        program = ENVIRONMENT.compile(text)
        budget = Budget()
        with contextlib.suppress(EvaluationError):
            program.evaluate({"d": {"b": 1}}, budget)
        with pytest.raises(BudgetExceeded):
            program.evaluate({"d": {"b": 1}}, Budget(call_limit=budget.spent - over))


def test_programs_that_share_a_budget_share_its_limit() -> None:
    program = ENVIRONMENT.compile("l.size() == 1000")
    budget = Budget(limit=10)
    spent = 0
    with pytest.raises(BudgetExceeded):
        for _ in range(10):
            program.evaluate(LONG, budget)
            spent = budget.spent
    assert spent == 9
    assert budget.remaining == 0


def test_a_failed_evaluation_is_charged_too() -> None:
    budget = Budget()
    with pytest.raises(EvaluationError):
        ENVIRONMENT.compile("l.exists_one(x, 1 / x > 0)").evaluate(LONG, budget)
    assert budget.spent > 0


def test_exceeding_the_limit_is_reported_rather_than_an_earlier_error() -> None:
    with pytest.raises(BudgetExceeded):
        ENVIRONMENT.compile("d.a + s.size() + s.size()").evaluate(LONG, Budget(call_limit=1))


def test_exceeding_the_limit_is_reported_rather_than_a_value_of_another_type() -> None:
    with pytest.raises(BudgetExceeded):
        ENVIRONMENT.compile("s.size() + l.size() > 0").evaluate({"s": "x", "l": None}, Budget(call_limit=1))


def test_absorbing_operators_do_not_absorb_the_end_of_the_budget() -> None:
    with pytest.raises(BudgetExceeded):
        ENVIRONMENT.compile("l.all(x, x >= 0) || true").evaluate(LONG, Budget(call_limit=100))


def test_an_evaluation_pauses_at_every_stride_of_cost() -> None:
    pauses = []
    program = ENVIRONMENT.compile("l.all(x, x >= 0)")
    program.evaluate(LONG, Budget(pause=lambda: pauses.append(1), stride=500))
    assert program.cost(LONG) // 500 - 1 <= len(pauses) <= program.cost(LONG) // 500


def test_an_exception_of_a_pause_ends_the_evaluation() -> None:
    class Cut(BaseException):
        pass

    def pause() -> None:
        raise Cut

    with pytest.raises(Cut):
        ENVIRONMENT.compile("l.exists(x, x < 0) || true").evaluate(LONG, Budget(pause=pause, stride=100))


@pytest.mark.parametrize(
    "text",
    [
        "l.map(x, l + l + l + l + l + l).size() > 0",
        "l.map(x, l.map(y, l + l)).size() > 0",
        "s.replace('x', s.replace('x', s)).size() > 0",
        "[s, s, s, s].join('').replace('x', s.replace('', s)).size() > 0",
        "l.map(x, s).join(s.replace('x', '20 characters more.')).size() > 0",
    ],
)
def test_an_expression_that_would_fill_the_memory_is_ended_by_a_bound(text: str) -> None:
    program = ENVIRONMENT.compile(text)
    with pytest.raises(BudgetExceeded):
        program.evaluate({"l": list(range(3000)), "s": "x" * 3000}, Budget(call_limit=10**12))


def test_functions_pause_only_inside_of_an_evaluation_that_pauses() -> None:
    pauses = []
    before = bounds.replace_pause(lambda: pauses.append(1))
    try:
        assert list(bounds.with_yields(range(1000))) == list(range(1000))
    finally:
        bounds.replace_pause(before)
    assert len(pauses) == 3
    list(bounds.with_yields(range(1000)))
    assert len(pauses) == 3


def test_compiling_a_long_text_pauses_often() -> None:
    pauses = []
    ENVIRONMENT.compile(" && ".join(["l.size() > 0"] * 1000), lambda: pauses.append(1))
    assert len(pauses) > 100
