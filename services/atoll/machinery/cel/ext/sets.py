"""`sets.contains`, `sets.equivalent`, `sets.intersects` over lists, priced by the product of the sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from atoll.machinery.cel.bounds import with_yields
from atoll.machinery.cel.equality import contains
from atoll.machinery.cel.functions import CallSite, Function, Library, Overload
from atoll.machinery.cel.sizes import CallEstimate, CostEstimate
from atoll.machinery.cel.types import BOOL, ListType, TypeParameter

_LIST = ListType(TypeParameter("T"))


_HASHED = frozenset({str, int})


def _contains(items: Any, part: Any) -> bool:
    kinds = {type(item) for item in items} | {type(item) for item in part}
    if len(kinds) == 1 and kinds <= _HASHED:
        return set(part) <= set(items)
    return all(contains(items, item) for item in with_yields(part))


def _equivalent(a: Any, b: Any) -> bool:
    return _contains(a, b) and _contains(b, a)


def _intersects(a: Any, b: Any) -> bool:
    return any(contains(b, item) for item in with_yields(a))


def _overload(id: str, call: Callable[[Any, Any], bool], factor: float) -> Overload:
    def cost(_id: str, arguments: Sequence[Any], _result: Any) -> int:
        return 1 + int(len(arguments[0]) * len(arguments[1]) * factor)

    def estimate(site: CallSite) -> CallEstimate:
        product = site.size(site.arguments[0]).times(site.size(site.arguments[1]))
        return CallEstimate(product.scaled(factor).plus(CostEstimate(1, 1)))

    return Overload(id, (_LIST, _LIST), BOOL, call, cost=cost, estimate=estimate)


SETS = Library(
    "cel.lib.ext.sets",
    functions=(
        Function("sets.contains", (_overload("list_sets_contains_list", _contains, 1),)),
        Function("sets.equivalent", (_overload("list_sets_equivalent_list", _equivalent, 2),)),
        Function("sets.intersects", (_overload("list_sets_intersects_list", _intersects, 1),)),
    ),
)
