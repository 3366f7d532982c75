"""Kubernetes' static estimates of calls, from the sizes of their arguments.

`costs` combines this table with the run-time prices. An estimate is a range; its upper end decides whether a rule may
be stored. Invariant: mistakes of Kubernetes' estimator are kept, because a rule that Kubernetes stores must be stored
here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from atoll.machinery.cel.functions import CallSite, Estimate, Node
from atoll.machinery.cel.sizes import MAX, REGEX_FACTOR, STRING_FACTOR, CallEstimate, CostEstimate, SizeEstimate
from atoll.machinery.cel.syntax.ast import Literal
from atoll.machinery.cel.types import Kind, Type

_ONE = CostEstimate(1, 1)
_NOMINAL = CallEstimate(_ONE)
_CHECK = CallEstimate(CostEstimate(350_000, 350_000))
#: Bytes of an address of either family.
_ADDRESS = SizeEstimate(4, 16)
#: The pattern size that the estimate assumes for every named format.
_FORMAT_PATTERN = 128
_MAX_FORMAT_NAME = 64


@dataclass(frozen=True, slots=True)
class _Items:
    """The items of a list, as a node whose size the declaration may bound."""

    path: tuple[str, ...]
    type: Type
    expr: Any = None
    computed_size: SizeEstimate | None = None


def _items(target: Node) -> _Items | None:
    if not target.type.parameters:
        return None
    return _Items((*target.path, "@items") if target.path else (), target.type.parameters[0])


def _nominal(site: CallSite) -> CallEstimate:
    return _NOMINAL


def _check(site: CallSite) -> CallEstimate:
    return _CHECK


def _selector(site: CallSite) -> CallEstimate:
    size = site.size(site.arguments[0])
    requirements = SizeEstimate(*size.scaled(0.5)).scaled(50)
    return CallEstimate(CostEstimate(10, 10).plus(size.scaled(STRING_FACTOR)).plus(requirements))


def _walk(site: CallSite) -> CallEstimate | None:
    if site.target is None:
        return None
    size, items = site.size(site.target), _items(site.target)
    if items is not None:
        each = _ONE
        if items.type.kind in (Kind.STRING, Kind.BYTES):
            each = each.plus(site.size(items).scaled(STRING_FACTOR))
        return CallEstimate(size.cost_of_each(each))
    # A target of any type might be a list; otherwise it is a text that is searched.
    return CallEstimate(size.cost_of_each(_ONE) if site.function == "includes" else size.scaled(STRING_FACTOR))


def _read(site: CallSite) -> CallEstimate | None:
    return CallEstimate(site.size(site.arguments[0]).scaled(STRING_FACTOR)) if site.arguments else None


def _read_sized(site: CallSite) -> CallEstimate | None:
    if len(site.arguments) != 1:
        return None
    size = site.size(site.arguments[0])
    return CallEstimate(size.scaled(STRING_FACTOR), size)


def _rewrite_target(site: CallSite) -> CallEstimate | None:
    if site.target is None:
        return None
    size = site.size(site.target)
    return CallEstimate(size.scaled(STRING_FACTOR), size)


def _replace(site: CallSite) -> CallEstimate | None:
    if site.target is None or len(site.arguments) < 2:
        return None
    size, old, new = site.size(site.target), site.size(site.arguments[0]), site.size(site.arguments[1])
    most, kept_most = _replacements(size.max, old.min, grows=new.max > old.min)
    least, kept_least = _replacements(size.min, old.max, grows=old.max > new.min)
    result = SizeEstimate(least, most).times(new).plus(SizeEstimate(kept_least, kept_most))
    return CallEstimate(size.scaled(2 * STRING_FACTOR), result)


def _replacements(size: int, old: int, *, grows: bool) -> tuple[int, int]:
    """Return the number of replacements in a text of this size, and the part of the text that remains.

    An empty text matches around every character; a replacement that does not change the bound counts as none.
    """
    if old == 0:
        return min(size + 1, MAX), size
    return (min(math.ceil(size / old), MAX), 0) if grows else (0, size)


def _split(site: CallSite) -> CallEstimate | None:
    if site.target is None:
        return None
    size = site.size(site.target)
    most = size.max
    limit = site.arguments[1].expr if len(site.arguments) > 1 else None
    if isinstance(limit, Literal) and type(limit.value) is int:
        most = limit.value % (MAX + 1)
    return CallEstimate(size.scaled(2 * STRING_FACTOR), SizeEstimate(0, most))


def _join(site: CallSite) -> CallEstimate | None:
    if site.target is None:
        return None
    count, items = site.size(site.target), _items(site.target)
    size = count.times(site.size(items)) if items is not None else SizeEstimate(0, 0)
    if site.arguments:
        gaps = SizeEstimate(max(count.min - 1, 0), max(count.max - 1, 0))
        size = size.plus(site.size(site.arguments[0]).times(gaps))
    return CallEstimate(size.scaled(STRING_FACTOR), size)


def _find(site: CallSite) -> CallEstimate | None:
    if site.target is None or not site.arguments:
        return None
    size = site.size(site.target)
    text = size.plus(SizeEstimate(1, 1)).scaled(STRING_FACTOR)
    return CallEstimate(text.times(site.size(site.arguments[0]).scaled(REGEX_FACTOR)), SizeEstimate(0, size.max))


def _ip(site: CallSite) -> CallEstimate | None:
    return _NOMINAL if site.overload == "cidr_ip" else _read(site)


def _canonical(site: CallSite) -> CallEstimate:
    return CallEstimate(site.size(site.arguments[0]).scaled(2 * STRING_FACTOR))


def _contains_ip(site: CallSite) -> CallEstimate:
    cost = _ADDRESS.plus(_ADDRESS).scaled(STRING_FACTOR)
    return CallEstimate(cost.plus(_parse_cost(site, "cidr_contains_ip_string")))


def _contains_cidr(site: CallSite) -> CallEstimate:
    cost = _ADDRESS.plus(_ADDRESS).scaled(STRING_FACTOR).plus(_ADDRESS.scaled(STRING_FACTOR)).plus(_ONE)
    return CallEstimate(cost.plus(_parse_cost(site, "cidr_contains_cidr_string")))


def _parse_cost(site: CallSite, overload: str) -> CostEstimate:
    """Return the cost of parsing the argument if it is a text."""
    return site.size(site.arguments[0]).scaled(STRING_FACTOR) if site.overload == overload else CostEstimate(0, 0)


def _validate(site: CallSite) -> CallEstimate:
    return CallEstimate(site.size(site.arguments[0]).scaled(STRING_FACTOR).scaled(_FORMAT_PATTERN * REGEX_FACTOR))


_CONSTANT_EQUALITY: Final = frozenset(
    (
        *("net.IP", "net.CIDR", "kubernetes.Quantity", "kubernetes.Semver"),
        *("kubernetes.authorization.Authorizer", "kubernetes.authorization.PathCheck"),
        *("kubernetes.authorization.GroupCheck", "kubernetes.authorization.ResourceCheck"),
        "kubernetes.authorization.Decision",
    )
)


def _equal(site: CallSite) -> CallEstimate | None:
    """Estimate equality of two values of one of Kubernetes' own types; None, the default, for all others."""
    left, right = site.arguments
    name = left.type.name
    if left.type.kind not in (Kind.OBJECT, Kind.OPAQUE) or left.type != right.type:
        return None
    if name in _CONSTANT_EQUALITY:
        return _NOMINAL
    if name == "kubernetes.NamedFormat":
        return CallEstimate(CostEstimate(1, _MAX_FORMAT_NAME).scaled(STRING_FACTOR))
    if name == "kubernetes.URL":
        most = right.computed_size.max if right.computed_size is not None else 1
        return CallEstimate(CostEstimate(1, most).scaled(STRING_FACTOR))
    return None


_ACCESSORS = (
    "serviceAccount path group resource subresource namespace name allowed reason error errored "
    "masked prefixLength family isUnspecified isLoopback isLinkLocalMulticast isLinkLocalUnicast "
    "isGlobalUnicast format.named sign asInteger isInteger asApproximateFloat isGreaterThan isLessThan compareTo add "
    "sub major minor patch getScheme getHostname getHost getPort getEscapedPath getQuery"
)
_WALKS = "isSorted sum max min indexOf lastIndexOf includes"

ESTIMATES: Final[Mapping[str, Estimate]] = {
    **dict.fromkeys(_ACCESSORS.split(), _nominal),
    **dict.fromkeys(_WALKS.split(), _walk),
    **dict.fromkeys(["cidr", "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver"], _read),
    **dict.fromkeys(("url", "jsonpatch.escapeKey"), _read_sized),
    **dict.fromkeys(["lowerAscii", "upperAscii", "substring", "trim"], _rewrite_target),
    **dict.fromkeys(("fieldSelector", "labelSelector"), _selector),
    **dict.fromkeys(("find", "findAll"), _find),
    "check": _check,
    "replace": _replace,
    "split": _split,
    "join": _join,
    "ip": _ip,
    "ip.isCanonical": _canonical,
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "validate": _validate,
    "_==_": _equal,
}
