"""RE2 regular expressions with Go's results and Go's messages for invalid patterns.

Called by `matches`, `find` and `findAll`, and by the compiler for literal patterns. Matching works on UTF-8, so
positions need no conversion. Invariant: time is linear in the text and memory is bounded for every pattern.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

import re2

from atoll.machinery.cel.bounds import yield_to_loop
from atoll.machinery.cel.errors import EvaluationError

_CACHED_PATTERNS: Final = 1_024
#: Matches between two pauses.
_STRIDE: Final = 255

_options = re2.Options()
_options.log_errors = False
_options.max_mem = 8 << 20
# No caller reads groups, and capturing them takes fifty times as long.
_options.never_capture = True

#: One-letter escapes, each as its letter; quoted text (`\Q...\E`) is skipped.
_ESCAPED = re.compile(r"\\Q.*?(?:\\E|$)|\\(.)", re.DOTALL)

#: Descriptions of RE2 that differ from Go's.
_GO_DESCRIPTIONS: Final = {
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "trailing \\": "trailing backslash at end of expression",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
    "pattern too large - compile failed": "expression too large",
}


@lru_cache(maxsize=_CACHED_PATTERNS)
def compile_pattern(pattern: str) -> re2._Regexp[bytes]:
    """Return the compiled pattern. Raises EvaluationError with Go's description of an invalid one."""
    try:
        compiled = re2.compile(pattern.encode(), options=_options)
    except re2.error as error:
        raise EvaluationError(_describe(error)) from None
    # RE2 supports matching a single byte, which may split a character; Go does not.
    if "\\C" in pattern and "C" in _ESCAPED.findall(pattern):
        raise EvaluationError("error parsing regexp: invalid escape sequence: `\\C`")
    return compiled


def _describe(error: Exception) -> str:
    raw = error.args[0] if error.args else ""
    text = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else str(raw)
    for description, go_description in _GO_DESCRIPTIONS.items():
        if text.startswith(description):
            text = go_description + text.removeprefix(description)
            break
    code, _, argument = text.partition(": ")
    return f"error parsing regexp: {code}: `{argument}`"


def matches(pattern: str, text: str) -> bool:
    """Report whether the pattern matches anywhere. Raises EvaluationError for an invalid pattern."""
    return compile_pattern(pattern).search(text.encode()) is not None


def matcher(pattern: str) -> Callable[[str], bool]:
    """Return `matches` for one pattern. Raises EvaluationError for an invalid one."""
    search = compile_pattern(pattern).search
    return lambda text: search(text.encode()) is not None


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
