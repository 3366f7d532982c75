"""`+ - * / %` and negation: 64-bit numbers, strings, bytes, lists, times.

Part of the standard library. Invariant: an int outside of 64 bits is the error `integer overflow`, as in Go.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from atoll.machinery.cel.errors import EvaluationError
from atoll.machinery.cel.functions import Function, Overload
from atoll.machinery.cel.types import (
    BYTES,
    DOUBLE,
    DURATION,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    ListType,
    Type,
    TypeParameter,
)
from atoll.machinery.cel.values import INT_MAX, INT_MIN, SECOND, UINT_MAX, Duration, Timestamp, UInt

_A = TypeParameter("A")
#: Seconds of 0001-01-01T00:00:00Z and 9999-12-31T23:59:59Z.
MIN_SECONDS, MAX_SECONDS = -62135596800, 253402300799


def int_result(value: int) -> int:
    """Return the value. Raises EvaluationError `integer overflow`."""
    if INT_MIN <= value <= INT_MAX:
        return value
    raise EvaluationError("integer overflow")


def uint_result(value: int) -> UInt:
    """Return the value as uint. Raises EvaluationError `unsigned integer overflow`."""
    if 0 <= value <= UINT_MAX:
        return UInt(value)
    raise EvaluationError("unsigned integer overflow")


def duration_result(nanos: int) -> Duration:
    """Return the duration. Raises EvaluationError `duration overflow`."""
    if INT_MIN <= nanos <= INT_MAX:
        return Duration(nanos)
    raise EvaluationError("duration overflow")


def timestamp_result(moment: Timestamp, nanos: int) -> Timestamp:
    """Return the moment this many nanoseconds later. Raises EvaluationError `timestamp overflow`."""
    nanos += moment.nanos
    if MIN_SECONDS <= nanos // SECOND <= MAX_SECONDS:
        return Timestamp(nanos, moment.offset_s)
    raise EvaluationError("timestamp overflow")


def _divide_int(a: int, b: int) -> int:
    if b == 0:
        raise EvaluationError("division by zero")
    quotient = abs(a) // abs(b)
    return int_result(quotient if (a < 0) == (b < 0) else -quotient)


def _modulo_int(a: int, b: int) -> int:
    if b == 0:
        raise EvaluationError("modulus by zero")
    if a == INT_MIN and b == -1:
        raise EvaluationError("integer overflow")
    rest = abs(a) % abs(b)
    return -rest if a < 0 else rest


def _divide_uint(a: int, b: int) -> UInt:
    if b == 0:
        raise EvaluationError("division by zero")
    return UInt(int(a) // int(b))


def _modulo_uint(a: int, b: int) -> UInt:
    if b == 0:
        raise EvaluationError("modulus by zero")
    return UInt(int(a) % int(b))


def _divide_double(a: float, b: float) -> float:
    if b != 0:
        return a / b
    if a == 0 or math.isnan(a):
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def _multiply_double(a: float, b: float) -> float:
    return a * b


def _binary(id: str, left: Type, right: Type, result: Type, call: Callable[[Any, Any], Any]) -> Overload:
    return Overload(id, (left, right), result, call)


FUNCTIONS = (
    Function(
        "_+_",
        (
            _binary("add_bytes", BYTES, BYTES, BYTES, lambda a, b: a + b),
            _binary("add_double", DOUBLE, DOUBLE, DOUBLE, lambda a, b: a + b),
            _binary(
                "add_duration_duration", DURATION, DURATION, DURATION, lambda a, b: duration_result(a.nanos + b.nanos)
            ),
            _binary(
                "add_duration_timestamp", DURATION, TIMESTAMP, TIMESTAMP, lambda a, b: timestamp_result(b, a.nanos)
            ),
            _binary(
                "add_timestamp_duration", TIMESTAMP, DURATION, TIMESTAMP, lambda a, b: timestamp_result(a, b.nanos)
            ),
            _binary("add_int64", INT, INT, INT, lambda a, b: int_result(a + b)),
            _binary("add_list", ListType(_A), ListType(_A), ListType(_A), lambda a, b: a + b),
            _binary("add_string", STRING, STRING, STRING, lambda a, b: a + b),
            _binary("add_uint64", UINT, UINT, UINT, lambda a, b: uint_result(a + b)),
        ),
    ),
    Function(
        "_-_",
        (
            _binary("subtract_double", DOUBLE, DOUBLE, DOUBLE, lambda a, b: a - b),
            _binary(
                "subtract_duration_duration",
                DURATION,
                DURATION,
                DURATION,
                lambda a, b: duration_result(a.nanos - b.nanos),
            ),
            _binary("subtract_int64", INT, INT, INT, lambda a, b: int_result(a - b)),
            _binary(
                "subtract_timestamp_duration",
                TIMESTAMP,
                DURATION,
                TIMESTAMP,
                lambda a, b: timestamp_result(a, -b.nanos),
            ),
            _binary(
                "subtract_timestamp_timestamp",
                TIMESTAMP,
                TIMESTAMP,
                DURATION,
                lambda a, b: duration_result(a.nanos - b.nanos),
            ),
            _binary("subtract_uint64", UINT, UINT, UINT, lambda a, b: uint_result(a - b)),
        ),
    ),
    Function(
        "_*_",
        (
            _binary("multiply_double", DOUBLE, DOUBLE, DOUBLE, _multiply_double),
            _binary("multiply_int64", INT, INT, INT, lambda a, b: int_result(a * b)),
            _binary("multiply_uint64", UINT, UINT, UINT, lambda a, b: uint_result(a * b)),
        ),
    ),
    Function(
        "_/_",
        (
            _binary("divide_double", DOUBLE, DOUBLE, DOUBLE, _divide_double),
            _binary("divide_int64", INT, INT, INT, _divide_int),
            _binary("divide_uint64", UINT, UINT, UINT, _divide_uint),
        ),
    ),
    Function(
        "_%_",
        (_binary("modulo_int64", INT, INT, INT, _modulo_int), _binary("modulo_uint64", UINT, UINT, UINT, _modulo_uint)),
    ),
    Function(
        "-_",
        (
            Overload("negate_double", (DOUBLE,), DOUBLE, lambda a: -a),
            Overload("negate_int64", (INT,), INT, lambda a: int_result(-a)),
        ),
    ),
)
