from __future__ import annotations

import pytest

from atoll.machinery.schema.fielderrors import MAX_VALUE_SIZE, format_number, invalid, quote


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1000000.0, "1e+06"),
        (999999.0, "999999"),
        (123456789.0, "1.23456789e+08"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (1.5, "1.5"),
        (100.0, "100"),
        (-2.5e10, "-2.5e+10"),
        (0.0, "0"),
        (10**18, "1000000000000000000"),
        (1e100, "1e+100"),
    ],
)
def test_numbers_are_written_as_go_writes_them(value: float, text: str) -> None:
    assert format_number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ('a"b\\', '"a\\"b\\\\"'),
        ("é😀", '"é😀"'),
        ("\x01\x7f\n", '"\\x01\\x7f\\n"'),
        ("\u200b", '"\\u200b"'),
        ("\U000e0001", '"\\U000e0001"'),
    ],
)
def test_text_is_quoted_as_go_quotes_it(value: str, text: str) -> None:
    assert quote(value) == text


def test_values_are_shown_by_kind_and_cut() -> None:
    assert invalid("a", True, "d").detail == "Invalid value: true: d"
    assert invalid("a", {"b": [1, None]}, "d").detail == 'Invalid value: {"b":[1,null]}: d'
    assert invalid("a", None, "").detail == "Invalid value: null"
    assert len(invalid("a", "x" * 9999, "").detail) < MAX_VALUE_SIZE + 40
