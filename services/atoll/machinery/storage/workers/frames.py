"""The protocol between API workers and the writer over the Unix socket: length-prefixed MessagePack frames.

`worker_store` sends requests; `submit_server` sends news: answers and commits. `frame_protocol` carries the frames.
Objects cross as the bytes that will be stored. Invariant: an error is decoded to the same class with the same facts.
"""

from __future__ import annotations

import struct
from typing import TypeAlias, TypeVar

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

LENGTH = struct.Struct(">I")
#: Longer frames are refused by both ends; a submit of 3 MiB objects fits 20 of them.
MAX_FRAME_BYTES = 64 << 20


class SubmitRequest(msgspec.Struct, frozen=True, tag=True):
    """A submit. `id` is the worker's own number for it."""

    id: int
    mutations: list[Mutation]
    guards: list[Guard]


class SeekRequest(msgspec.Struct, frozen=True, tag=True):
    """A cluster whose shard the writer's process is to find. `id` is a number like that of a submit."""

    id: int
    cluster: str


class CallRequest(msgspec.Struct, frozen=True, tag=True):
    """What a worker asks of the writer's process beside the store. `id` is a number like that of a submit."""

    id: int
    body: bytes


class Hello(msgspec.Struct, frozen=True, tag=True):
    """The writer's first frame on a connection."""

    identity: StoreIdentity
    last: int
    applied: int = 0


class SubmitFailure(msgspec.Struct, frozen=True):
    """A failed submit, search or call; nothing of it was done. `error` is the class name, the rest are its facts."""

    id: int
    error: str
    key: ObjectKey | None = None
    numbers: tuple[int, ...] = ()
    guard: Guard | None = None
    text: str = ""


class News(msgspec.Struct, frozen=True, tag=True):
    """What happened in the writer since the last one.

    Everything up to revision `last` can be read from the file, and replicas and routes up to the apply count `applied`.
    `results` are durable submits: the worker's numbers and the results.
    """

    last: int
    applied: int
    results: list[tuple[int, list[int]]]
    failures: list[SubmitFailure]


class SeekResult(msgspec.Struct, frozen=True, tag=True):
    """A cluster was sought: the worker's number for it, and the shards that were not read."""

    id: int
    unread: list[str]


class CallResult(msgspec.Struct, frozen=True, tag=True):
    """The answer to a call."""

    id: int
    body: bytes


_Message = TypeVar("_Message")

_encoder = msgspec.msgpack.Encoder()
#: What a worker sends, and what the writer sends.
Request: TypeAlias = "SubmitRequest | SeekRequest | CallRequest"
Answer: TypeAlias = "Hello | News | SeekResult | CallResult"
_requests: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(SubmitRequest | SeekRequest | CallRequest)
_answers: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Hello | News | SeekResult | CallResult)


class InvalidFrame(Exception):
    """A frame is too long or malformed; the connection ends."""


class WriterError(Exception):
    """A submit or search failed in the writer for a reason that is none of the store's errors."""


def pack(message: Request | Answer) -> bytes:
    """Encode a frame. Raise InvalidFrame for one that the other end would refuse."""
    body = _encoder.encode(message)
    if len(body) > MAX_FRAME_BYTES:
        raise InvalidFrame(f"a frame of {len(body)} bytes")
    return LENGTH.pack(len(body)) + body


def decode_request(body: memoryview) -> Request:
    """Decode the body of a worker's frame. Raise InvalidFrame."""
    return _decode(_requests, body)


def decode_answer(body: memoryview) -> Answer:
    """Decode the body of a writer's frame. Raise InvalidFrame."""
    return _decode(_answers, body)


def failure(id: int, error: BaseException) -> SubmitFailure:
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


def _decode(decoder: msgspec.msgpack.Decoder[_Message], body: memoryview) -> _Message:
    try:
        return decoder.decode(body)
    except msgspec.DecodeError as error:
        raise InvalidFrame(str(error)) from error
