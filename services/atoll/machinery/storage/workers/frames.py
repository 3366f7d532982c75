"""The protocol between API workers and the writer over the Unix socket: length-prefixed MessagePack frames.

`worker_store` sends requests; `submit_server` answers and announces commits. Objects cross as the bytes that will be
stored. Invariant: an error is decoded to the same class with the same facts.
"""

from __future__ import annotations

import asyncio
import struct
from typing import TypeVar

import msgspec

from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.storage.contract import (
    CorruptRecord,
    Guard,
    GuardFailed,
    Mutation,
    ObjectExists,
    ObjectMissing,
    RevisionCompacted,
    RevisionConflict,
    StoreFull,
    StoreIdentity,
)

_LENGTH = struct.Struct(">I")
#: Longer frames are refused by both ends; a submit of 3 MiB objects fits 20 of them.
MAX_FRAME_BYTES = 64 << 20


class SubmitRequest(msgspec.Struct, frozen=True, tag=True):
    """A submit. `id` is the worker's own number for it."""

    id: int
    mutations: list[Mutation]
    guards: list[Guard]


class Hello(msgspec.Struct, frozen=True, tag=True):
    """The writer's first frame on a connection."""

    identity: StoreIdentity
    last: int
    applied: int = 0


class CommitNotice(msgspec.Struct, frozen=True, tag=True):
    """Everything up to this revision can be read from the file."""

    last: int


class ReplicaNotice(msgspec.Struct, frozen=True, tag=True):
    """Replicas and routes up to this apply count can be read from the file."""

    applied: int


class SubmitResults(msgspec.Struct, frozen=True, tag=True):
    """A submit that is durable."""

    id: int
    results: list[int]


class SubmitFailure(msgspec.Struct, frozen=True, tag=True):
    """A failed submit; nothing of it was done. `error` is the class name, the rest are its facts."""

    id: int
    error: str
    key: ObjectKey | None = None
    numbers: tuple[int, ...] = ()
    guard: Guard | None = None
    text: str = ""


Answer = Hello | CommitNotice | ReplicaNotice | SubmitResults | SubmitFailure
_Message = TypeVar("_Message")

_encoder = msgspec.msgpack.Encoder()
_requests = msgspec.msgpack.Decoder(SubmitRequest)
_answers: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)


class InvalidFrame(Exception):
    """A frame is too long or malformed; the connection ends."""


class WriterError(Exception):
    """A submit failed in the writer for a reason that is none of the store's errors."""


def pack(message: SubmitRequest | Answer) -> bytes:
    """Encode a frame. Raise InvalidFrame for one that the other end would refuse."""
    body = _encoder.encode(message)
    if len(body) > MAX_FRAME_BYTES:
        raise InvalidFrame(f"a frame of {len(body)} bytes")
    return _LENGTH.pack(len(body)) + body


async def read_request(reader: asyncio.StreamReader) -> SubmitRequest:
    """Read the next request. Raise InvalidFrame, or asyncio.IncompleteReadError at the end."""
    return _decode(_requests, await _read(reader))


async def read_answer(reader: asyncio.StreamReader) -> Answer:
    """Read the next answer. Raise InvalidFrame, or asyncio.IncompleteReadError at the end."""
    return _decode(_answers, await _read(reader))


def failure(id: int, error: Exception) -> SubmitFailure:
    """Encode an error as a frame."""
    name = type(error).__name__
    match error:
        case ObjectExists():
            return SubmitFailure(id, name, error.key, (error.revision,))
        case ObjectMissing():
            return SubmitFailure(id, name, error.key)
        case RevisionConflict():
            return SubmitFailure(id, name, error.key, (error.expected, error.actual))
        case GuardFailed():
            return SubmitFailure(id, name, guard=error.guard)
        case RevisionCompacted():
            return SubmitFailure(id, name, numbers=(error.revision, error.oldest))
        case CorruptRecord():
            return SubmitFailure(id, name, error.key, text=error.reason)
        case _:
            return SubmitFailure(id, name, text=str(error))


def error_of(failed: SubmitFailure) -> Exception:
    """Decode the error of a frame."""
    if failed.error == GuardFailed.__name__ and failed.guard is not None:
        return GuardFailed(failed.guard)
    if failed.error == RevisionCompacted.__name__:
        return RevisionCompacted(*failed.numbers)
    if failed.error == StoreFull.__name__:
        return StoreFull(failed.text)
    if failed.key is None:
        return WriterError(f"{failed.error}: {failed.text}")
    if failed.error == CorruptRecord.__name__:
        return CorruptRecord(failed.key, failed.text)
    if failed.error == ObjectExists.__name__:
        return ObjectExists(failed.key, *failed.numbers)
    if failed.error == RevisionConflict.__name__:
        return RevisionConflict(failed.key, *failed.numbers)
    return ObjectMissing(failed.key)


async def _read(reader: asyncio.StreamReader) -> bytes:
    (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if size > MAX_FRAME_BYTES:
        raise InvalidFrame(f"a frame of {size} bytes")
    return await reader.readexactly(size)


def _decode(decoder: msgspec.msgpack.Decoder[_Message], body: bytes) -> _Message:
    try:
        return decoder.decode(body)
    except msgspec.DecodeError as error:
        raise InvalidFrame(str(error)) from error
