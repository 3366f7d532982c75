"""`< <= > >=` for all pairs of types with an order, and equality.

Part of the standard library. A table yields the overloads, as each of the four operators has the same fourteen.
"""

from __future__ import annotations

from typing import Any

from atoll.machinery.cel.equality import compare, equal, is_equal
from atoll.machinery.cel.functions import Function, Overload
from atoll.machinery.cel.types import BOOL, BYTES, DOUBLE, DURATION, INT, STRING, TIMESTAMP, UINT, Type, TypeParameter

_A = TypeParameter("A")

_PAIRS: tuple[tuple[str, Type, Type], ...] = (
    ("bool", BOOL, BOOL),
    ("int64", INT, INT),
    ("int64_double", INT, DOUBLE),
    ("int64_uint64", INT, UINT),
    ("uint64", UINT, UINT),
    ("uint64_double", UINT, DOUBLE),
    ("uint64_int64", UINT, INT),
    ("double", DOUBLE, DOUBLE),
    ("double_int64", DOUBLE, INT),
    ("double_uint64", DOUBLE, UINT),
    ("string", STRING, STRING),
    ("bytes", BYTES, BYTES),
    ("timestamp", TIMESTAMP, TIMESTAMP),
    ("duration", DURATION, DURATION),
)


def _order(prefix: str, accept: tuple[int, ...]) -> tuple[Overload, ...]:
    def call(a: Any, b: Any) -> bool:
        return compare(a, b) in accept

    return tuple(Overload(f"{prefix}_{name}", (left, right), BOOL, call) for name, left, right in _PAIRS)


FUNCTIONS = (
    Function("_<_", _order("less", (-1,))),
    Function("_<=_", _order("less_equals", (-1, 0))),
    Function("_>_", _order("greater", (1,))),
    Function("_>=_", _order("greater_equals", (0, 1))),
    Function("_==_", (Overload("equals", (_A, _A), BOOL, equal),)),
    Function("_!=_", (Overload("not_equals", (_A, _A), BOOL, lambda a, b: not is_equal(a, b)),)),
)
