"""Strings: version 2 of cel-go's library, which Kubernetes enables. `format` is in `formatting`.

Positions count code points. Invariant: an index out of range is an error of the expression, never a truncated result.
"""

from __future__ import annotations

from typing import Any, Final

from atoll.machinery.cel.bounds import check_text
from atoll.machinery.cel.errors import EvaluationError
from atoll.machinery.cel.ext.formatting import format_text
from atoll.machinery.cel.functions import Function, Library, Overload
from atoll.machinery.cel.types import DYN, INT, STRING, ListType

_UPPER: Final = {i: i + 32 for i in range(65, 91)}
_LOWER: Final = {i + 32: i for i in range(65, 91)}
_SPACE: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_ESCAPES: Final = str.maketrans(
    {
        "\a": "\\a",
        "\b": "\\b",
        "\f": "\\f",
        "\n": "\\n",
        "\r": "\\r",
        "\t": "\\t",
        "\v": "\\v",
        "\\": "\\\\",
        '"': '\\"',
    }
)


def _range_error(index: int) -> EvaluationError:
    return EvaluationError(f"index out of range: {index}")


def _char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise _range_error(index)
    return text[index : index + 1]


def _index_of(text: str, part: str, offset: int = 0) -> int:
    if offset < 0:
        raise _range_error(offset)
    if part == "":
        return min(offset, len(text))
    return text.find(part, offset)


def _last_index_of(text: str, part: str, offset: int | None = None) -> int:
    if offset is None:
        return text.rfind(part)
    if offset < 0:
        raise _range_error(offset)
    if part == "":
        return min(offset, len(text))
    if offset >= len(text):
        return -1
    return text.rfind(part, 0, offset + len(part))


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    if len(new) > len(old):
        found = text.count(old)
        check_text(len(text) + (found if count < 0 else min(found, count)) * (len(new) - len(old)))
    return text.replace(old, new, count)


def _split(text: str, separator: str, count: int = -1) -> list[str]:
    if count == 0:
        return []
    if separator == "":
        if count < 0 or count >= len(text):
            return list(text)
        return [*text[: count - 1], text[count - 1 :]]
    return text.split(separator) if count < 0 else text.split(separator, count - 1)


def _substring(text: str, start: int, end: int | None = None) -> str:
    if end is not None and start > end:
        raise EvaluationError(f"invalid substring range. start: {start}, end: {end}")
    for at in (start, end):
        if at is not None and not 0 <= at <= len(text):
            raise _range_error(at)
    return text[start:end]


def _join(items: list[Any], separator: str = "") -> str:
    for item in items:
        if not isinstance(item, str):
            raise EvaluationError(f"join: invalid input: {item}")
    check_text(sum(map(len, items)) + len(separator) * len(items))
    return separator.join(items)


def quote(text: str) -> str:
    """Return the text in double quotes, with the escapes of CEL."""
    return f'"{text.translate(_ESCAPES)}"'


def _member(name: str, *overloads: tuple[str, tuple[Any, ...], Any, Any]) -> Function:
    return Function(
        name, tuple(Overload(id, given, result, call, member=True) for id, given, result, call in overloads)
    )


STRINGS = Library(
    "cel.lib.ext.strings",
    functions=(
        _member("charAt", ("string_char_at_int", (STRING, INT), STRING, _char_at)),
        _member(
            "indexOf",
            ("string_index_of_string", (STRING, STRING), INT, _index_of),
            ("string_index_of_string_int", (STRING, STRING, INT), INT, _index_of),
        ),
        _member(
            "lastIndexOf",
            ("string_last_index_of_string", (STRING, STRING), INT, _last_index_of),
            ("string_last_index_of_string_int", (STRING, STRING, INT), INT, _last_index_of),
        ),
        _member("lowerAscii", ("string_lower_ascii", (STRING,), STRING, lambda s: s.translate(_UPPER))),
        _member("upperAscii", ("string_upper_ascii", (STRING,), STRING, lambda s: s.translate(_LOWER))),
        _member(
            "replace",
            ("string_replace_string_string", (STRING, STRING, STRING), STRING, _replace),
            ("string_replace_string_string_int", (STRING, STRING, STRING, INT), STRING, _replace),
        ),
        _member(
            "split",
            ("string_split_string", (STRING, STRING), ListType(STRING), _split),
            ("string_split_string_int", (STRING, STRING, INT), ListType(STRING), _split),
        ),
        _member(
            "substring",
            ("string_substring_int", (STRING, INT), STRING, _substring),
            ("string_substring_int_int", (STRING, INT, INT), STRING, _substring),
        ),
        _member("trim", ("string_trim", (STRING,), STRING, lambda s: s.strip(_SPACE))),
        _member("format", ("string_format", (STRING, ListType(DYN)), STRING, format_text)),
        Function("strings.quote", (Overload("strings_quote", (STRING,), STRING, quote),)),
        _member(
            "join",
            ("list_join", (ListType(STRING),), STRING, _join),
            ("list_join_string", (ListType(STRING), STRING), STRING, _join),
        ),
    ),
)

#: `reverse` is in version 3 of the library, which Kubernetes does not enable.
STRINGS_REVERSE = Library(
    "cel.lib.ext.strings.reverse",
    functions=(_member("reverse", ("string_reverse", (STRING,), STRING, lambda s: s[::-1])),),
)
