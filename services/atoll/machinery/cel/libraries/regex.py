"""`text.find(pattern)` and `text.findAll(pattern[, limit])`: the matches of an RE2 pattern in a text.

Part of `base`.
"""

from __future__ import annotations

from typing import Final

from atoll.machinery.cel import patterns
from atoll.machinery.cel.errors import EvaluationError
from atoll.machinery.cel.functions import Function, Library, Overload
from atoll.machinery.cel.types import INT, STRING, ListType


def _find(text: str, pattern: str) -> str:
    try:
        return patterns.find(pattern, text)
    except EvaluationError as error:
        raise EvaluationError(f"Illegal regex: {error}") from None


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    try:
        return patterns.find_all(pattern, text, limit)
    except EvaluationError as error:
        raise EvaluationError(f"Illegal regex: {error}") from None


_TEXTS = ListType(STRING)

LIBRARY: Final = Library(
    "kubernetes.regex",
    (
        Function("find", (Overload("string_find_string", (STRING, STRING), STRING, _find, member=True, pattern_at=1),)),
        Function(
            "findAll",
            (
                Overload("string_find_all_string", (STRING, STRING), _TEXTS, _find_all, member=True, pattern_at=1),
                Overload(
                    "string_find_all_string_int", (STRING, STRING, INT), _TEXTS, _find_all, member=True, pattern_at=1
                ),
            ),
        ),
    ),
)
