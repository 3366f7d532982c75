"""Binary rows of the databases beside `objects`: log entries, versions, counters, gates, replicas, routes.

The writer packs, every reader unpacks; the layout is part of `FORMAT_VERSION`. Invariant: a log entry alone restores
the record that it replaced (its value as stored, with the versions row that describes it).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache

import msgspec

from atoll.machinery.meta.objects import HOLE_SIZE
from atoll.machinery.storage.contract import Flag, Gate, GateState
from atoll.machinery.storage.limits import Limit

_VERSION = struct.Struct(">IBI")
_ENTRY = struct.Struct(">BHQQ")
_COUNTER = struct.Struct(">QQQ")
_GATE = struct.Struct(">BQ")
_REPLICA = struct.Struct(">QQIBH")
_ROUTE = struct.Struct(">Q")
_TOTALS = struct.Struct(">Iqq")
#: Length of what stands for a label pair in front of `labels` keys.
LABEL_SIZE = 16
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
    """The fixed part of a `log` row and its key; cheap to read."""

    operation: int
    key: bytes
    previous: int
    previous_of_type: int


class Counter(msgspec.Struct, frozen=True, gc=False):
    """A `clusters` row."""

    count: int
    size_bytes: int
    last: int


class Totals(msgspec.Struct, frozen=True, gc=False):
    """A `totals` row, of a cluster: its rows in `limits`; its objects, Events aside (-1: not counted); how many it may
    hold (0: any number, -1: as the shard's setting says).
    """

    limits: int
    used: int
    limit: int


NO_TOTALS = Totals(0, -1, -1)


class ReplicaRow(msgspec.Struct, frozen=True, gc=False):
    """A `replicas` row. The CRC covers the value as it is; `labels` are those under which the row is indexed."""

    generation: int
    revision: int
    crc: int
    flags: int
    labels: tuple[bytes, ...]
    value: bytes


def pack_version(version: Version) -> bytes:
    return _VERSION.pack(version.crc, version.flags, version.hole)


#: A `versions` row from and as CRC, flags and hole: the hot path, which calls no function of ours.
pack_version_row = _VERSION.pack
unpack_version_row = _VERSION.unpack


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


#: A `clusters` row from and as the fields of a Counter: the hot path, which calls no function of ours.
pack_counter = _COUNTER.pack
unpack_counter_row = _COUNTER.unpack

#: The last revision of a `clusters` row, as a tuple of one: the hot path, which makes no row of it.
unpack_last = struct.Struct(">16xQ").unpack


def unpack_counter(data: bytes | memoryview) -> Counter:
    return Counter(*_COUNTER.unpack(data))


def pack_gate(gate: Gate) -> bytes:
    return _GATE.pack(gate.state, gate.generation)


@lru_cache(maxsize=1024)
def unpack_gate(data: bytes | memoryview) -> Gate:
    state, generation = _GATE.unpack(data)
    return Gate(_STATES[state], generation)


def pack_totals(totals: Totals) -> bytes:
    return _TOTALS.pack(totals.limits, totals.used, totals.limit)


def unpack_totals(data: bytes) -> Totals:
    return Totals(*_TOTALS.unpack(data))


#: A `limits` row: what one quota says of one kind.
pack_limits: Callable[[tuple[Limit, ...]], bytes] = msgspec.msgpack.Encoder().encode
unpack_limits: Callable[[bytes], tuple[Limit, ...]] = msgspec.msgpack.Decoder(tuple[Limit, ...]).decode


def pack_replica(row: ReplicaRow) -> bytes:
    fixed = _REPLICA.pack(row.generation, row.revision, row.crc, row.flags, len(row.labels))
    return b"".join((fixed, *row.labels, row.value))


def unpack_replica(data: bytes) -> ReplicaRow:
    generation, revision, crc, flags, count = _REPLICA.unpack_from(data)
    begin, end = _REPLICA.size, _REPLICA.size + count * LABEL_SIZE
    labels = tuple(data[at : at + LABEL_SIZE] for at in range(begin, end, LABEL_SIZE))
    return ReplicaRow(generation, revision, crc, flags, labels, data[end:])


def generation_of(data: bytes) -> int:
    """Return the generation of a `replicas` row; cheap to read."""
    generation: int = _ROUTE.unpack_from(data)[0]
    return generation


def pack_route(shard: str, generation: int) -> bytes:
    return _ROUTE.pack(generation) + shard.encode()


def unpack_route(data: bytes) -> tuple[str, int]:
    """Shard and generation."""
    return data[_ROUTE.size :].decode(), _ROUTE.unpack_from(data)[0]


def covered(value: bytes, version: Version) -> bytes:
    """Return the bytes that a CRC covers: sealed bytes as they are, else the value with its hole zeroed."""
    if version.flags & _SEALED:
        return value
    hole = version.hole
    return b"".join((value[:hole], b"0" * HOLE_SIZE, value[hole + HOLE_SIZE :]))
