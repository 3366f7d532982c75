"""The wire format of protocol buffers: bytes to numbered fields, nothing of Kubernetes.

`protobuf` walks messages with this. Input is whatever a client sent: every read is checked against the end of
its message, and nesting of unknown groups is bounded. Views are passed on, not copied.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

VARINT, FIXED64, BYTES, START_GROUP, END_GROUP, FIXED32 = range(6)

#: How deep messages may nest. Kubernetes' own objects stay far below; every level costs Python frames.
MAX_DEPTH = 100
_MAX_VARINT_SIZE = 10
_MAX_FIELD_NUMBER = (1 << 29) - 1

#: What a field holds on the wire: an int, or the bytes of a length-delimited or fixed field.
Value = int | memoryview


class DecodeProtobufError(ValueError):
    """The bytes are no well-formed message of the kind they claim to be."""


def fields(data: memoryview) -> Iterator[tuple[int, int, Value]]:
    """Each field of a message as (number, wire type, value), in order. Groups are skipped."""
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if not 0 < number <= _MAX_FIELD_NUMBER:
            raise DecodeProtobufError(f"illegal field number {number}")
        if wire == START_GROUP:
            at = _skip_group(data, at, number)
            continue
        value, at = _read(data, at, wire)
        yield number, wire, value


def _read(data: memoryview, at: int, wire: int) -> tuple[Value, int]:
    """One value and the offset behind it."""
    if wire == VARINT:
        return _varint(data, at)
    if wire == BYTES:
        size, at = _varint(data, at)
    elif wire == FIXED64:
        size = 8
    elif wire == FIXED32:
        size = 4
    else:
        raise DecodeProtobufError(f"illegal wire type {wire}")
    if size > len(data) - at:
        raise DecodeProtobufError("unexpected end of message")
    return data[at : at + size], at + size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    for offset in range(at, min(at + _MAX_VARINT_SIZE, len(data))):
        byte = data[offset]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, offset + 1
        shift += 7
    is_cut = at + _MAX_VARINT_SIZE > len(data)
    raise DecodeProtobufError("unexpected end of a number" if is_cut else "number overflow")


def _skip_group(data: memoryview, at: int, number: int) -> int:
    """The offset behind a group, whatever is in it."""
    open_groups = [number]
    while open_groups:
        tag, at = _varint(data, at)
        wire = tag & 7
        if wire == START_GROUP:
            if len(open_groups) == MAX_DEPTH:
                raise DecodeProtobufError("groups nest too deep")
            open_groups.append(tag >> 3)
        elif wire == END_GROUP:
            if open_groups.pop() != tag >> 3:
                raise DecodeProtobufError("unexpected end of group")
        else:
            _, at = _read(data, at, wire)
    return at


def signed(value: int, bits: int) -> int:
    """The lower bits of a number as two's complement."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def double(data: memoryview) -> float:
    """Eight bytes as a double."""
    number: float = struct.unpack("<d", data)[0]
    return number


def text(data: memoryview) -> str:
    """Bytes as UTF-8 text."""
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise DecodeProtobufError("invalid UTF-8 in a string") from error
