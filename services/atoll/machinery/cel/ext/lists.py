"""Lists: slice, flatten, sort, sortBy, distinct, reverse, range; version 3 of cel-go's library, with its prices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from atoll.machinery.cel.bounds import check_items, with_yields, yield_to_loop
from atoll.machinery.cel.equality import is_equal
from atoll.machinery.cel.errors import BudgetExceeded, EvaluationError, NoSuchOverload
from atoll.machinery.cel.functions import CallSite, Function, Library, Node, Overload
from atoll.machinery.cel.sizes import MAX, STRING_FACTOR, CallEstimate, CostEstimate, SizeEstimate, size_of
from atoll.machinery.cel.std.optionals import bind
from atoll.machinery.cel.syntax.ast import Call, Comprehension, Expr, Ident, ListExpr, Literal, Select
from atoll.machinery.cel.syntax.expansion import Expander, Macro
from atoll.machinery.cel.syntax.macros import MAP
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
    runtime_name,
)
from atoll.machinery.cel.values import Duration, Timestamp, type_of

_T: Final = TypeParameter("T")
_LIST: Final = ListType(_T)
_COMPARABLE: Final = (INT, UINT, DOUBLE, BOOL, DURATION, TIMESTAMP, STRING, BYTES)
_INPUT: Final = "@__sortBy_input__"
_BASE: Final = 11


def _slice(items: list[Any], start: int, end: int) -> list[Any]:
    if start < 0 or end < 0:
        raise EvaluationError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise EvaluationError(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if len(items) < end:
        raise EvaluationError(f"cannot slice({start}, {end}), list is length {len(items)}")
    return items[start:end]


def _flatten(items: Sequence[Any], depth: int = 1) -> list[Any]:
    if not isinstance(items, list):
        raise NoSuchOverload(f"no such overload: {runtime_name(type_of(items))}.flatten()")
    if depth < 0:
        raise EvaluationError("level must be non-negative")
    flat: list[Any] = []
    for item in with_yields(items):
        if isinstance(item, list) and depth > 0:
            flat.extend(_flatten(item, depth - 1))
        else:
            flat.append(item)
        check_items(len(flat))
    return flat


def _range(count: int) -> list[int]:
    if count < 0:
        raise EvaluationError(f"lists.range: size must be non-negative, got {count}")
    if count > _RANGE_LIMIT:
        raise EvaluationError(f"lists.range: size {count} exceeds maximum allowed ({_RANGE_LIMIT})")
    numbers: list[int] = []
    for start in range(0, count, _RANGE_PART):
        yield_to_loop()
        numbers.extend(range(start, min(start + _RANGE_PART, count)))
    return numbers


_RANGE_LIMIT: Final = 1_000_000
_RANGE_PART: Final = 50_000
#: Longer lists exceed Kubernetes' cost limit of an object if the price is the square of the length.
_SQUARE_LIMIT: Final = 3_000


def _check_square(items: Sequence[Any]) -> None:
    if len(items) > _SQUARE_LIMIT:
        raise BudgetExceeded


def _distinct(items: list[Any]) -> list[Any]:
    _check_square(items)
    kinds = {type(item) for item in items}
    if kinds <= {str} or kinds <= {int}:
        return list(dict.fromkeys(items))
    unique: list[Any] = []
    for item in items:
        yield_to_loop()
        if not any(is_equal(item, other) for other in unique):
            unique.append(item)
    return unique


def _sort(items: list[Any]) -> list[Any]:
    return _sort_by_keys(items, items)


def _sort_by_keys(items: list[Any], keys: list[Any]) -> list[Any]:
    if len(items) != len(keys):
        raise EvaluationError(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, "
            f"but got {len(items)} and {len(keys)} elements respectively"
        )
    if not items:
        return items
    kind = type(keys[0])
    if kind in (list, dict, type(None)):
        raise EvaluationError("list elements must be comparable")
    if any(type(key) is not kind for key in keys):
        raise EvaluationError("list elements must have the same type")
    _check_square(items)
    if kind in (Timestamp, Duration):
        keys = [key.nanos for key in keys]
    return [items[at] for at in sorted(range(len(items)), key=keys.__getitem__)]


def _sort_by(e: Expander, target: Expr, arguments: Sequence[Expr]) -> Expr:
    if not isinstance(target, ListExpr | Select | Ident | Comprehension | Call):
        raise e.error(
            target, "sortBy can only be applied to a list, identifier, comprehension, call or select expression"
        )
    keys = MAP.expand(e, e.ident(_INPUT), list(arguments))
    call = e.member_call("@sortByAssociatedKeys", e.ident(_INPUT), keys)
    return bind(e, _INPUT, target, call)


# --- prices


def _allocating(factor: float, size: int) -> int:
    return int(size * factor) + _BASE


def _output_cost(_id: str, _arguments: Sequence[Any], result: Any) -> int:
    return _allocating(1, len(result))


def _flatten_cost(_id: str, arguments: Sequence[Any], _result: Any) -> int:
    return _allocating(float(arguments[1]) if len(arguments) == 2 else 1, size_of(arguments[0]))


def _quadratic(at: int) -> Callable[[str, Sequence[Any], Any], int]:
    def cost(_id: str, arguments: Sequence[Any], _result: Any) -> int:
        items = arguments[at]
        factor = 2.0
        if items and isinstance(items[0], str | bytes):
            factor += STRING_FACTOR
        return _allocating(factor, len(items) * len(items))

    return cost


def _allocating_estimate(factor: float, size: SizeEstimate) -> CallEstimate:
    return CallEstimate(size.scaled(factor).plus(CostEstimate(_BASE, _BASE)), size)


def _literal(node: Node, default: int) -> int:
    expr = node.expr
    if isinstance(expr, Literal) and type(expr.value) is int:
        return max(expr.value, 0)
    return default


def _fixed(size: int) -> SizeEstimate:
    return SizeEstimate(size, size)


def _slice_estimate(site: CallSite) -> CallEstimate | None:
    if site.target is None:
        return None
    size = site.size(site.target)
    start, end = _literal(site.arguments[0], 0), _literal(site.arguments[1], size.max)
    # cel-go subtracts without a check, so a start after the end results in a size near 2^64.
    return _allocating_estimate(1, _fixed((end - start) & MAX))


def _range_estimate(site: CallSite) -> CallEstimate:
    return _allocating_estimate(1, _fixed(_literal(site.arguments[0], MAX)))


def _reverse_estimate(site: CallSite) -> CallEstimate | None:
    return None if site.target is None else _allocating_estimate(1, site.size(site.target))


def _flatten_estimate(site: CallSite) -> CallEstimate | None:
    if site.target is None:
        return None
    depth = _literal(site.arguments[0], MAX) if site.arguments else 1
    return _allocating_estimate(float(depth), site.size(site.target))


def _square_estimate(item: Type, *, keys: bool = False) -> Callable[[CallSite], CallEstimate | None]:
    factor = 2.0 + (STRING_FACTOR if item in (STRING, BYTES) else 0.0)

    def estimate(site: CallSite) -> CallEstimate | None:
        if site.target is None:
            return None
        size = site.size(site.arguments[0] if keys else site.target)
        return _allocating_estimate(factor, size.times(size))

    return estimate


def _sorts() -> tuple[Overload, ...]:
    return tuple(
        Overload(
            f"list_{runtime_name(of)}_sort",
            (ListType(of),),
            ListType(of),
            _sort,
            member=True,
            cost=_quadratic(0),
            estimate=_square_estimate(of),
        )
        for of in _COMPARABLE
    )


def _sorts_by() -> tuple[Overload, ...]:
    return tuple(
        Overload(
            f"list_{runtime_name(of)}_sortByAssociatedKeys",
            (_LIST, ListType(of)),
            _LIST,
            _sort_by_keys,
            member=True,
            cost=_quadratic(1),
            estimate=_square_estimate(of, keys=True),
        )
        for of in _COMPARABLE
    )


def _member(name: str, *overloads: Overload) -> Function:
    return Function(name, overloads)


LISTS = Library(
    "cel.lib.ext.lists",
    functions=(
        _member("slice", Overload("list_slice", (_LIST, INT, INT), _LIST, _slice, True, _output_cost, _slice_estimate)),
        _member(
            "flatten",
            Overload(
                "list_flatten",
                (ListType(_LIST),),
                _LIST,
                _flatten,
                True,
                _flatten_cost,
                _flatten_estimate,
                guarded=False,
            ),
            Overload(
                "list_flatten_int",
                (ListType(DYN), INT),
                ListType(DYN),
                _flatten,
                True,
                _flatten_cost,
                _flatten_estimate,
            ),
        ),
        Function(
            "lists.range",
            (Overload("lists_range", (INT,), ListType(INT), _range, False, _output_cost, _range_estimate),),
        ),
        _member(
            "reverse",
            Overload("list_reverse", (_LIST,), _LIST, lambda v: v[::-1], True, _output_cost, _reverse_estimate),
        ),
        _member(
            "distinct",
            Overload("list_distinct", (_LIST,), _LIST, _distinct, True, _quadratic(0), _square_estimate(DYN)),
        ),
        Function("sort", _sorts()),
        Function("@sortByAssociatedKeys", _sorts_by()),
    ),
    macros=(Macro("sortBy", 2, True, _sort_by),),
)
