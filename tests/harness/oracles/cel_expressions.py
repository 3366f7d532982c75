"""Evaluation of expressions with all of Kubernetes' libraries, and comparison with a row of a table."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest

from atoll.machinery.cel.budget import Budget
from atoll.machinery.cel.environment import Environment
from atoll.machinery.cel.equality import equal
from atoll.machinery.cel.errors import CompileError, EvaluationError
from atoll.machinery.cel.functions import Node
from atoll.machinery.cel.libraries.base import base_libraries
from atoll.machinery.cel.program import Program
from atoll.machinery.cel.sizes import SizeEstimate
from atoll.machinery.cel.types import Type
from atoll.machinery.cel.values import type_of

#: The range of the static estimate.
Expected = tuple[int, int]


class Sizes:
    """Sizes of data by path (`s`, `l.@items`), as the limits of a schema."""

    def __init__(self, by_path: Mapping[str, Expected]) -> None:
        self._by_path = by_path

    def size(self, node: Node) -> SizeEstimate | None:
        found = self._by_path.get(".".join(node.path)) if node.path else None
        return None if found is None else SizeEstimate(*found)


@cache
def _base() -> Environment:
    return Environment({}, base_libraries(None))


def compile_expression(text: str, variables: Mapping[str, Type] | None = None) -> Program:
    """Return the program of an expression. Raises CompileError."""
    return (_base().extend(variables) if variables else _base()).compile(text)


def check_value(expression: str, value: Any, cost: int, estimate: Expected) -> None:
    """Check that the expression has this value, run-time cost and estimate."""
    program = compile_expression(expression)
    budget = Budget()
    found = program.evaluate({}, budget)
    assert type_of(found) == type_of(value)
    assert equal(found, value), found
    assert (budget.spent, program.estimate()) == (cost, estimate)


def check_error(expression: str, message: str, cost: int, estimate: Expected) -> None:
    """Check that the evaluation fails with this message, at this run-time cost and estimate."""
    program = compile_expression(expression)
    budget = Budget()
    with pytest.raises(EvaluationError) as caught:
        program.evaluate({}, budget)
    assert str(caught.value) == message
    assert (budget.spent, program.estimate()) == (cost, estimate)


def check_issue(expression: str, message: str) -> None:
    """Check that the expression is rejected with this first issue."""
    with pytest.raises(CompileError) as caught:
        compile_expression(expression)
    assert caught.value.issues[0].message == message
