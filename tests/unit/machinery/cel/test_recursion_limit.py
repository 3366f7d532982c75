"""The recursion limit of the interpreter: raised for deep expressions, and restored afterwards."""

from __future__ import annotations

import sys

import pytest

from atoll.machinery.cel.recursion_limit import FRAMES, deep_stack
from harness.data.cel_table import PROGRAMS, VALUES


def test_blocks_that_overlap_leave_the_limit_as_it_was() -> None:
    before = sys.getrecursionlimit()
    first, second = deep_stack(), deep_stack()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert sys.getrecursionlimit() >= FRAMES
    second.__exit__(None, None, None)
    assert sys.getrecursionlimit() == before


@pytest.mark.parametrize(
    "text", ["(" * 240 + "i" + ")" * 240, "[" * 200 + "i" + "]" * 200 + "[0]" * 200, "i" + " + 1" * 240]
)
def test_an_expression_as_deep_as_the_parser_accepts_is_evaluated(text: str) -> None:
    before = sys.getrecursionlimit()
    assert PROGRAMS.compile(text).evaluate(VALUES) in (1, 241)
    assert sys.getrecursionlimit() == before
