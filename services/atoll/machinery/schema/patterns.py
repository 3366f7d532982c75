"""Tenants' regular expressions, on RE2 and on nothing else: linear time, and the syntax that Go accepts.

Schemas compile their `pattern`s here and definitions check them. Python's `re` would accept lookaheads that Go
refuses, and can be made to run for hours.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import re2

#: RE2's words for what is wrong, where Go's differ.
_GO_WORDS = {
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
    """The pattern is none of RE2's; the text says why, in Go's words."""


@lru_cache(maxsize=4096)
def matcher(pattern: str) -> Callable[[str], bool]:
    """A test whether a string contains a match. Raises PatternError. Kept for the 4,096 patterns last used."""
    try:
        compiled = re2.compile(pattern, options=_options)
    except re2.error as error:
        raise PatternError(_in_go_words(error)) from None
    # The wrapper's own `search` makes a match object of offsets in characters, which costs six times the search.
    # `_regexp` is the compiled RE2 below it; the release is pinned, and the tests would tell if it moved.
    match = compiled._regexp.Match

    def matches(text: str) -> bool:
        data = text.encode()
        return bool(match(_UNANCHORED, data, 0, len(data))[0] != _NO_MATCH)

    return matches


def _in_go_words(error: Exception) -> str:
    raw = error.args[0] if error.args else ""
    text = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else str(raw)
    problem, separator, part = text.partition(": ")
    problem = _GO_WORDS.get(problem, problem)
    return f"error parsing regexp: {problem}: `{part}`" if separator else f"error parsing regexp: {problem}"
