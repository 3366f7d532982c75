"""Quantities against fractions: parsing, order and arithmetic are exact at any size."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from atoll.machinery.cel.libraries.values.quantities import Amount, parse

_SCALES = {
    **{"n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1)},
    **{"k": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9), "E": Fraction(10**18)},
    **{"Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30), "Ei": Fraction(2**60)},
    **{"e5": Fraction(10**5), "E-3": Fraction(1, 1000)},
}
_BINARY = ("Ki", "Mi", "Gi", "Ei")
_LARGEST = 2**63 - 1


@st.composite
def texts(draw: st.DrawFn) -> tuple[str, Fraction]:
    """A quantity's text and its value by the rules: finer digits than billionths round away from zero, and with binary
    suffixes nothing is larger than a 64-bit integer."""
    sign = draw(st.sampled_from(["", "-", "+"]))
    whole, fraction = draw(st.integers(0, 10**24)), draw(st.text("0123456789", max_size=12))
    suffix = draw(st.sampled_from(sorted(_SCALES)))
    value = Fraction(f"{whole}.{fraction}0") * _SCALES[suffix]
    value = Fraction(-((-value * 10**9) // 1), 10**9)
    if suffix in _BINARY:
        value = min(value, Fraction(_LARGEST))
    return f"{sign}{whole}.{fraction}{suffix}", -value if sign == "-" else value


def _value(amount: Amount) -> Fraction:
    return amount.number * Fraction(10) ** amount.exponent


@given(texts())
def test_a_text_is_read_exactly(text: tuple[str, Fraction]) -> None:
    assert _value(parse(text[0])) == text[1]


@given(texts(), texts())
def test_sums_differences_and_order_are_those_of_the_numbers(
    left: tuple[str, Fraction], right: tuple[str, Fraction]
) -> None:
    a, b = parse(left[0]), parse(right[0])
    assert _value(a.add(b)) == left[1] + right[1]
    assert _value(a.subtract(b)) == left[1] - right[1]
    assert a.compare(b) == (left[1] > right[1]) - (left[1] < right[1])
    assert a.sign() == (left[1] > 0) - (left[1] < 0)


@given(texts())
def test_an_integer_is_given_only_when_it_is_the_value(text: tuple[str, Fraction]) -> None:
    number = parse(text[0]).integer()
    assert number is None or number == text[1]


@given(st.integers(-(10**17), 10**17), st.sampled_from(["", "k", "M"]))
def test_a_plain_number_that_fits_is_an_integer(number: int, suffix: str) -> None:
    expected = int(number * _SCALES[suffix])
    fits = -(2**63) <= expected <= _LARGEST
    assert parse(f"{number}{suffix}").integer() == (expected if fits else None)


@given(st.integers(-(2**31), 2**31), st.integers(-(2**31), 2**31))
def test_far_exponents_are_compared_without_writing_them_out(first: int, second: int) -> None:
    a, b = Amount(3, first, big=False), Amount(7, second, big=False)
    assert a.compare(b) == (1 if first > second else -1)
