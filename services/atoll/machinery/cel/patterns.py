"""Regular expressions of RE2 with Go's answers: which matches there are, and how a bad pattern is described.

`matches`, `find` and `findAll` call this, and the compiler for patterns that are written out. Matching works on UTF-8,
so that positions need no conversion. Invariant: time is linear in the text and memory bounded, whatever the pattern.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

import re2

from atoll.machinery.cel.bounds import yield_to_loop
from atoll.machinery.cel.errors import EvaluationError

_KEPT_PATTERNS: Final = 1_024
#: Matches between two questions whether to pause.
_STRIDE: Final = 255

_options = re2.Options()
_options.log_errors = False
_options.max_mem = 8 << 20
# Nobody asks for groups, and looking for them costs fifty times as much.
_options.never_capture = True

#: Escapes of one letter, each as that letter; quoted text is passed over.
_ESCAPED = re.compile(r"\\Q.*?(?:\\E|$)|\\(.)", re.DOTALL)

#: RE2's descriptions where Go's differ.
_GO_WORDS: Final = {
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


@lru_cache(maxsize=_KEPT_PATTERNS)
def compile_pattern(pattern: str) -> re2._Regexp[bytes]:
    """The compiled pattern. Raises EvaluationError with Go's description of what is wrong with it."""
    try:
        compiled = re2.compile(pattern.encode(), options=_options)
    except re2.error as error:
        raise EvaluationError(_describe(error)) from None
    # RE2 matches single bytes, which could cut a character in two; Go does not.
    if "\\C" in pattern and "C" in _ESCAPED.findall(pattern):
        raise EvaluationError("error parsing regexp: invalid escape sequence: `\\C`")
    return compiled


def _describe(error: Exception) -> str:
    raw = error.args[0] if error.args else ""
    text = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else str(raw)
    for theirs, gos in _GO_WORDS.items():
        if text.startswith(theirs):
            text = gos + text.removeprefix(theirs)
            break
    code, _, argument = text.partition(": ")
    return f"error parsing regexp: {code}: `{argument}`"


def matches(pattern: str, text: str) -> bool:
    """Whether the pattern matches anywhere. Raises EvaluationError for a bad pattern."""
    return compile_pattern(pattern).search(text.encode()) is not None


def matcher(pattern: str) -> Callable[[str], bool]:
    """`matches` of one pattern. Raises EvaluationError for a bad one."""
    search = compile_pattern(pattern).search
    return lambda text: search(text.encode()) is not None


def find(pattern: str, text: str) -> str:
    """The leftmost match; empty when there is none. Raises EvaluationError for a bad pattern."""
    match = compile_pattern(pattern).search(text.encode())
    return "" if match is None else match[0].decode()


def find_all(pattern: str, text: str, limit: int) -> list[str]:
    """The matches that do not overlap, from the left, at most `limit` of them; a negative limit is none.

    An empty match right behind another match does not count. Raises EvaluationError for a bad pattern.
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
