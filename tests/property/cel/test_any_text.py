"""Any text is rejected with issues, or is a program that has a value or one of its errors."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.machinery.cel.budget import Budget
from atoll.machinery.cel.equality import compare, equal
from atoll.machinery.cel.errors import BudgetExceeded, CompileError, EvaluationError
from atoll.machinery.cel.values import UInt
from harness.data.cel_table import PROGRAMS, SIZES, VALUES
from harness.seeds import drawn

_WORDS = re.findall(
    r"\S+",
    "b i u f s y l ls m mm d x true false null 1 0 -1 2u 1.5 'a' '' b'a' '%s' [ ] { } ( ) . , : ? ! - + * / % == != < "
    "<= > >= && || in has all exists exists_one map filter size type dyn int string timestamp duration matches "
    "contains optional of none orValue .? [? cel bind format sort sortBy transformMap join split find sum quantity ip",
)
_TEXTS = st.one_of(st.lists(st.sampled_from(_WORDS), max_size=14).map(" ".join), st.text(max_size=40))

_CALLS = (
    "{a}.all(x, {b})",
    "{a}.map(x, {b})",
    "{a}.exists(x, x == {b})",
    "({a} == {b})",
    "({a} + {b})",
    "({a} in {b})",
    "dyn({a})[{b}]",
    "dyn({a}).x",
    "has(dyn({a}).x)",
    "[{a}, {b}]",
    "{{'k': {a}}}.k",
    "(dyn({a}) < dyn({b}))",
    "string(dyn({a}))",
    "dyn({a}).size()",
    "optional.of({a}).orValue({b})",
    "'%s %d'.format([{a}, {b}])",
)
_LEAVES = st.sampled_from(["b", "i", "u", "f", "s", "y", "l", "ls", "m", "d", "x", "null", "1", "'a'", "[]", "{}"])
_EXPRESSIONS = st.recursive(
    _LEAVES,
    lambda inner: st.builds(lambda call, a, b: call.format(a=a, b=b), st.sampled_from(_CALLS), inner, inner),
    max_leaves=6,
)
_NUMBERS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**64 - 1).map(UInt),
    st.floats(allow_nan=False),
    st.sampled_from([0, 1]),
)
_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), _NUMBERS, st.text(max_size=3), st.binary(max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=2), inner, max_size=3)),
    max_leaves=8,
)


def _run(text: str) -> None:
    try:
        program = PROGRAMS.compile(text)
    except CompileError as error:
        assert str(error)
        return
    low, high = program.estimate(SIZES)
    assert 0 <= low <= high <= 2**64 - 1
    budget = Budget(call_limit=100_000)
    try:
        program.evaluate(VALUES, budget)
    except (EvaluationError, BudgetExceeded) as error:
        assert str(error)
    assert budget.spent >= 0


@given(_TEXTS)
@settings(max_examples=drawn(400), deadline=None)
def test_any_text_is_refused_or_runs(text: str) -> None:
    _run(text)


@given(_EXPRESSIONS)
@settings(max_examples=drawn(400), deadline=None)
def test_any_expression_of_any_types_is_refused_or_runs(text: str) -> None:
    _run(text)


@given(_EXPRESSIONS)
@settings(max_examples=drawn(200), deadline=None)
def test_an_evaluation_is_the_same_each_time_and_leaves_its_data_alone(text: str) -> None:
    try:
        program = PROGRAMS.compile(text)
    except CompileError:
        return
    before = repr(VALUES)
    outcomes = []
    for _ in range(2):
        budget = Budget()
        try:
            outcomes.append((repr(program.evaluate(VALUES, budget)), budget.spent))
        except EvaluationError as error:
            outcomes.append((str(error), budget.spent))
    assert outcomes[0] == outcomes[1]
    assert repr(VALUES) == before


@given(_VALUES, _VALUES)
@settings(max_examples=drawn(300), deadline=None)
def test_equality_is_symmetric_and_everything_equals_itself(a: Any, b: Any) -> None:
    assert equal(a, a)
    assert equal(a, b) == equal(b, a)


@given(_NUMBERS, _NUMBERS)
@settings(max_examples=drawn(300), deadline=None)
def test_numbers_have_one_order(a: Any, b: Any) -> None:
    assert compare(a, b) == -compare(b, a)
    assert (compare(a, b) == 0) == equal(a, b)
