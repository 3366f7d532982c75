"""Quantities (`100m`, `1.5Gi`, `3e6`) with the arithmetic of Kubernetes' resource.Quantity.

Called by `libraries.quantity`. A value is `number * 10 ** exponent`. It is either small, which Kubernetes stores in 64
bits, or big, which it stores as a decimal of any size. Only a small value converts to an integer, so expressions can
observe the difference and it is kept. Digits below a billionth are rounded up in magnitude, binary suffixes are capped
at the largest 64-bit integer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_INT64_MAX: Final = 2**63 - 1
_INT64_MIN: Final = -(2**63)
_SMALLEST_EXPONENT: Final = -9
#: Decimal digits that always fit 64 bits.
_SMALL_DIGITS: Final = 18
_DIGITS_PER_BIT: Final = 0.30103
#: Longer numbers are rejected: parsing takes time quadratic in the number of digits.
MAX_DIGITS: Final = 4_000
#: Sums of numbers with exponents further apart are rejected, because the result would have this many digits.
MAX_SPREAD: Final = 10_000

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_TEXT = re.compile(
    r"(?P<sign>[+-]?)(?P<zeros>0*)(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?(?P<suffix>[eEinumkKMGTP]*[+-]?[0-9]*)"
)
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)")

_WRONG_FORMAT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_WRONG_NUMBER = "unable to parse numeric part of quantity"
_WRONG_SUFFIX = "unable to parse quantity's suffix"


@dataclass(frozen=True, slots=True, eq=False)
class Amount:
    """An exact decimal: `number * 10 ** exponent`. `big` marks a value that Kubernetes does not store in 64 bits."""

    number: int
    exponent: int
    big: bool

    def sign(self) -> int:
        """Return -1, 0 or 1."""
        return (self.number > 0) - (self.number < 0)

    def integer(self) -> int | None:
        """Return the value as a 64-bit integer; None for a big one, for a fraction and out of range."""
        if self.big or self.exponent < 0:
            return None
        if self.exponent == 0 or self.number == 0:
            return self.number
        if self.exponent > _SMALL_DIGITS:
            return None
        scaled = self.number * 10**self.exponent
        return scaled if _INT64_MIN <= scaled <= _INT64_MAX else None

    def approximate(self) -> float:
        """Return the product of two doubles, as Go computes it; infinite out of range."""
        try:
            base = float(self.number)
        except OverflowError:
            base = float("inf") if self.number > 0 else float("-inf")
        return base * _power_of_ten(self.exponent) if self.exponent else base

    def compare(self, other: Amount) -> int:
        """Return -1, 0 or 1. Large exponents take no longer: magnitudes are compared before digits."""
        mine, theirs = self.sign(), other.sign()
        if mine != theirs or mine == 0:
            return (mine > theirs) - (mine < theirs)
        gap = self._magnitude() - other._magnitude()
        if abs(gap) > 2:
            return mine if gap > 0 else -mine
        lowest = min(self.exponent, other.exponent)
        a, b = self._at(lowest), other._at(lowest)
        return (a > b) - (a < b)

    def _at(self, exponent: int) -> int:
        """Return the number at an exponent not above this one's."""
        scaled: int = self.number * 10 ** (self.exponent - exponent)
        return scaled

    def _magnitude(self) -> float:
        """Return the decimal logarithm, with an error below one."""
        return self.number.bit_length() * _DIGITS_PER_BIT + self.exponent

    def add(self, other: Amount) -> Amount:
        """Return the sum: small if both are and it fits 64 bits at the lower of the two exponents.

        Raises ValueError if the exponents are too far apart.
        """
        if not (self.big or other.big):
            if other.number == 0:
                return self
            if self.number == 0:
                return other
        lowest = min(self.exponent, other.exponent)
        if max(self.exponent, other.exponent) - lowest > MAX_SPREAD:
            raise ValueError("quantities are too far apart to be added")
        a, b = self._at(lowest), other._at(lowest)
        fits = all(_INT64_MIN <= value <= _INT64_MAX for value in (a, b, a + b))
        return Amount(a + b, lowest, big=self.big or other.big or not fits)

    def subtract(self, other: Amount) -> Amount:
        """Return the difference, by the rules of `add`."""
        if self.big or other.big:
            return self.add(Amount(-other.number, other.exponent, other.big))
        # The smallest 64-bit integer is its own negative in 64 bits.
        negative = -other.number if other.number != _INT64_MIN else _INT64_MIN
        small = self.add(Amount(negative, other.exponent, big=False))
        return small if not small.big else self.add(Amount(-other.number, other.exponent, big=True))


def _power_of_ten(exponent: int) -> float:
    """Return the power as Go computes it, from two tables, so that products round alike."""
    if exponent > 308:
        return float("inf")
    if exponent < -323:
        return 0.0
    if exponent >= 0:
        return float(f"1e{exponent // 32 * 32}") * float(f"1e{exponent % 32}")
    return float(f"1e-{-exponent // 32 * 32}") / float(f"1e{-exponent % 32}")


def whole(number: int) -> Amount:
    """Return the quantity of a 64-bit integer."""
    return Amount(number, 0, big=False)


def parse(text: str) -> Amount:
    """Return the quantity of a text. Raises ValueError with Kubernetes' text."""
    match = _TEXT.fullmatch(text) if text else None
    if match is None:
        raise ValueError(_WRONG_FORMAT)
    number = _Number(
        sign=-1 if match["sign"] == "-" else 1,
        whole=match["whole"] or "0",
        fraction=match["fraction"] or "",
        has_digits=bool(match["zeros"] or match["whole"] or match["fraction"]),
    )
    if len(number.whole) + len(number.fraction) > MAX_DIGITS:
        raise ValueError(_WRONG_NUMBER)
    suffix = match["suffix"]
    return number.binary(_BINARY[suffix]) if suffix in _BINARY else number.decimal(_decimal_exponent(suffix))


def _decimal_exponent(suffix: str) -> int:
    power = _DECIMAL.get(suffix)
    if power is not None:
        return power
    match = _EXPONENT.fullmatch(suffix)
    if match is None or not _INT64_MIN <= (exponent := int(match[1][:MAX_DIGITS])) <= _INT64_MAX:
        raise ValueError(_WRONG_SUFFIX)
    # Kubernetes truncates the exponent to 32 bits.
    return (exponent + 2**31) % 2**32 - 2**31


@dataclass(frozen=True, slots=True)
class _Number:
    """The digits in front of the suffix.

    A suffix without digits (`has_digits` False) is zero if parsed as a small value, and rejected if parsed as a
    decimal.
    """

    sign: int
    whole: str
    fraction: str
    has_digits: bool

    def decimal(self, exponent: int) -> Amount:
        number = int(self.whole + self.fraction)
        scale = exponent - len(self.fraction)
        if len(self.whole) + len(self.fraction) <= _SMALL_DIGITS and scale >= _SMALLEST_EXPONENT:
            return Amount(self.sign * number, scale, big=False)
        return self._big(number, scale)

    def binary(self, shift: int) -> Amount:
        number = int(self.whole + self.fraction) << shift
        # A shift by 10 bits adds about three decimal digits; a number that may exceed 64 bits is computed as a decimal.
        if not self.fraction and len(self.whole) + shift * 3 // 10 + 1 <= 15:
            return Amount(self.sign * number, 0, big=False)
        amount = self._big(number, -len(self.fraction))
        largest = whole(self.sign * _INT64_MAX)
        is_capped = amount.compare(largest) == self.sign
        return Amount(largest.number, 0, big=True) if is_capped else amount

    def _big(self, number: int, scale: int) -> Amount:
        """Return a decimal of billionths; finer digits are rounded away from zero."""
        if not self.has_digits or scale > MAX_SPREAD:
            raise ValueError(_WRONG_NUMBER)
        if number == 0:
            return Amount(0, scale, big=True)
        cut = _SMALLEST_EXPONENT - scale
        if cut <= 0:
            return Amount(self.sign * number * 10**-cut, _SMALLEST_EXPONENT, big=True)
        if cut > MAX_DIGITS + _SMALL_DIGITS:
            return Amount(self.sign, _SMALLEST_EXPONENT, big=True)
        quotient, rest = divmod(number, 10**cut)
        return Amount(self.sign * (quotient + (rest > 0)), _SMALLEST_EXPONENT, big=True)
