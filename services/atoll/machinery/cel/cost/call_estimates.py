"""cel-go's default static estimates of calls, by overload.

Called by `estimate` for calls without an estimate of a library. Costs are without those of the arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from atoll.machinery.cel.functions import CallSite, Node
from atoll.machinery.cel.sizes import (
    MAX,
    REGEX_FACTOR,
    STRING_FACTOR,
    UNKNOWN_SIZE,
    CallEstimate,
    CostEstimate,
    SizeEstimate,
)

#: Overloads with an estimate that depends on the costs of their arguments; `estimate` computes them.
LAZY: Final = frozenset({"logical_and", "logical_or", "conditional"})
_ONE: Final = CallEstimate(CostEstimate(1, 1))


def _size(node: Node) -> SizeEstimate:
    """Return the computed size; cel-go does not ask the size estimator again here."""
    return UNKNOWN_SIZE if node.computed_size is None else node.computed_size


def _format(site: CallSite) -> CallEstimate | None:
    return None if site.target is None else CallEstimate(_size(site.target).scaled(STRING_FACTOR))


def _one(result: Callable[[SizeEstimate], SizeEstimate]) -> Callable[[CallSite], CallEstimate | None]:
    def estimate(site: CallSite) -> CallEstimate | None:
        if len(site.arguments) != 1:
            return None
        size = _size(site.arguments[0])
        return CallEstimate(size.scaled(STRING_FACTOR), result(size))

    return estimate


def _affix(site: CallSite) -> CallEstimate | None:
    return CallEstimate(_size(site.arguments[0]).scaled(STRING_FACTOR)) if len(site.arguments) == 1 else None


def _in_list(site: CallSite) -> CallEstimate | None:
    return CallEstimate(_size(site.arguments[1]).scaled(1)) if len(site.arguments) == 2 else None


def _matches(site: CallSite) -> CallEstimate | None:
    if site.target is None or len(site.arguments) != 1:
        return None
    text = _size(site.target).plus(SizeEstimate(1, 1)).scaled(STRING_FACTOR)
    return CallEstimate(text.times(_size(site.arguments[0]).scaled(REGEX_FACTOR)))


def _contains(site: CallSite) -> CallEstimate | None:
    if site.target is None or len(site.arguments) != 1:
        return None
    text = _size(site.target).scaled(STRING_FACTOR)
    return CallEstimate(text.times(_size(site.arguments[0]).scaled(STRING_FACTOR)))


def _add(site: CallSite) -> CallEstimate | None:
    if len(site.arguments) != 2:
        return None
    size = _size(site.arguments[0]).plus(_size(site.arguments[1]))
    cost = CostEstimate(1, 1) if site.overload == "add_list" else size.scaled(STRING_FACTOR)
    return CallEstimate(cost, size)


def _compare(site: CallSite) -> CallEstimate:
    greatest = min(_size(site.arguments[0]).max, _size(site.arguments[1]).max)
    return CallEstimate(CostEstimate(1 if greatest > 0 else 0, greatest).scaled(STRING_FACTOR))


def _wrapped(value: int) -> int:
    """Return the value modulo 2^64: cel-go does not saturate products of result sizes."""
    return value & MAX


_DEFAULT: Final[dict[str, Callable[[CallSite], CallEstimate | None]]] = {
    "string_format": _format,
    "string_to_bytes": _one(lambda size: SizeEstimate(size.min, _wrapped(size.max * 4))),
    "bytes_to_string": _one(lambda size: SizeEstimate(size.min // 4, size.max)),
    "strings_quote": _one(lambda size: SizeEstimate(_wrapped(size.min + 2), _wrapped(size.max * 2 + 2))),
    "starts_with_string": _affix,
    "ends_with_string": _affix,
    "in_list": _in_list,
    "matches_string": _matches,
    "contains_string": _contains,
    "add_string": _add,
    "add_bytes": _add,
    "add_list": _add,
    "equals": _compare,
    "not_equals": _compare,
    **{
        f"{order}_{of}": _compare
        for order in ("less", "less_equals", "greater", "greater_equals")
        for of in ("string", "bytes")
    },
}


def default_estimate(site: CallSite) -> CallEstimate:
    """Return the estimate by overload id, and 1 for every other call."""
    found = _DEFAULT.get(site.overload)
    return (None if found is None else found(site)) or _ONE
