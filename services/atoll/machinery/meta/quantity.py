"""Kubernetes quantities: `100m`, `1.5Gi`, `3e6`, read exactly and written in their canonical form.

ResourceQuota checks, quota admission and usage call these. Values are exact decimals; two texts of the same
value and family of suffixes have one canonical text, so objects do not change by being read and written.
"""

from __future__ import annotations

import re
from decimal import ROUND_UP, Context, Decimal
from functools import lru_cache

_TEXT = re.compile(
    r"(?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+))(?P<suffix>[KMGTPE]i|[numkMGTPE]|[eE][+-]?\d{1,3}|)\Z", re.ASCII
)
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIX = {exponent: suffix for suffix, exponent in _BINARY.items()}

#: Kubernetes rounds up to billionths.
_SMALLEST_EXPONENT = -9
_SMALLEST, _LARGEST = Decimal(1).scaleb(_SMALLEST_EXPONENT), Decimal(2**63 - 1)
_LARGEST_BINARY = 60
#: Longer texts are errors.
MAX_SIZE = 64
#: Digits enough for any text of MAX_SIZE with any exponent that is accepted.
_EXACT = Context(prec=1_200, Emax=999_999, Emin=-999_999)

_NO_QUANTITY = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"

BINARY, DECIMAL, EXPONENT = "Ki", "k", "e"


def parse(value: str | int | float) -> Decimal:
    """Parse the exact value of a quantity. Raises ValueError."""
    number, _ = read(value)
    return number


def amount(value: str | int | float) -> Decimal:
    """The value as Kubernetes holds it: in billionths, rounded up, and never above 2^63-1. Raises ValueError."""
    return min(parse(value).quantize(_SMALLEST, ROUND_UP, _EXACT), _LARGEST)


def add(one: Decimal, other: Decimal) -> Decimal:
    """The exact sum."""
    return _EXACT.add(one, other)


def canonical(value: str | int | float) -> str:
    """The canonical text of a quantity: no fraction, the largest suffix. Raises ValueError."""
    number, family = read(value)
    return format_quantity(number, family)


def read(value: str | int | float) -> tuple[Decimal, str]:
    """Return value and family of suffixes. Raises ValueError."""
    text = value if isinstance(value, str) else str(value)
    if len(text) > MAX_SIZE:
        raise ValueError(_NO_QUANTITY)
    return _read(text)


@lru_cache(maxsize=1024)
def _read(text: str) -> tuple[Decimal, str]:
    """Read a short text. Objects repeat few amounts."""
    match = _TEXT.match(text)
    if match is None:
        raise ValueError(_NO_QUANTITY)
    number, suffix = Decimal(match["number"]), match["suffix"]
    if suffix in _BINARY:
        return _EXACT.multiply(number, Decimal(2 ** _BINARY[suffix])), BINARY
    if suffix in _DECIMAL:
        return number.scaleb(_DECIMAL[suffix], _EXACT), DECIMAL
    return number.scaleb(int(suffix[1:]), _EXACT), EXPONENT


def format_quantity(value: Decimal, family: str = DECIMAL) -> str:
    """The canonical text of a value. A binary family falls back to decimal below 1024 and for fractions."""
    value = value.quantize(_SMALLEST, ROUND_UP, _EXACT)
    is_whole = value == value.to_integral_value(context=_EXACT)
    if family == BINARY and is_whole and abs(value) >= 1024:
        return _format_binary(int(value))
    return _format_decimal(value, family)


def _format_binary(number: int) -> str:
    exponent = 0
    while exponent < _LARGEST_BINARY and number % 1024 == 0:
        number //= 1024
        exponent += 10
    return f"{number}{_BINARY_SUFFIX.get(exponent, '')}"


def _format_decimal(value: Decimal, family: str) -> str:
    number, exponent = int(value.scaleb(-_SMALLEST_EXPONENT, _EXACT)), _SMALLEST_EXPONENT
    if number == 0:
        return "0"
    while number % 1000 == 0:
        number //= 1000
        exponent += 3
    if family == EXPONENT or exponent not in _DECIMAL_SUFFIX:
        return f"{number}e{exponent}" if exponent else str(number)
    return f"{number}{_DECIMAL_SUFFIX[exponent]}"
