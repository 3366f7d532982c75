"""Binary rows of the databases beside `objects`: log entries, versions, counters, gates.

The writer packs, every reader unpacks; the layout is part of the format version in `environment`. Invariant:
a log entry alone restores the record before it (its value as stored, with the versions row that describes
it).
"""

from __future__ import annotations

import struct

import msgspec

from atoll.machinery.meta.objects import HOLE_SIZE
from atoll.machinery.storage.contract import Flag, Gate, GateState

_VERSION = struct.Struct(">IBI")
_ENTRY = struct.Struct(">BHQQ")
_COUNTER = struct.Struct(">QQQ")
_GATE = struct.Struct(">BQ")
VERSION_SIZE = _VERSION.size
# Plain integers: every read of an object asks, and arithmetic on an enum costs more than the read of its row.
_SEALED, _DELETED = Flag.SEALED.value, Flag.DELETED.value
_STATES = tuple(GateState)


class Version(msgspec.Struct, frozen=True, gc=False):
    """A `versions` row: CRC-32C of the stored value with its hole zeroed, facts, offset of the hole."""

    crc: int
    flags: int
    hole: int

    @property
    def sealed(self) -> bool:
        return self.flags & _SEALED != 0

    @property
    def deleted(self) -> bool:
        return self.flags & _DELETED != 0


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A `log` row. `before` is the stored value that the write replaced, None for a create."""

    operation: int
    key: bytes
    previous: int
    previous_of_type: int
    before: bytes | None
    before_version: Version | None


class Head(msgspec.Struct, frozen=True, gc=False):
    """The part of a `log` row that says whom it is about; cheap to read."""

    operation: int
    key: bytes
    previous: int
    previous_of_type: int


class Counter(msgspec.Struct, frozen=True, gc=False):
    """A `clusters` row."""

    count: int
    size_bytes: int
    last: int


def pack_version(crc: int, flags: int, hole: int) -> bytes:
    return _VERSION.pack(crc, flags, hole)


def unpack_version(data: bytes | memoryview) -> Version:
    return Version(*_VERSION.unpack(data))


def pack_entry(head: Head, before_version: bytes, before: bytes) -> bytes:
    """Both trailing parts are empty for a create."""
    fixed = _ENTRY.pack(head.operation, len(head.key), head.previous, head.previous_of_type)
    return b"".join((fixed, head.key, before_version, before))


def unpack_head(data: bytes | memoryview) -> Head:
    operation, size, previous, previous_of_type = _ENTRY.unpack_from(data)
    key = bytes(data[_ENTRY.size : _ENTRY.size + size])
    return Head(operation, key, previous, previous_of_type)


def unpack_entry(data: bytes | memoryview) -> Entry:
    head = unpack_head(data)
    rest = _ENTRY.size + len(head.key)
    if len(data) == rest:
        return Entry(head.operation, head.key, head.previous, head.previous_of_type, None, None)
    version = unpack_version(data[rest : rest + VERSION_SIZE])
    before = bytes(data[rest + VERSION_SIZE :])
    return Entry(head.operation, head.key, head.previous, head.previous_of_type, before, version)


def pack_counter(count: int, size_bytes: int, last: int) -> bytes:
    return _COUNTER.pack(count, size_bytes, last)


def unpack_counter(data: bytes | memoryview) -> Counter:
    return Counter(*_COUNTER.unpack(data))


def pack_gate(gate: Gate) -> bytes:
    return _GATE.pack(gate.state, gate.generation)


def unpack_gate(data: bytes | memoryview) -> Gate:
    state, generation = _GATE.unpack(data)
    return Gate(_STATES[state], generation)


def covered(value: bytes, version: Version) -> bytes:
    """The bytes that a CRC covers: sealed bytes as they are, else the value with its hole zeroed."""
    if version.sealed:
        return value
    hole = version.hole
    return b"".join((value[:hole], b"0" * HOLE_SIZE, value[hole + HOLE_SIZE :]))
