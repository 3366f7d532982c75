"""The protocol buffers wire format, independent of Kubernetes: numbers, lengths, skipping.

Called by `protobuf`. Input is untrusted: every read is checked against the end of its message, and nesting is bounded.
Positions are offsets in the whole body, so bytes are copied only into values.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from atoll.machinery.process.time_slicing import checkpoint

VARINT, FIXED64, BYTES, START_GROUP, END_GROUP, FIXED32 = range(6)

#: Limit of the nesting of messages. Kubernetes' own objects are far below it; each level takes Python frames.
MAX_DEPTH = 100
_MAX_VARINT_SIZE = 10
_UINT64 = (1 << 64) - 1
_FIXED_SIZES = {FIXED64: 8, FIXED32: 4}


class DecodeProtobufError(ValueError):
    """The bytes are not a well-formed message of the declared kind."""


def varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return an unsigned number and the offset after it."""
    value = shift = 0
    for offset in range(at, min(at + _MAX_VARINT_SIZE, end)):
        byte = data[offset]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _UINT64, offset + 1
        shift += 7
    is_cut = at + _MAX_VARINT_SIZE > end
    raise DecodeProtobufError("unexpected end of a number" if is_cut else "number overflow")


def span(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return begin and end of a value with a length."""
    size, at = varint(data, at, end)
    if size > end - at:
        raise DecodeProtobufError("unexpected end of message")
    return at, at + size


def skip(data: bytes, at: int, end: int, tag: int) -> int:
    """Return the offset after the value of a tag of any wire type."""
    checkpoint()
    wire = tag & 7
    if not tag >> 3:
        raise DecodeProtobufError("illegal field number 0")
    if wire == VARINT:
        return varint(data, at, end)[1]
    if wire == BYTES:
        return span(data, at, end)[1]
    if wire == START_GROUP:
        return _skip_group(data, at, end, tag >> 3)
    if wire not in _FIXED_SIZES:
        raise DecodeProtobufError(f"illegal wire type {wire}")
    if _FIXED_SIZES[wire] > end - at:
        raise DecodeProtobufError("unexpected end of message")
    return at + _FIXED_SIZES[wire]


def _skip_group(data: bytes, at: int, end: int, number: int) -> int:
    """Return the offset after a group; nested groups are on an explicit stack."""
    open_groups = [number]
    while open_groups:
        tag, at = varint(data, at, end)
        if tag & 7 == START_GROUP:
            if len(open_groups) == MAX_DEPTH:
                raise DecodeProtobufError("groups nest too deep")
            open_groups.append(tag >> 3)
        elif tag & 7 == END_GROUP:
            if open_groups.pop() != tag >> 3:
                raise DecodeProtobufError("unexpected end of group")
        else:
            at = skip(data, at, end, tag)
    return at


def spans(data: bytes, at: int, end: int, number: int) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each value with a length under a field number; other fields are skipped."""
    wanted = number << 3 | BYTES
    while at < end:
        checkpoint()
        tag, at = varint(data, at, end)
        if tag == wanted:
            begin, at = span(data, at, end)
            yield begin, at
        else:
            at = skip(data, at, end, tag)


def numbers(data: bytes, at: int, end: int) -> dict[int, int]:
    """Return the numbers of a message by field number; other fields are skipped."""
    found = {}
    while at < end:
        tag, at = varint(data, at, end)
        if tag & 7 == VARINT:
            found[tag >> 3], at = varint(data, at, end)
        else:
            at = skip(data, at, end, tag)
    return found


def signed32(value: int) -> int:
    """Return the lower 32 bits of a number as two's complement."""
    value &= 0xFFFF_FFFF
    return value - (1 << 32) if value >> 31 else value


def signed64(value: int) -> int:
    """Return a 64-bit number as two's complement."""
    return value - (1 << 64) if value >> 63 else value


def double(data: bytes, at: int) -> float:
    """Return eight bytes as a double."""
    number: float = struct.unpack_from("<d", data, at)[0]
    return number


def text(data: bytes, at: int, end: int) -> str:
    """Return bytes as UTF-8 text. Raises DecodeProtobufError."""
    try:
        return data[at:end].decode()
    except UnicodeDecodeError as error:
        raise DecodeProtobufError("invalid UTF-8 in a string") from error
