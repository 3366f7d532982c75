"""Functions on strings that every environment has: contains, startsWith, endsWith, matches, size.

Part of the standard library. Invariant: patterns are RE2, so a match takes time linear in the text.
"""

from __future__ import annotations

from atoll.machinery.cel import patterns
from atoll.machinery.cel.functions import Function, Overload
from atoll.machinery.cel.types import BOOL, BYTES, INT, STRING, ListType, MapType, TypeParameter

_A, _B = TypeParameter("A"), TypeParameter("B")


def _matches(text: str, regex: str) -> bool:
    return patterns.matches(regex, text)


FUNCTIONS = (
    Function("contains", (Overload("contains_string", (STRING, STRING), BOOL, lambda a, b: b in a, member=True),)),
    Function("endsWith", (Overload("ends_with_string", (STRING, STRING), BOOL, str.endswith, member=True),)),
    Function("startsWith", (Overload("starts_with_string", (STRING, STRING), BOOL, str.startswith, member=True),)),
    Function(
        "matches",
        (
            Overload("matches", (STRING, STRING), BOOL, _matches),
            Overload("matches_string", (STRING, STRING), BOOL, _matches, member=True),
        ),
    ),
    Function(
        "size",
        (
            Overload("size_bytes", (BYTES,), INT, len),
            Overload("bytes_size", (BYTES,), INT, len, member=True),
            Overload("size_list", (ListType(_A),), INT, len),
            Overload("list_size", (ListType(_A),), INT, len, member=True),
            Overload("size_map", (MapType(_A, _B),), INT, len),
            Overload("map_size", (MapType(_A, _B),), INT, len, member=True),
            Overload("size_string", (STRING,), INT, len),
            Overload("string_size", (STRING,), INT, len, member=True),
        ),
    ),
)
