"""Regular expressions of CEL: `matches`, `find` and `findAll` on UTF-8, so that positions need no conversion.

Called by these functions, and by the compiler for literal patterns. Invariant: time is linear in the text and memory is
bounded for every pattern (`meta/regexp`).
"""

from __future__ import annotations

from typing import Final

import re2

from atoll.machinery.cel.bounds import yield_to_loop
from atoll.machinery.cel.errors import EvaluationError
from atoll.machinery.meta import regexp

#: Matches between two pauses.
_STRIDE: Final = 255


def compile_pattern(pattern: str) -> re2._Regexp[bytes]:
    """Return the compiled pattern, for use at once. Raises EvaluationError with Go's description of an invalid one."""
    try:
        return regexp.compile_pattern(pattern)
    except regexp.PatternError as error:
        raise EvaluationError(str(error)) from None


def matches(pattern: str, text: str) -> bool:
    """Report whether the pattern matches anywhere. Raises EvaluationError for an invalid pattern."""
    try:
        return regexp.matches(pattern, text)
    except regexp.PatternError as error:
        raise EvaluationError(str(error)) from None


def find(pattern: str, text: str) -> str:
    """Return the leftmost match; empty if there is none. Raises EvaluationError for an invalid pattern."""
    match = compile_pattern(pattern).search(text.encode())
    return "" if match is None else match[0].decode()


def find_all(pattern: str, text: str, limit: int) -> list[str]:
    """Return the non-overlapping matches from the left, at most `limit` of them; a negative limit means all.

    An empty match directly after another match does not count. Raises EvaluationError for an invalid pattern.
    """
    compiled = compile_pattern(pattern)
    data = text.encode()
    found: list[str] = []
    position, last_end = 0, -1
    while position <= len(data) and len(found) != limit:
        if len(found) & _STRIDE == _STRIDE:
            yield_to_loop()
        match = compiled.search(data, position)
        if match is None:
            break
        start, end = match.span()
        if end > position or start != last_end:
            found.append(data[start:end].decode())
        position = end if end > position else _next_character(data, position)
        last_end = end
    return found


def _next_character(data: bytes, position: int) -> int:
    position += 1
    while position < len(data) and data[position] & 0xC0 == 0x80:
        position += 1
    return position
