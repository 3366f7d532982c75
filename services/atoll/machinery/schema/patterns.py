"""Regular expressions of tenants, run on RE2 only: linear time, and the syntax of Go.

`structural` compiles `pattern`s here and `definitions` validates them. Python's `re` accepts lookaheads that Go
rejects, and can take exponential time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import re2

#: RE2's error texts to Go's, where they differ.
_GO_TEXTS = {
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "invalid character class": "invalid character class range",
    "invalid UTF-8": "invalid UTF-8",
}

_UNANCHORED = re2._re2.RE2.Anchor.UNANCHORED
_NO_MATCH = (-1, -1)

_options = re2.Options()
_options.log_errors = False
_options.never_capture = True


class PatternError(ValueError):
    """The pattern is invalid; the text is Go's."""


@lru_cache(maxsize=4096)
def matcher(pattern: str) -> Callable[[str], bool]:
    """Return a test whether a string contains a match. Raises PatternError. The 4,096 last used are cached."""
    try:
        compiled = re2.compile(pattern, options=_options)
    except re2.error as error:
        raise PatternError(_go_error_text(error)) from None
    # The wrapper's `search` makes a match object with offsets in characters, which costs six times the search.
    # `_regexp` is the compiled RE2 below it; the release is pinned, and tests fail if it moves.
    match = compiled._regexp.Match

    def matches(text: str) -> bool:
        data = text.encode()
        return bool(match(_UNANCHORED, data, 0, len(data))[0] != _NO_MATCH)

    return matches


def _go_error_text(error: Exception) -> str:
    raw = error.args[0] if error.args else ""
    text = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else str(raw)
    problem, separator, part = text.partition(": ")
    problem = _GO_TEXTS.get(problem, problem)
    return f"error parsing regexp: {problem}: `{part}`" if separator else f"error parsing regexp: {problem}"
