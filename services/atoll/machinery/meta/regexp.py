"""Regular expressions of tenants, run on RE2 only: linear time, the syntax and the error texts of Go, bounded memory.

Schemas and CEL compile patterns here. Python's `re` accepts lookaheads that Go rejects, and can take exponential time.
Invariant: compiled patterns live in two caches alone, by which all of them take at most some 150 MiB, whatever texts
they match: a caller keeps the text of a pattern and never the compiled one.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

import re2

#: RE2's descriptions of invalid patterns to Go's, where they differ.
_GO_TEXTS: Final = {
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "trailing \\": "trailing backslash at end of expression",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
    "invalid character class": "invalid character class range",
    "pattern too large - compile failed": "expression too large",
}
#: One-letter escapes, each as its letter; quoted text (`\Q...\E`) is skipped.
_ESCAPED: Final = re.compile(r"\\Q.*?(?:\\E|$)|\\(.)", re.DOTALL)
_UNANCHORED: Final = re2._re2.RE2.Anchor.UNANCHORED
_NO_MATCH: Final = (-1, -1)


class PatternError(ValueError):
    """The pattern is invalid; the text is Go's."""


def _options(max_mem: int) -> re2.Options:
    options = re2.Options()
    options.log_errors = False
    # No caller reads groups, and capturing them takes fifty times as long.
    options.never_capture = True
    options.max_mem = max_mem
    return options


# RE2 takes up to two fifths of its limit for the states that texts lead it through, and keeps them.
_SMALL: Final = _options(256 << 10)
_LARGE: Final = _options(8 << 20)


@lru_cache(maxsize=1024)
def _small(pattern: str) -> re2._Regexp[bytes] | None:
    """Return the compiled pattern, None if it is invalid or needs more memory."""
    try:
        return re2.compile(pattern.encode(), options=_SMALL)
    except re2.error:
        return None


@lru_cache(maxsize=16)
def _large(pattern: str) -> re2._Regexp[bytes]:
    return re2.compile(pattern.encode(), options=_LARGE)


def compile_pattern(pattern: str) -> re2._Regexp[bytes]:
    """Return the compiled pattern, for use at once. Raises PatternError."""
    compiled = _small(pattern)
    if compiled is None:
        try:
            compiled = _large(pattern)
        except re2.error as error:
            raise PatternError(_go_error_text(error)) from None
    # RE2 supports matching a single byte, which may split a character; Go does not.
    if "\\C" in pattern and "C" in _ESCAPED.findall(pattern):
        raise PatternError("error parsing regexp: invalid escape sequence: `\\C`")
    return compiled


def matches(pattern: str, text: str) -> bool:
    """Report whether the text contains a match. Raises PatternError."""
    data = text.encode()
    # The wrapper's `search` makes a match object, which costs six times the search. `_regexp` is the compiled RE2 below
    # it; the release is pinned, and tests fail if it moves.
    return bool(compile_pattern(pattern)._regexp.Match(_UNANCHORED, data, 0, len(data))[0] != _NO_MATCH)


def _go_error_text(error: Exception) -> str:
    raw = error.args[0] if error.args else ""
    text = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else str(raw)
    problem, _, part = text.partition(": ")
    return f"error parsing regexp: {_GO_TEXTS.get(problem, problem)}: `{part}`"
