"""Compiling any text yields a program or issues; evaluating a program yields a value or an error of the language."""

from __future__ import annotations

import contextlib
import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from atoll.machinery.cel import types
from atoll.machinery.cel.budget import Budget
from atoll.machinery.cel.errors import BudgetExceeded, CompileError, EvaluationError
from atoll.machinery.cel.program import Program
from contract.cel.expressions import VARIABLES, Expressions, bindings
from harness.oracles.cel_expressions import compile_expression

_PIECES = (
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ".",
    ",",
    ":",
    "?",
    "'",
    "\\",
    "-",
    "!",
    "&&",
    "u",
    "e",
    "0x",
    "\n",
    "`",
    "日",
    "x",
)
_NAMED = {
    **{"bool": types.BOOL, "int": types.INT, "uint": types.UINT, "double": types.DOUBLE, "string": types.STRING},
    **{"bytes": types.BYTES, "dyn": types.DYN, "list(int)": types.ListType(types.INT)},
    **{"list(string)": types.ListType(types.STRING), "list(double)": types.ListType(types.DOUBLE)},
    **{"map(string, int)": types.MapType(types.STRING, types.INT)},
    **{"map(string, string)": types.MapType(types.STRING, types.STRING)},
}
#: From limits that most expressions exceed to one that few do.
_LIMITS = (0, 3, 10, 30, 100, 100_000)
_TYPES = {name: _NAMED[of] for name, of in VARIABLES.items()}


def _run(text: str, rng: random.Random) -> None:
    with contextlib.suppress(CompileError):
        program = compile_expression(text, _TYPES)
        least, most = program.estimate()
        assert 0 <= least <= most
        _evaluate_within(program, bindings(rng), rng.choice(_LIMITS))


def _evaluate_within(program: Program, variables: dict[str, Any], limit: int) -> None:
    """An evaluation that exceeds the limit raises BudgetExceeded and charges one unit above it; no other exceeds it."""
    budget, exceeded = Budget(call_limit=limit), False
    try:
        program.evaluate(variables, budget)
    except BudgetExceeded:
        exceeded = True
    except EvaluationError:
        pass
    assert budget.spent == limit + 1 if exceeded else 0 <= budget.spent <= limit


@given(st.integers(0, 10**9))
def test_a_drawn_expression_ends_in_a_value_or_an_error_of_the_language(seed: int) -> None:
    rng = random.Random(seed)
    _run(Expressions(rng).any(), rng)


@given(st.integers(0, 10**9), st.lists(st.tuples(st.integers(0, 200), st.sampled_from(("", *_PIECES))), max_size=4))
def test_a_broken_expression_has_issues_or_is_none(seed: int, cuts: list[tuple[int, str]]) -> None:
    rng = random.Random(seed)
    text = Expressions(rng).any()
    for at, piece in cuts:
        text = text[:at] + piece + text[at + 1 :]
    _run(text, rng)


@given(st.text(max_size=60))
def test_any_text_has_issues_or_is_an_expression(text: str) -> None:
    _run(text, random.Random(1))
