"""Strict JSON decoding: input that Kubernetes rejects, or silently changes, is an error.

As in Go, bytes that are not UTF-8, and halves of surrogates (`\\ud800`), are decoded as U+FFFD.

Create, update, patch and apply decode bodies with `decode_json` or `yaml_decoder.decode_yaml`. Invariant: any bytes
result in a value or a DecodeError, with memory proportional to the body; every value can be encoded again: finite
floats, integers of 64 bits, nesting within MAX_DEPTH.
"""

from __future__ import annotations

from typing import Any

import msgspec

from atoll.machinery.meta.objects import LARGE_BYTES, encode_in_parts, encode_json, without_collection
from atoll.machinery.process.time_slicing import checkpoint
from atoll.machinery.schema.decoding.document import (
    INT_MAX,
    INT_MIN,
    MAX_DEPTH,
    DecodeError,
    Document,
    is_too_deep,
    numbers,
)
from atoll.machinery.schema.decoding.duplicate_keys import find_duplicates as _find_duplicates
from atoll.machinery.schema.decoding.malformed_characters import replace_malformed

_decoder = msgspec.json.Decoder()
#: Builds nothing, and finds most errors.
_scanner = msgspec.json.Decoder(msgspec.Raw)
#: Maps every digit to 0: finding a long run of zeros is faster than matching a regular expression.
_DIGITS_AS_ZERO = bytes(0x30 if 0x30 <= byte <= 0x39 else 0x20 for byte in range(256))
_MANY_DIGITS = b"0" * 19


def decode_json(data: bytes, *, find_duplicates: bool = False, max_depth: int = MAX_DEPTH) -> Document:
    """Decode one JSON document.

    Raises DecodeError for malformed JSON, NaN and infinities, numbers beyond a 64 bit float, integers
    (without `.` or exponent) beyond 64 bits, and nesting deeper than `max_depth`. The last of duplicate keys wins; with
    `find_duplicates` their paths are listed (`data.a`, `spec.list[0].x`) in document order.
    """
    value, data = _decoded(data, max_depth)
    is_large = len(data) > LARGE_BYTES
    if is_large:
        checkpoint()
    if data.count(b"{") + data.count(b"[") > max_depth and is_too_deep(value, max_depth):
        raise DecodeError(_too_deep(max_depth))
    if _MANY_DIGITS in data.translate(_DIGITS_AS_ZERO):
        _check_range(value)
    if is_large:
        checkpoint()
    return Document(value, _find_duplicates(data) if find_duplicates and _lost_a_key(data, value) else [])


def _decoded(data: bytes, max_depth: int) -> tuple[Any, bytes]:
    """Return the value and the bytes that gave it, which differ from `data` where that has malformed characters."""
    try:
        return _large(data) if len(data) > LARGE_BYTES else _decoder.decode(data), data
    except RecursionError:
        raise DecodeError(_too_deep(max_depth)) from None
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
        checkpoint()
        repaired = replace_malformed(data)
        checkpoint()
        if repaired == data:
            raise DecodeError(f"invalid JSON: {error}") from None
        return _decoded(repaired, max_depth)


def _large(data: bytes) -> Any:
    # Half of a tree takes as long to build, and to free, as a whole one.
    _scanner.decode(data)
    checkpoint()
    return without_collection(_decoder.decode, data)


def _too_deep(max_depth: int) -> str:
    return f"invalid JSON: nested deeper than {max_depth} levels"


def _check_range(value: Any) -> None:
    for number in numbers(value):
        if type(number) is int and not INT_MIN <= number <= INT_MAX:
            raise DecodeError(f"invalid JSON: number {number} does not fit into 64 bits")


def _lost_a_key(data: bytes, value: Any) -> bool:
    """Whether a key may have been dropped as a duplicate.

    Every string has two quotes and one for each quote that it escapes. Encoding the value again writes the same number
    of quotes unless a duplicate key was dropped. Quotes written as \\u0022 would break the count, so the result is True
    for documents with such escapes.
    """
    if b"\\u" in data:
        return True
    if len(data) <= LARGE_BYTES:
        return data.count(b'"') != encode_json(value).count(b'"')
    return data.count(b'"') != sum(part.count(b'"') for part in encode_in_parts(value, checkpoint))
