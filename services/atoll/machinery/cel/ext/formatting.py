"""`'%s'.format([x])`: the clauses of cel-go's string formatting up to version 3, in its locale en_US.

Called by `strings`, and by the validation of literal formats at compile time. Invariant: a clause that does not accept
its argument is an error, in cel-go's words.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from atoll.machinery.cel.bounds import check_text, yield_to_loop
from atoll.machinery.cel.errors import EvaluationError
from atoll.machinery.cel.std.conversion import to_string
from atoll.machinery.cel.std.times import duration_text, timestamp_text
from atoll.machinery.cel.types import Kind, Type, runtime_name
from atoll.machinery.cel.values import Duration, Timestamp, TypeValue, UInt, type_of

_PRECISION: Final = re.compile(r"\.([0-9]*)")
_DEFAULT: Final = 6
_MAX_PRECISION: Final = 1000
_WORDS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class _Clause(NamedTuple):
    """One clause of a format and the text before it. The last one has no verb."""

    text: str
    verb: str = ""
    precision: int | None = None


def _clauses(template: str) -> list[_Clause]:
    """Split a format into its clauses. Raises EvaluationError."""
    clauses: list[_Clause] = []
    front: list[str] = []
    at = 0
    while True:
        percent = template.find("%", at)
        if percent < 0:
            front.append(template[at:])
            clauses.append(_Clause("".join(front)))
            return clauses
        front.append(template[at:percent])
        at = percent + 1
        if template[at : at + 1] == "%":
            front.append("%")
            at += 1
            continue
        if at >= len(template):
            raise EvaluationError("unexpected end of string")
        precision, at = _precision(template, at)
        if at >= len(template):
            raise EvaluationError("could not parse formatting clause: unexpected end of string")
        clauses.append(_Clause("".join(front), template[at], precision))
        front, at = [], at + 1


def _precision(template: str, at: int) -> tuple[int | None, int]:
    match = _PRECISION.match(template, at)
    if match is None:
        return None, at
    if not match[1]:
        return _DEFAULT, match.end()
    return min(int(match[1]), _MAX_PRECISION), match.end()


def format_text(template: str, arguments: Sequence[Any]) -> str:
    """Return the format with its clauses filled. Raises EvaluationError for invalid clauses and arguments."""
    parts: list[str] = []
    size = 0
    for index, (front, verb, precision) in enumerate(_clauses(template)):
        parts.append(front)
        if not verb:
            break
        write = _VERBS.get(verb)
        if write is None:
            raise EvaluationError(f'could not parse formatting clause: unrecognized formatting clause "{verb}"')
        if index >= len(arguments):
            raise EvaluationError(f"index {index} out of range")
        try:
            parts.append(write(arguments[index], _DEFAULT if precision is None else precision))
        except EvaluationError as error:
            raise EvaluationError(f"error during formatting: {error}") from None
        size += len(parts[-1])
        check_text(size)
        yield_to_loop()
    return "".join(parts)


def _kind(value: Any) -> str:
    return runtime_name(type_of(value))


def _string(value: Any, _precision: int) -> str:
    if isinstance(value, list):
        return _list(value)
    if isinstance(value, dict):
        return _map(value)
    if value is None:
        return "null"
    if isinstance(value, bool | int | float | str | bytes | Timestamp | Duration | TypeValue):
        return to_string(value)
    raise EvaluationError(
        "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, "
        f"and timestamps, was given {_kind(value)}"
    )


def _nested(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bytes):
        return "b" + json.dumps(_string(value, 0), ensure_ascii=False)
    if isinstance(value, Timestamp):
        return f'timestamp("{timestamp_text(value)}")'
    if isinstance(value, Duration):
        return f'duration("{duration_text(value)}")'
    if isinstance(value, float):
        return f'"{to_string(value)}"' if not math.isfinite(value) else f"{value:.{_DEFAULT}f}"
    if isinstance(value, list | dict | bool | int | TypeValue) or value is None:
        return _string(value, 0)
    raise EvaluationError(f"no formatting function for {_kind(value)}")


def _list(items: Sequence[Any]) -> str:
    return f"[{', '.join(map(_nested, items))}]"


def _map(of: dict[Any, Any]) -> str:
    for key in of:
        if not isinstance(key, str | bool | int):
            raise EvaluationError(f"no formatting function for map key of type {_kind(key)}")
    pairs = sorted((_nested(key), _nested(value)) for key, value in of.items())
    return "{" + ", ".join(f"{key}:{value}" for key, value in pairs) + "}"


def _decimal(value: Any, _precision: int) -> str:
    if type(value) is int or type(value) is UInt:
        return str(int(value))
    raise EvaluationError(f"decimal clause can only be used on integers, was given {_kind(value)}")


def _double(value: Any, clause: str) -> float:
    if isinstance(value, float):
        return value
    if isinstance(value, str) and value in _WORDS:
        return _WORDS[value]
    raise EvaluationError(f"{clause} clause can only be used on doubles, was given {_kind(value)}")


def _special(number: float) -> str:
    return "NaN" if math.isnan(number) else "∞" if number > 0 else "-∞"


def _fixed(value: Any, precision: int) -> str:
    number = _double(value, "fixed-point")
    # Adding zero removes the sign of a negative zero, which Go does not print.
    return f"{number + 0.0:,.{precision}f}" if math.isfinite(number) else _special(number)


def _scientific(value: Any, precision: int) -> str:
    number = _double(value, "scientific")
    if not math.isfinite(number):
        return _special(number).rjust(precision)
    mantissa, _, power = f"{number + 0.0:.{precision}e}".partition("e")
    raised = "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(c)] for c in power[1:])
    return f"{mantissa}×10{'⁻' if power[0] == '-' else ''}{raised}"


def _binary(value: Any, _precision: int) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if type(value) is int or type(value) is UInt:
        return format(int(value), "b")
    raise EvaluationError(f"only integers and bools can be formatted as binary, was given {_kind(value)}")


def _octal(value: Any, _precision: int) -> str:
    if type(value) is int or type(value) is UInt:
        return format(int(value), "o")
    raise EvaluationError(f"octal clause can only be used on integers, was given {_kind(value)}")


def _hex(letters: str) -> Callable[[Any, int], str]:
    def write(value: Any, _precision: int) -> str:
        if isinstance(value, str):
            value = value.encode()
        if isinstance(value, bytes):
            return value.hex() if letters == "x" else value.hex().upper()
        if type(value) is int or type(value) is UInt:
            return format(int(value), letters)
        raise EvaluationError(
            f"only integers, byte buffers, and strings can be formatted as hex, was given {_kind(value)}"
        )

    return write


_VERBS: Final[dict[str, Callable[[Any, int], str]]] = {
    "s": _string,
    "d": _decimal,
    "f": _fixed,
    "e": _scientific,
    "b": _binary,
    "o": _octal,
    "x": _hex("x"),
    "X": _hex("X"),
}

_CLAUSES: Final[dict[str, tuple[frozenset[Kind], str]]] = {
    "s": (
        frozenset(Kind) - {Kind.OBJECT, Kind.OPAQUE, Kind.ANY},
        "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, "
        "and timestamps",
    ),
    "d": (frozenset({Kind.INT, Kind.UINT}), "decimal clause can only be used on integers"),
    "f": (frozenset({Kind.DOUBLE, Kind.STRING}), "fixed-point clause can only be used on doubles"),
    "e": (frozenset({Kind.DOUBLE, Kind.STRING}), "scientific clause can only be used on doubles"),
    "b": (frozenset({Kind.INT, Kind.UINT, Kind.BOOL}), "only integers and bools can be formatted as binary"),
    "o": (frozenset({Kind.INT, Kind.UINT}), "octal clause can only be used on integers"),
    **dict.fromkeys(
        ("x", "X"),
        (
            frozenset({Kind.INT, Kind.UINT, Kind.STRING, Kind.BYTES}),
            "only integers, byte buffers, and strings can be formatted as hex",
        ),
    ),
}


def check_format(template: str, types: Sequence[Type]) -> tuple[int | None, str] | None:
    """Return the error of a literal format for the static types of its arguments, as (index of the argument, message).

    None if the format is valid; the index is None if the format itself is invalid.
    """
    try:
        clauses = _clauses(template)
    except EvaluationError as error:
        return None, str(error)
    for index, (_, verb, _) in enumerate(clauses[:-1]):
        if verb not in _CLAUSES:
            return None, f'could not parse formatting clause: unrecognized formatting clause "{verb}"'
        if index >= len(types):
            return None, f"index {index} out of range"
        kinds, message = _CLAUSES[verb]
        if types[index].kind is not Kind.DYN and types[index].kind not in kinds:
            name = runtime_name(types[index])
            return index, f"error during formatting: {message}, was given {name}"
    if len(types) > len(clauses) - 1:
        return None, f"too many arguments supplied to string.format (expected {len(clauses) - 1}, got {len(types)})"
    return None
