"""Expressions over the row of one destination, and their values as JSON.

Collectors and the tests of broken objects are made of them; admission compiles them to refuse what does not compile.
Invariant: a value is JSON of a bounded size without NaN or infinity; all else is an error, and no value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from atoll.machinery.cel.budget import Budget
from atoll.machinery.cel.errors import BudgetExceeded, CompileError, EvaluationError, NoSuchKey
from atoll.machinery.cel.functions import Node
from atoll.machinery.cel.program import Program
from atoll.machinery.cel.sizes import SizeEstimate
from atoll.machinery.cel.types import BOOL, DYN, STRING, MapType, Type

if TYPE_CHECKING:
    from atoll.machinery.cel.environment import Environment

#: Units of all expressions of a collector for one row, some 3 ms; of one expression by its static estimate.
ROW_BUDGET, MAX_STATIC_COST = 100_000, 10_000_000
#: Most elements of a list, or characters of a text, that the static estimate counts with.
_ELEMENTS = 100
MAX_CELL_BYTES, MAX_ERROR = 1024, 256
#: Below it a double has all whole numbers.
_EXACT = 2**53
#: `obj` is the object of the workspace without its status, `sent` its copy for this destination without its status,
#: `returned` what the edge cluster says of it, `associated` how what it makes of it fares, by kind.
_VARIABLES: Mapping[str, Type] = {
    "inventory": MapType(STRING, STRING),
    "obj": DYN,
    "sent": DYN,
    "returned": MapType(STRING, DYN),
    "propagation": MapType(STRING, STRING),
    "associated": MapType(STRING, DYN),
}


class InvalidExpression(Exception):
    """A text that is no expression, or one that costs too much."""


class NoValue(Exception):
    """An expression that has no value for a row; the text says why, without data of the row."""


class _Sizes:
    def size(self, node: Node) -> SizeEstimate:
        return SizeEstimate(0, _ELEMENTS)


@cache
def _environment() -> Environment:
    # A process without expressions is spared the libraries, 3 MB.
    from atoll.machinery.cel.environment import Environment
    from atoll.machinery.cel.libraries.base import rule_libraries

    return Environment(_VARIABLES, rule_libraries(), homogeneous=False)


def compile_expression(text: str, wanted: Type = DYN, pause: Callable[[], None] | None = None) -> Program:
    """Compile an expression of a type, DYN for any. `pause` is called often. Raises InvalidExpression."""
    try:
        program = _environment().compile(text, pause)
    except CompileError as error:
        raise InvalidExpression(f"compilation failed: {error}") from None
    if wanted != DYN and program.type not in (wanted, DYN):
        raise InvalidExpression(f"must evaluate to a {'bool' if wanted == BOOL else 'string'}")
    cost = program.estimate(_Sizes()).max
    if cost > MAX_STATIC_COST:
        raise InvalidExpression(f"estimated cost {cost} exceeds the limit of {MAX_STATIC_COST}")
    return program


def value_of(program: Program, row: Mapping[str, Any], budget: Budget) -> Any:
    """Return the value for a row, as JSON; a field that is not there is null. Raises NoValue."""
    try:
        found = _plain(program.evaluate(row, budget))
    except NoSuchKey:
        return None
    except (EvaluationError, BudgetExceeded) as error:
        raise NoValue(str(error)[:MAX_ERROR]) from None
    if len(msgspec.json.encode(found)) > MAX_CELL_BYTES:
        raise NoValue(f"the value is larger than {MAX_CELL_BYTES} bytes")
    return found


def whole(value: float) -> int | float:
    """Return a number in the one form that equal numbers have."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT else value


def _plain(value: Any) -> Any:
    """Return a value of an expression as JSON. Raises NoValue."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NoValue("the value is not a finite number")
        return whole(value)
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in sorted(value.items(), key=lambda row: str(row[0]))}
    raise NoValue("the value is not JSON")
