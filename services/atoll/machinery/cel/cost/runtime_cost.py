"""Run-time costs of calls, as cel-go's cost tracker charges them.

The compiler asks once for each call: the answer is a constant, or a function of arguments and result. Invariant: the
numbers are those of cel-go as Kubernetes configures it (a presence test costs what its path costs).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from atoll.machinery.cel.checker.scope import Tables
from atoll.machinery.cel.functions import Overload, RuntimeCost
from atoll.machinery.cel.sizes import REGEX_FACTOR, STRING_FACTOR, size_of
from atoll.machinery.cel.types import Kind, Type

LIST_COST: Final = 10
MAP_COST: Final = 30
STRUCT_COST: Final = 40

_LANGUAGE_KINDS: Final = frozenset(Kind) - {Kind.OPAQUE, Kind.OBJECT, Kind.DYN, Kind.ANY, Kind.PARAMETER, Kind.ERROR}

#: (arguments, result) -> cost
Price = Callable[[Sequence[Any], Any], int]


def traversal(size: int) -> int:
    """Return the cost of one traversal of a text: a tenth of its size, rounded up."""
    return (size + 9) // 10


def _first(arguments: Sequence[Any], _result: Any) -> int:
    return traversal(size_of(arguments[0]))


def _second(arguments: Sequence[Any], _result: Any) -> int:
    return traversal(size_of(arguments[1]))


def _smaller(arguments: Sequence[Any], _result: Any) -> int:
    return traversal(min(size_of(arguments[0]), size_of(arguments[1])))


def _sum(arguments: Sequence[Any], _result: Any) -> int:
    return traversal(size_of(arguments[0]) + size_of(arguments[1]))


def _in_list(arguments: Sequence[Any], _result: Any) -> int:
    return size_of(arguments[1])


def _matches(arguments: Sequence[Any], _result: Any) -> int:
    text = math.ceil((1.0 + size_of(arguments[0])) * STRING_FACTOR)
    return text * math.ceil(size_of(arguments[1]) * REGEX_FACTOR)


def _contains(arguments: Sequence[Any], _result: Any) -> int:
    return traversal(size_of(arguments[0])) * traversal(size_of(arguments[1]))


_DEFAULT: Final[dict[str, Price]] = {
    "starts_with_string": _second,
    "ends_with_string": _second,
    "string_to_bytes": _first,
    "bytes_to_string": _first,
    "strings_quote": _first,
    "string_format": _first,
    "in_list": _in_list,
    "less_string": _smaller,
    "greater_string": _smaller,
    "less_equals_string": _smaller,
    "greater_equals_string": _smaller,
    "less_bytes": _smaller,
    "greater_bytes": _smaller,
    "less_equals_bytes": _smaller,
    "greater_equals_bytes": _smaller,
    "equals": _smaller,
    "not_equals": _smaller,
    "add_string": _sum,
    "add_bytes": _sum,
    "matches_string": _matches,
    "contains_string": _contains,
}
_ONE_SIZED: Final = frozenset(
    {Kind.BOOL, Kind.INT, Kind.UINT, Kind.DOUBLE, Kind.NULL, Kind.TIMESTAMP, Kind.DURATION, Kind.TYPE}
)


def price(
    tables: Tables, function: str, overloads: Sequence[Overload], types: Sequence[Type], *, dispatched: bool
) -> int | Price:
    """Return the price of a call: a constant, or a function.

    `types` are the static types of the arguments, the receiver first. `dispatched` means that the overload is selected
    at run time; cel-go then has no overload id.
    """
    overload = overloads[0] if len(overloads) == 1 and not dispatched else None
    id = "" if overload is None else overload.id
    own = None if overload is None else overload.cost
    # Libraries price equality of their own values only; the price for all other types is known at compile time.
    is_default_equality = function == "_==_" and all(of.kind in _LANGUAGE_KINDS for of in types)
    declared: tuple[RuntimeCost, ...] = () if is_default_equality else tables.costs.get(function, ())
    if own is not None:
        declared = (own, *declared)
    default = _DEFAULT.get(id)
    if default is _smaller and any(_fixed_size(of) for of in types):
        # A scalar has size 1, so the smaller size is 1 unless the other value is empty.
        default = _smaller_fixed(types)
    if not declared:
        return 1 if default is None else default
    return _declared(id, declared, default)


def _fixed_size(of: Type) -> bool:
    return of.kind in _ONE_SIZED


def _smaller_fixed(types: Sequence[Type]) -> Price | None:
    other = [of for of in types if not _fixed_size(of)]
    if not other:
        return None
    at = 0 if not _fixed_size(types[0]) else 1

    def cost(arguments: Sequence[Any], _result: Any) -> int:
        return 1 if size_of(arguments[at]) else 0

    return cost


def _declared(id: str, declared: tuple[RuntimeCost, ...], default: Price | None) -> Price:
    def cost(arguments: Sequence[Any], result: Any) -> int:
        for each in declared:
            found = each(id, arguments, result)
            if found is not None:
                return found
        return 1 if default is None else default(arguments, result)

    return cost
