"""Type conversions: `int(x)`, `string(x)`, `timestamp(x)`, `dyn(x)`, `type(x)` and the others.

Part of the standard library; `format` prints values with `to_string` as well. Invariant: a text is accepted if and only
if Go's parser of that type accepts it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Final

from atoll.machinery.cel.errors import EvaluationError
from atoll.machinery.cel.functions import Function, Overload
from atoll.machinery.cel.std.arithmetic import MAX_SECONDS, MIN_SECONDS, int_result, uint_result
from atoll.machinery.cel.std.times import duration_text, parse_duration, parse_timestamp, timestamp_text
from atoll.machinery.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    Type,
    TypeParameter,
    TypeType,
    runtime_name,
)
from atoll.machinery.cel.values import INT_MAX, INT_MIN, SECOND, UINT_MAX, Duration, Timestamp, TypeValue, UInt, type_of

_A = TypeParameter("A")
_INT: Final = re.compile(r"[+-]?[0-9]+\Z")
_UINT: Final = re.compile(r"[0-9]+\Z")
_DOUBLE: Final = re.compile(
    r"[+-]?(?:[0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|inf|infinity|nan)\Z", re.IGNORECASE
)
_HEX: Final = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+\Z")
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})


def _conversion_error(to: str) -> EvaluationError:
    return EvaluationError(f"type conversion error from 'string' to '{to}'")


def _string_to_int(text: str) -> int:
    if _INT.match(text):
        value = int(text)
        if INT_MIN <= value <= INT_MAX:
            return value
    raise _conversion_error("int")


def _string_to_uint(text: str) -> UInt:
    if _UINT.match(text):
        value = int(text)
        if value <= UINT_MAX:
            return UInt(value)
    raise _conversion_error("uint")


def string_to_double(text: str) -> float:
    """Return the number as Go's ParseFloat: decimal or hexadecimal, infinities and NaN by name.

    Raises EvaluationError out of range.
    """
    if _DOUBLE.match(text):
        value = float(text)
        if not math.isinf(value) or "n" in text.lower():
            return value
    elif _HEX.match(text):
        try:
            return float.fromhex(text)
        except OverflowError:
            pass
    raise _conversion_error("double")


def _string_to_bool(text: str) -> bool:
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise _conversion_error("bool")


def _bytes_to_string(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise EvaluationError("invalid UTF-8 in bytes, cannot convert to string") from None


def _double_to_int(value: float) -> int:
    if math.isnan(value) or math.isinf(value) or not -(2.0**63) < value < 2.0**63:
        raise EvaluationError("integer overflow")
    return int(value)


def _double_to_uint(value: float) -> UInt:
    if math.isnan(value) or math.isinf(value) or not 0 <= value < 2.0**64:
        raise EvaluationError("unsigned integer overflow")
    return UInt(int(value))


def _int_to_timestamp(seconds: int) -> Timestamp:
    if not MIN_SECONDS <= seconds <= MAX_SECONDS:
        raise EvaluationError("timestamp overflow")
    return Timestamp(seconds * SECOND)


def double_text(value: float) -> str:
    """Return the number as Go prints it with %g: the shortest digits, with an exponent below 1e-4 and from 1e6 on."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if value == 0:
        return "-0" if math.copysign(1.0, value) < 0 else "0"
    mantissa, _, power = f"{value!r}".partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    fraction = "" if fraction == "0" else fraction
    exponent = int(power or 0) + len(whole) - 1
    digits = whole + fraction
    stripped = digits.lstrip("0")
    exponent -= len(digits) - len(stripped)
    digits = stripped.rstrip("0") or "0"
    if exponent < -4 or exponent >= 6:
        head = digits[0] + ("." + digits[1:] if len(digits) > 1 else "")
        return f"{sign}{head}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    if len(digits) <= exponent + 1:
        return sign + digits + "0" * (exponent + 1 - len(digits))
    return f"{sign}{digits[: exponent + 1]}.{digits[exponent + 1 :]}"


def to_string(value: Any) -> str:
    """`string(value)` for the types that support it."""
    kind = type(value)
    if kind is str:
        return str(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is int or kind is UInt:
        return str(int(value))
    if kind is float:
        return double_text(value)
    if kind is bytes:
        return _bytes_to_string(value)
    if kind is Timestamp:
        return timestamp_text(value)
    if kind is Duration:
        return duration_text(value)
    return str(value)


def _type(value: Any) -> TypeValue:
    if isinstance(value, TypeValue):
        return TypeValue("type")
    of = type_of(value)
    return TypeValue(runtime_name(of))


def _same(value: Any) -> Any:
    return value


def _unary(id: str, parameter: Type, result: Type, call: Callable[[Any], Any]) -> Overload:
    return Overload(id, (parameter,), result, call)


FUNCTIONS = (
    Function("type", (_unary("type", _A, TypeType(_A), _type),)),
    Function("dyn", (_unary("to_dyn", _A, DYN, _same),)),
    Function(
        "bool", (_unary("bool_to_bool", BOOL, BOOL, _same), _unary("string_to_bool", STRING, BOOL, _string_to_bool))
    ),
    Function(
        "bytes", (_unary("bytes_to_bytes", BYTES, BYTES, _same), _unary("string_to_bytes", STRING, BYTES, str.encode))
    ),
    Function(
        "double",
        (
            _unary("double_to_double", DOUBLE, DOUBLE, _same),
            _unary("int64_to_double", INT, DOUBLE, float),
            _unary("string_to_double", STRING, DOUBLE, string_to_double),
            _unary("uint64_to_double", UINT, DOUBLE, float),
        ),
    ),
    Function(
        "duration",
        (
            _unary("duration_to_duration", DURATION, DURATION, _same),
            _unary("int64_to_duration", INT, DURATION, Duration),
            _unary("string_to_duration", STRING, DURATION, parse_duration),
        ),
    ),
    Function(
        "int",
        (
            _unary("int64_to_int64", INT, INT, _same),
            _unary("double_to_int64", DOUBLE, INT, _double_to_int),
            _unary("duration_to_int64", DURATION, INT, lambda d: d.nanos),
            _unary("string_to_int64", STRING, INT, _string_to_int),
            _unary("timestamp_to_int64", TIMESTAMP, INT, lambda t: t.nanos // SECOND),
            _unary("uint64_to_int64", UINT, INT, lambda u: int_result(int(u))),
        ),
    ),
    Function(
        "string",
        (
            _unary("string_to_string", STRING, STRING, _same),
            _unary("bool_to_string", BOOL, STRING, to_string),
            _unary("bytes_to_string", BYTES, STRING, _bytes_to_string),
            _unary("double_to_string", DOUBLE, STRING, double_text),
            _unary("duration_to_string", DURATION, STRING, duration_text),
            _unary("int64_to_string", INT, STRING, str),
            _unary("timestamp_to_string", TIMESTAMP, STRING, timestamp_text),
            _unary("uint64_to_string", UINT, STRING, to_string),
        ),
    ),
    Function(
        "timestamp",
        (
            _unary("timestamp_to_timestamp", TIMESTAMP, TIMESTAMP, _same),
            _unary("int64_to_timestamp", INT, TIMESTAMP, _int_to_timestamp),
            _unary("string_to_timestamp", STRING, TIMESTAMP, parse_timestamp),
        ),
    ),
    Function(
        "uint",
        (
            _unary("uint64_to_uint64", UINT, UINT, _same),
            _unary("double_to_uint64", DOUBLE, UINT, _double_to_uint),
            _unary("int64_to_uint64", INT, UINT, uint_result),
            _unary("string_to_uint64", STRING, UINT, _string_to_uint),
        ),
    ),
)
