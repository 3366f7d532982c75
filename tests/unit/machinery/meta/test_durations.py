"""Durations are parsed as in Go, and formats of schemas as in go-openapi."""

from __future__ import annotations

import pytest

from atoll.machinery.meta.durations import parse_duration, parse_duration_format

_SECOND = 1_000_000_000
_HOUR = 3_600 * _SECOND


@pytest.mark.parametrize(
    ("text", "nanos"),
    [
        ("0", 0),
        ("-0", 0),
        ("0s", 0),
        ("1h30m", 90 * 60 * _SECOND),
        ("1h2m3.5s", _HOUR + 120 * _SECOND + 3_500_000_000),
        ("-1.5s", -1_500_000_000),
        ("+2ms", 2_000_000),
        ("1.s", _SECOND),
        (".5m", 30 * _SECOND),
        ("3us", 3_000),
        ("3µs", 3_000),
        ("3μs", 3_000),
        ("1.9ns", 1),
        ("00000000000000000000001s", _SECOND),
        ("0." + "3" * 5_000 + "s", 333_333_333),
        ("9223372036854775807ns", (1 << 63) - 1),
        ("-9223372036854775808ns", -(1 << 63)),
    ],
)
def test_texts_of_go_are_exact_nanoseconds(text: str, nanos: int) -> None:
    assert parse_duration(text) == nanos == parse_duration_format(text)


@pytest.mark.parametrize(
    "text",
    ["", "+", "1", ".", "s", ".s", "1d", "1 s", "--1s", "1h-1m", "9223372036854775808ns", "9" * 5_000 + "s", "٣s"],
)
def test_texts_that_go_rejects_are_none(text: str) -> None:
    assert parse_duration(text) is None


@pytest.mark.parametrize(
    ("text", "nanos"),
    [
        ("10 seconds", 10 * _SECOND),
        ("2 Days 3 hr", 51 * _HOUR),
        ("1wk", 168 * _HOUR),
        ("in 5 minutes, 3 apples", 300 * _SECOND),
        ("3000000.5h", 3_000_000 * _HOUR + _HOUR // 2),
    ],
)
def test_the_format_of_schemas_allows_units_in_words(text: str, nanos: int) -> None:
    assert parse_duration(text) is None
    assert parse_duration_format(text) == nanos


@pytest.mark.parametrize("text", ["", "soon", "3 apples", "3\u00a0seconds"])
def test_a_text_without_a_unit_is_no_duration(text: str) -> None:
    assert parse_duration_format(text) is None
