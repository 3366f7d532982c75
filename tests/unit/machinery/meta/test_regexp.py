"""Patterns of tenants: Go's syntax and texts, and bounded memory for any pattern and text."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from atoll.machinery.meta import regexp

#: A pattern whose automaton reaches 2^15 states on texts of `a` and `b`.
GREEDY = "(a|b)*a(a|b){14}c"


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.long
def test_texts_cannot_make_patterns_take_memory() -> None:
    """With RE2's default limit, each of these patterns keeps 3 MB."""
    text = "".join(random.Random(1).choices("ab", k=100_000))
    before = resident_bytes()
    for number in range(40):
        assert not regexp.matches(f"x{number}|{GREEDY}", text)
    assert resident_bytes() - before < 20 << 20


def test_large_patterns_are_few() -> None:
    large = [f".{{1000}}{number}.{{1000}}" for number in range(20)]
    assert [regexp._small(pattern) for pattern in large] == [None] * 20
    for pattern in large:
        assert not regexp.matches(pattern, "x")
    assert regexp._large.cache_info().currsize == 16
    assert regexp._small.cache_info().maxsize == 1024


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("a(?=b)", "error parsing regexp: invalid or unsupported Perl syntax: `(?=`"),
        ("[a", "error parsing regexp: missing closing ]: `[a`"),
        ("*", "error parsing regexp: missing argument to repetition operator: `*`"),
        (r"a\C", r"error parsing regexp: invalid escape sequence: `\C`"),
        ("a\\", "error parsing regexp: trailing backslash at end of expression: ``"),
    ],
)
def test_invalid_patterns_have_the_texts_of_go(pattern: str, text: str) -> None:
    with pytest.raises(regexp.PatternError) as caught:
        regexp.compile_pattern(pattern)
    assert str(caught.value) == text


def test_quoted_text_is_no_escape() -> None:
    assert regexp.matches(r"\Q\C\E", r"\C")
