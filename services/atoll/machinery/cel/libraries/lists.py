"""`isSorted`, `sum`, `min`, `max`, `indexOf`, `lastIndexOf` and `includes` of lists.

Part of `base`. The first item selects the overload; later items of other types, possible with dyn, are skipped by
comparisons and rejected by sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from atoll.machinery.cel.equality import is_equal
from atoll.machinery.cel.errors import EvaluationError, NoSuchOverload
from atoll.machinery.cel.functions import Function, Library, Overload
from atoll.machinery.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    ListType,
    Type,
    TypeParameter,
)
from atoll.machinery.cel.values import INT_MAX, INT_MIN, UINT_MAX, Duration, Timestamp, UInt

_SUMMABLE: Final = {"int": INT, "uint": UINT, "double": DOUBLE, "duration": DURATION}
_COMPARABLE: Final = {
    **{"int": INT, "uint": UINT, "double": DOUBLE, "bool": BOOL, "duration": DURATION},
    **{"timestamp": TIMESTAMP, "string": STRING, "bytes": BYTES},
}
_NUMBERS: Final = frozenset((int, UInt, float))
_ORDERED: Final = frozenset((str, bytes, bool))


def _is_greater(left: Any, right: Any) -> bool:
    """Report whether both values have a common order and the left one is greater."""
    kind, other = type(left), type(right)
    if (kind is other and kind in _ORDERED) or (kind in _NUMBERS and other in _NUMBERS):
        return bool(left > right)
    if kind is other and kind in (Duration, Timestamp):
        return bool(left.nanos > right.nanos)
    return False


def _is_sorted(items: Sequence[Any]) -> bool:
    return not any(map(_is_greater, items, items[1:]))


def _least(items: Sequence[Any]) -> Any:
    if not items:
        raise EvaluationError("min called on empty list")
    result = items[0]
    for item in items:
        if _is_greater(result, item):
            result = item
    return result


def _greatest(items: Sequence[Any]) -> Any:
    if not items:
        raise EvaluationError("max called on empty list")
    result = items[0]
    for item in items:
        if _is_greater(item, result):
            result = item
    return result


def _sum_int(items: Sequence[Any]) -> int:
    total = 0
    for item in items:
        if type(item) is not int:
            raise NoSuchOverload
        total += item
        if not INT_MIN <= total <= INT_MAX:
            raise EvaluationError("integer overflow")
    return total


def _sum_uint(items: Sequence[Any]) -> UInt:
    total = 0
    for item in items:
        if type(item) is not UInt:
            raise NoSuchOverload
        total += item
        if total > UINT_MAX:
            raise EvaluationError("unsigned integer overflow")
    return UInt(total)


def _sum_double(items: Sequence[Any]) -> float:
    total = 0.0
    for item in items:
        if type(item) is not float:
            raise NoSuchOverload
        total += item
    return total


def _sum_duration(items: Sequence[Any]) -> Duration:
    total = 0
    for item in items:
        if type(item) is not Duration:
            raise NoSuchOverload
        total += item.nanos
        if not INT_MIN <= total <= INT_MAX:
            raise EvaluationError("duration overflow")
    return Duration(total)


def _index_of(items: Sequence[Any], wanted: Any) -> int:
    return next((index for index, item in enumerate(items) if is_equal(item, wanted)), -1)


def _last_index_of(items: Sequence[Any], wanted: Any) -> int:
    return next((index for index in range(len(items) - 1, -1, -1) if is_equal(items[index], wanted)), -1)


def _includes(target: Any, wanted: Any) -> bool:
    if isinstance(target, list):
        return any(is_equal(item, wanted) for item in target)
    return is_equal(target, wanted)


def _of_each(name: str, result: Type | None, identifier: str, call: Callable[..., Any]) -> Function:
    """Return a function of lists of each ordered type; its result is of the item's type unless one is given."""
    overloads = (
        Overload(identifier.format(kind), (ListType(of),), result or of, call, member=True)
        for kind, of in _COMPARABLE.items()
    )
    return Function(name, tuple(overloads))


_SUMS: Final = {"int": _sum_int, "uint": _sum_uint, "double": _sum_double, "duration": _sum_duration}
_ITEM = TypeParameter("A")

LIBRARY: Final = Library(
    "kubernetes.lists",
    (
        _of_each("isSorted", BOOL, "list_{0}_is_sorted_bool", _is_sorted),
        _of_each("min", None, "list_{0}_min_{0}", _least),
        _of_each("max", None, "list_{0}_max_{0}", _greatest),
        Function(
            "sum",
            tuple(
                Overload(f"list_{kind}_sum_{kind}", (ListType(of),), of, _SUMS[kind], member=True)
                for kind, of in _SUMMABLE.items()
            ),
        ),
        Function("indexOf", (Overload("list_a_index_of_int", (ListType(_ITEM), _ITEM), INT, _index_of, member=True),)),
        Function(
            "lastIndexOf",
            (Overload("list_a_last_index_of_int", (ListType(_ITEM), _ITEM), INT, _last_index_of, member=True),),
        ),
    ),
)

INCLUDES: Final = Library(
    "kubernetes.lists.includes",
    (Function("includes", (Overload("list_includes_dyn_dyn", (DYN, DYN), BOOL, _includes, member=True),)),),
)
