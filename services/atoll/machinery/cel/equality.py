"""Equality and order of values across types, as the language defines them.

Called by `==`, `in` and every function that compares. Invariants: numbers compare by value across their types, values
of different types are unequal, NaN is unequal to everything. Only strict values of libraries (`Opaque.strict`) may fail
to compare: then `==` is an error, an item counts as not found, and two lists as not different.
"""

from __future__ import annotations

import math
from typing import Any, Final

from atoll.machinery.cel.bounds import with_yields
from atoll.machinery.cel.errors import EvaluationError, NoSuchOverload
from atoll.machinery.cel.values import Duration, Optional_, Timestamp, UInt

_PLAIN: Final = frozenset({str, int, bool, float, bytes, type(None), UInt})
_NUMBERS: Final = frozenset({int, float, UInt})
#: Comparisons of lists of this length and longer pause.
_LONG: Final = 256
#: Whole numbers up to this magnitude compare with doubles as doubles; uints end here.
_EDGE: Final = 2.0**64


def equal(a: Any, b: Any) -> bool:
    """Report whether two values are equal.

    Raises EvaluationError if a value of a library does not compare with the other.
    """
    first, second = type(a), type(b)
    if first is second and first in _PLAIN:
        return bool(a == b)
    if first in _NUMBERS and second in _NUMBERS:
        # A double and a whole number compare as doubles.
        return float(a) == float(b) if first is float or second is float else bool(a == b)
    if isinstance(a, list):
        return isinstance(b, list) and _equal_lists(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and _equal_maps(a, b)
    if first in _PLAIN:
        return False
    if first is not second:
        if b is not None and a.strict:
            raise NoSuchOverload
        return False
    if first is Optional_:
        if not (a.has_value and b.has_value):
            return bool(a.has_value == b.has_value)
        return equal(a.value, b.value)
    return bool(a == b)


def is_equal(a: Any, b: Any) -> bool:
    """Report whether two values are equal; False if they do not compare."""
    try:
        return equal(a, b)
    except EvaluationError:
        return False


def _is_equal_or_incomparable(a: Any, b: Any) -> bool:
    """Report whether two values are equal; True if they do not compare, as cel-go decides for items."""
    try:
        return equal(a, b)
    except EvaluationError:
        return True


def _equal_lists(a: Any, b: Any) -> bool:
    if type(a) is not list:
        return bool(a.cel_equals(b))
    if type(b) is not list:
        return bool(b.cel_equals(a))
    if len(a) != len(b):
        return False
    return all(map(_is_equal_or_incomparable, a if len(a) < _LONG else with_yields(a), b))


def _equal_maps(a: dict[Any, Any], b: dict[Any, Any]) -> bool:
    if len(a) != len(b):
        return False
    for key, value in a.items():
        other = find(b, key)
        if other is MISSING or not _is_equal_or_incomparable(value, other):
            return False
    return True


MISSING: Final = object()


def find(of: dict[Any, Any], key: Any) -> Any:
    """Return the value under a key, or MISSING. Numbers find keys of equal value; a bool is never a number."""
    kind = type(key)
    if kind is str:
        return of.get(key, MISSING)
    if kind is bool or (key in (0, 1) and kind in _NUMBERS):
        return next((v for k, v in of.items() if (type(k) is bool) is (kind is bool) and k == key), MISSING)
    if kind in _NUMBERS:
        return of.get(key, MISSING)
    return MISSING


def contains(items: Any, value: Any) -> bool:
    """`value in list`."""
    kind = type(value)
    if kind is str:
        return value in items
    return any(is_equal(value, item) for item in with_yields(items))


def compare(a: Any, b: Any) -> int:
    """Return -1, 0 or 1. Raises NoSuchOverload for values without a common order, and EvaluationError for NaN."""
    first, second = type(a), type(b)
    if first in _NUMBERS and second in _NUMBERS:
        if math.isnan(a) or math.isnan(b):
            raise EvaluationError("NaN values cannot be ordered")
        if (first is float or second is float) and -_EDGE <= a <= _EDGE and -_EDGE <= b <= _EDGE:
            a, b = float(a), float(b)
        return -1 if a < b else 1 if a > b else 0
    if first is not second:
        raise NoSuchOverload
    if first in (str, bytes, bool):
        return -1 if a < b else 1 if a > b else 0
    if first in (Timestamp, Duration):
        return -1 if a.nanos < b.nanos else 1 if a.nanos > b.nanos else 0
    raise NoSuchOverload
