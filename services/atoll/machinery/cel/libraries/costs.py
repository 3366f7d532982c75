"""Kubernetes' run-time prices of calls, and the library that carries them together with the estimates.

Two tables by function name, for functions of Kubernetes' own libraries and for those of cel-go that Kubernetes prices
itself. `base` includes them as a library. The numbers decide which rules may be stored, so they never change: they are
those of Kubernetes' cost estimator.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from atoll.machinery.cel.functions import Library, RuntimeCost
from atoll.machinery.cel.libraries.cidr import CIDR
from atoll.machinery.cel.libraries.estimates import ESTIMATES
from atoll.machinery.cel.libraries.format import NamedFormat
from atoll.machinery.cel.libraries.ip import IP
from atoll.machinery.cel.sizes import REGEX_FACTOR, STRING_FACTOR

#: Within the limit of a call a rule may check the authorizer twice.
CHECK_COST: Final = 350_000

_SIZED = (str, bytes, list, dict)


def _size(value: Any) -> int:
    """Return code points, bytes, items or entries; the bytes of an address; 1 for values without a size."""
    if isinstance(value, _SIZED):
        return len(value)
    if isinstance(value, (IP, CIDR)):
        return value.cel_size()
    return 1


def _traversal(value: Any) -> int:
    """Return the cost of visiting every part of a value once."""
    if isinstance(value, str):
        return int(len(value.encode()) * STRING_FACTOR)
    if isinstance(value, bytes):
        return int(len(value) * STRING_FACTOR)
    if isinstance(value, list):
        return sum(map(_traversal, value))
    if isinstance(value, dict):
        return sum(_traversal(key) + _traversal(item) for key, item in value.items())
    return 1


def _one(overload: str, arguments: Sequence[Any], result: Any) -> int:
    return 1


def _check(overload: str, arguments: Sequence[Any], result: Any) -> int:
    return CHECK_COST


def _selector(overload: str, arguments: Sequence[Any], result: Any) -> int:
    return selector_cost(_size(arguments[1]))


def selector_cost(size: int) -> int:
    """Return the cost of parsing a selector of this many characters: every second may begin a requirement."""
    return 10 + math.ceil(size * STRING_FACTOR) + math.ceil(size * 0.5) * 50


def _walk(overload: str, arguments: Sequence[Any], result: Any) -> int:
    return _traversal(arguments[0])


def _read(overload: str, arguments: Sequence[Any], result: Any) -> int:
    return math.ceil(_size(arguments[0]) * STRING_FACTOR)


def _rewrite(overload: str, arguments: Sequence[Any], result: Any) -> int:
    return math.ceil(_size(arguments[0]) * 2 * STRING_FACTOR)


def _join(overload: str, arguments: Sequence[Any], result: Any) -> int:
    return math.ceil(_size(result) * 2 * STRING_FACTOR)


def _match(text_size: int, pattern_size: int) -> int:
    # One more than the text, so that an expensive pattern is not free on an empty one.
    return math.ceil((1 + text_size) * STRING_FACTOR) * math.ceil(pattern_size * REGEX_FACTOR)


def _find(overload: str, arguments: Sequence[Any], result: Any) -> int:
    return _match(_size(arguments[0]), _size(arguments[1]))


def _validate(overload: str, arguments: Sequence[Any], result: Any) -> int | None:
    named = arguments[0]
    return _match(_size(arguments[1]), named.pattern_size) if isinstance(named, NamedFormat) else None


def _ip(overload: str, arguments: Sequence[Any], result: Any) -> int:
    return 1 if overload == "cidr_ip" else _read(overload, arguments, result)


def _contains_ip(overload: str, arguments: Sequence[Any], result: Any) -> int:
    size = _size(arguments[0])
    parse = _size(arguments[1]) if overload == "cidr_contains_ip_string" else 0
    return math.ceil((size + size) * STRING_FACTOR) + math.ceil(parse * STRING_FACTOR)


def _contains_cidr(overload: str, arguments: Sequence[Any], result: Any) -> int:
    size = _size(arguments[0])
    parse = _size(arguments[1]) if overload == "cidr_contains_cidr_string" else 0
    compared = math.ceil((size + size) * STRING_FACTOR) + math.ceil(size * STRING_FACTOR) + 1
    return compared + math.ceil(parse * STRING_FACTOR)


def _equal(overload: str, arguments: Sequence[Any], result: Any) -> int | None:
    """Return 1 for addresses, although they have a size; None, the default, for all other values."""
    return 1 if isinstance(arguments[0], (IP, CIDR)) else None


_AUTHORIZER = "serviceAccount path group resource subresource namespace name allowed reason error errored"
_ACCESSORS = (
    "masked prefixLength family isUnspecified isLoopback isLinkLocalMulticast isLinkLocalUnicast "
    "isGlobalUnicast format.named sign asInteger isInteger asApproximateFloat isGreaterThan isLessThan compareTo add "
    "sub major minor patch getScheme getHostname getHost getPort getEscapedPath getQuery"
)
_WALKS = "isSorted sum max min indexOf lastIndexOf includes"
_READS = (
    "url lowerAscii upperAscii substring trim jsonpatch.escapeKey cidr isIP isCIDR quantity isQuantity semver isSemver"
)

COSTS: Final[Mapping[str, RuntimeCost]] = {
    **dict.fromkeys((_AUTHORIZER + " " + _ACCESSORS).split(), _one),
    **dict.fromkeys(_WALKS.split(), _walk),
    **dict.fromkeys(_READS.split(), _read),
    **dict.fromkeys(("replace", "split", "ip.isCanonical"), _rewrite),
    **dict.fromkeys(("find", "findAll"), _find),
    **dict.fromkeys(("fieldSelector", "labelSelector"), _selector),
    "check": _check,
    "join": _join,
    "validate": _validate,
    "ip": _ip,
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "_==_": _equal,
}

LIBRARY: Final = Library("kubernetes.costs", costs=COSTS, estimates=ESTIMATES)
