"""Numbers: least, greatest, rounding, tests of doubles, signs, square roots and bit operations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from atoll.machinery.cel.equality import compare
from atoll.machinery.cel.errors import EvaluationError
from atoll.machinery.cel.functions import Function, Library, Overload
from atoll.machinery.cel.std.arithmetic import int_result
from atoll.machinery.cel.syntax.ast import Expr, Ident, ListExpr, Literal, MapExpr, StructExpr
from atoll.machinery.cel.syntax.expansion import Expander, Macro
from atoll.machinery.cel.types import BOOL, DOUBLE, DYN, INT, UINT, ListType, Type
from atoll.machinery.cel.values import UINT_MAX, UInt

_NUMBERS: Final = (DOUBLE, INT, UINT)


def _same(value: Any) -> Any:
    return value


def _pick(name: str, worse: int) -> tuple[Callable[[Any, Any], Any], Callable[[Sequence[Any]], Any]]:
    def pair(first: Any, second: Any) -> Any:
        try:
            return second if compare(first, second) == worse else first
        except EvaluationError as error:
            raise EvaluationError(f"{error}: math.@{name}") from None

    def of_list(items: Sequence[Any]) -> Any:
        if not items:
            raise EvaluationError(f"math.@{name}(list) argument must not be empty")
        best = items[0]
        for item in items[1:]:
            best = pair(best, item)
        return best

    return pair, of_list


def _extreme(name: str, worse: int) -> Function:
    pair, of_list = _pick(name, worse)
    prefix = f"math_@{name}"
    overloads = [Overload(f"{prefix}_{of}", (of,), of, _same) for of in _NUMBERS]
    for first in _NUMBERS:
        for second in _NUMBERS:
            result = first if first is second else DYN
            overloads.append(Overload(f"{prefix}_{first}_{second}", (first, second), result, pair))
    overloads += [Overload(f"{prefix}_list_{of}", (ListType(of),), of, of_list) for of in _NUMBERS]
    return Function(f"math.@{name}", tuple(overloads))


def _numeric(expr: Expr) -> bool:
    if isinstance(expr, Literal):
        return type(expr.value) in (int, float, UInt)
    return not isinstance(expr, ListExpr | MapExpr | StructExpr)


def _macro(word: str, function: str) -> Callable[..., Expr | None]:
    def expand(e: Expander, target: Expr, arguments: Sequence[Expr]) -> Expr | None:
        if not isinstance(target, Ident) or target.name != "math":
            return None
        if not arguments:
            raise e.error(target, f"math.{word}() requires at least one argument")
        if len(arguments) == 1:
            only = arguments[0]
            items = only.items if isinstance(only, ListExpr) else ()
            if _numeric(only) or (items and all(map(_numeric, items))):
                return e.call(function, only)
            raise e.error(only, f"math.{word}() invalid single argument value")
        for argument in arguments:
            if not _numeric(argument):
                raise e.error(argument, f"math.{word}() simple literal arguments must be numeric")
        return e.call(function, *arguments) if len(arguments) == 2 else e.call(function, e.list(*arguments))

    return expand


def _whole(rounded: Callable[[float], float]) -> Callable[[float], float]:
    def call(value: float) -> float:
        if math.isnan(value) or math.isinf(value):
            return value
        return math.copysign(float(rounded(value)), value)

    return call


def _round(value: float) -> float:
    """Halves go away from zero."""
    whole = math.trunc(value)
    return whole + math.copysign(1, value) if abs(value - whole) >= 0.5 else whole


def _sign(value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        return value
    kind = type(value)
    return kind(1 if value > 0 else -1 if value < 0 else 0)


def _abs(value: int) -> int:
    return int_result(abs(value))


def _sqrt(value: float) -> float:
    return math.sqrt(value) if value >= 0 else math.nan


def _signed(value: int) -> int:
    value &= UINT_MAX
    return value - (1 << 64) if value >> 63 else value


def _unsigned(value: int) -> UInt:
    return UInt(value & UINT_MAX)


def _left(wrap: Callable[[int], Any]) -> Callable[[int, int], Any]:
    def call(value: int, bits: int) -> Any:
        if bits < 0:
            raise EvaluationError(f"math.bitShiftLeft() negative offset: {bits}")
        return wrap(int(value) << bits if bits < 64 else 0)

    return call


def _right(wrap: Callable[[int], Any]) -> Callable[[int, int], Any]:
    def call(value: int, bits: int) -> Any:
        if bits < 0:
            raise EvaluationError(f"math.bitShiftRight() negative offset: {bits}")
        return wrap((int(value) & UINT_MAX) >> bits if bits < 64 else 0)

    return call


def _on_double(name: str, result: Type, call: Callable[[float], Any]) -> Function:
    return Function(f"math.{name}", (Overload(f"math_{name}_double", (DOUBLE,), result, call),))


def _bits(name: str, call: Callable[[int, int], int]) -> Function:
    return Function(
        f"math.{name}",
        (
            Overload(f"math_{name}_int_int", (INT, INT), INT, lambda a, b: _signed(call(a, b))),
            Overload(f"math_{name}_uint_uint", (UINT, UINT), UINT, lambda a, b: _unsigned(call(int(a), int(b)))),
        ),
    )


MATH = Library(
    "cel.lib.ext.math",
    functions=(
        _extreme("min", 1),
        _extreme("max", -1),
        _on_double("ceil", DOUBLE, _whole(math.ceil)),
        _on_double("floor", DOUBLE, _whole(math.floor)),
        _on_double("round", DOUBLE, _whole(_round)),
        _on_double("trunc", DOUBLE, _whole(math.trunc)),
        _on_double("isInf", BOOL, math.isinf),
        _on_double("isNaN", BOOL, math.isnan),
        _on_double("isFinite", BOOL, math.isfinite),
        Function(
            "math.abs",
            (
                Overload("math_abs_double", (DOUBLE,), DOUBLE, abs),
                Overload("math_abs_int", (INT,), INT, _abs),
                Overload("math_abs_uint", (UINT,), UINT, _same),
            ),
        ),
        Function("math.sign", tuple(Overload(f"math_sign_{of}", (of,), of, _sign) for of in _NUMBERS)),
        Function("math.sqrt", tuple(Overload(f"math_sqrt_{of}", (of,), DOUBLE, _sqrt) for of in _NUMBERS)),
        _bits("bitAnd", int.__and__),
        _bits("bitOr", int.__or__),
        _bits("bitXor", int.__xor__),
        Function(
            "math.bitNot",
            (
                Overload("math_bitNot_int_int", (INT,), INT, int.__invert__),
                Overload("math_bitNot_uint_uint", (UINT,), UINT, lambda a: _unsigned(~int(a))),
            ),
        ),
        Function(
            "math.bitShiftLeft",
            (
                Overload("math_bitShiftLeft_int_int", (INT, INT), INT, _left(_signed)),
                Overload("math_bitShiftLeft_uint_int", (UINT, INT), UINT, _left(_unsigned)),
            ),
        ),
        Function(
            "math.bitShiftRight",
            (
                Overload("math_bitShiftRight_int_int", (INT, INT), INT, _right(_signed)),
                Overload("math_bitShiftRight_uint_int", (UINT, INT), UINT, _right(_unsigned)),
            ),
        ),
    ),
    macros=(
        Macro("least", None, True, _macro("least", "math.@min")),
        Macro("greatest", None, True, _macro("greatest", "math.@max")),
    ),
)
