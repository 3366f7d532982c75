"""Windowed publishing into one stream: many messages in flight, each fenced by the sequence it expects.

A stream writer sends and skips in revision order; acknowledgements return on one inbox in the same order. One request
for each message would cost a round trip, and the client's own asynchronous publish a future; this costs a row in a
deque. Only the last message of those that are sent together asks for an answer, which stands for all: the server
refuses what follows a refused one. Until the first acknowledgement each message asks, so that a stream that takes
nothing says why. Invariant: the acknowledged messages are a prefix of those sent, and the first
answer that does not fit stops everything after it. The expected sequence alone does not ensure that: if another writer
adds one message, our first is refused and our second fits. So each message also names the id of the one before.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from atoll.machinery.stream.connection import ApiError, Connection, Unavailable, Unresponsive, encode_publish

if TYPE_CHECKING:
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

_WRONG_LAST_SEQUENCE = 10071
_WRONG_LAST_ID = 10070
_HEADERS_SIZE = 1280
_ID = "Nats-Msg-Id"
_EXPECTED = "Nats-Expected-Last-Sequence"
_EXPECTED_ID = "Nats-Expected-Last-Msg-Id"


class OutOfSequence(Exception):
    """The stream's end differs from the expected one: read it again before going on."""


class WindowLimits(msgspec.Struct, frozen=True):
    """Bounds of what is in flight, how long an acknowledgement may take, and after how long without one the end of the
    stream is read."""

    messages: int = 1000
    size_bytes: int = 8 << 20
    stall_s: float = 5.0
    end_check_s: float = 3.0


class OutgoingMessage(msgspec.Struct, frozen=True):
    """A message to send, with its headers as lines. `written` is the revision it carries; `id` is unique in the stream.
    `statement` is what its signature is over."""

    subject: str
    payload: bytes
    headers: list[str]
    written: int
    id: str
    statement: str = ""


class AckPosition(msgspec.Struct, frozen=True):
    """All entries up to `revision` are done; the last message is at `sequence` and carries `written`."""

    revision: int
    sequence: int
    written: int


class _PubAck(msgspec.Struct):
    seq: int = 0
    error: dict[str, object] | None = None


class _InFlight:
    """Messages that were sent together, and are acknowledged together. `written` and `sequence` are the last one's."""

    __slots__ = ("messages", "revision", "sequence", "size", "written")

    def __init__(self, revision: int, written: int, sequence: int, messages: int, size: int) -> None:
        self.revision, self.written, self.sequence = revision, written, sequence
        self.messages, self.size = messages, size


_decoder = msgspec.json.Decoder(_PubAck)


class PublishWindow:
    """Sends on one connection. Create, `open`, then `send` and `skip`; the next call raises what breaks it."""

    def __init__(self, connection: Connection, limits: WindowLimits, start: AckPosition) -> None:
        self._connection = connection
        self._limits = limits
        self.acked = start
        self.acks = 0
        self._next = start.sequence
        #: Entries up to here are done once everything in flight is acknowledged.
        self._done = start.revision
        self._last_id = ""
        self._in_flight: deque[_InFlight] = deque()
        self.in_flight = 0
        self._in_flight_bytes = 0
        self._room = asyncio.Event()
        self._subscription: Subscription | None = None
        self._inbox = ""
        self._progress = 0.0
        self._failure: Exception | None = None
        self._beside: asyncio.Future[None] | None = None

    async def open(self) -> None:
        """Listen for acknowledgements. Raises Unavailable."""
        self._connection.on_lost(self.fail)
        self._inbox = self._connection.inbox()
        self._subscription = await self._connection.subscribe(self._inbox, self._on_answer)

    async def close(self) -> None:
        """Stop listening. Messages in flight may or may not arrive; the next resume finds out."""
        self.fail(Unavailable("closed"))
        self._connection.forget(self.fail)
        if self._subscription is not None:
            await self._connection.unsubscribe(self._subscription)

    @property
    def next_sequence(self) -> int:
        """The sequence that the next message takes in the stream."""
        return self._next + 1

    async def send(self, messages: Sequence[OutgoingMessage], revision: int) -> None:
        """Send the next messages, waiting for room; their acknowledgement means that entries up to `revision` are done.
        Raises what broke the window."""
        size = sum([len(message.payload) for message in messages]) + len(messages) * _HEADERS_SIZE
        while self._is_full(len(messages), size):
            await self._wait_for_progress()
        self.check()
        if not self._in_flight:
            self._progress = time.monotonic()
        if self.acks:
            frames = self._frames(messages, revision)
        else:
            frames = [frame for message in messages for frame in self._frames([message], self._done)]
            self._in_flight[-1].revision = revision
        self._done = revision
        await self._connection.send(frames)

    def _frames(self, messages: Sequence[OutgoingMessage], revision: int) -> list[bytes]:
        """Note messages that are acknowledged together, and encode them; the last asks for the answer."""
        last, size = messages[-1], sum([len(message.payload) for message in messages]) + len(messages) * _HEADERS_SIZE
        frames = [self._frame(message, self._inbox if message is last else "") for message in messages]
        self._in_flight.append(_InFlight(revision, last.written, self._next, len(messages), size))
        self.in_flight += len(messages)
        self._in_flight_bytes += size
        return frames

    def _frame(self, message: OutgoingMessage, reply: str) -> bytes:
        headers = [*message.headers, f"{_ID}: {message.id}", f"{_EXPECTED}: {self._next}"]
        if self._last_id:
            headers.append(f"{_EXPECTED_ID}: {self._last_id}")
        self._next += 1
        self._last_id = message.id
        return encode_publish(message.subject, message.payload, reply, headers)

    def skip(self, revision: int) -> None:
        """Mark an entry that needs no message: it is done as soon as those before it are."""
        self._done = revision
        if self._in_flight:
            self._in_flight[-1].revision = revision
        else:
            self.acked = AckPosition(revision, self.acked.sequence, self.acked.written)

    async def drain(self) -> None:
        """Wait until everything sent is acknowledged. Raises what broke the window."""
        while self._in_flight:
            await self._wait_for_progress()
        self.check()

    def _is_full(self, messages: int, size: int) -> bool:
        if not self._in_flight:
            return False
        limits = self._limits
        return self.in_flight + messages > limits.messages or self._in_flight_bytes + size > limits.size_bytes

    def check(self) -> None:
        """Raises what broke the window, also if an acknowledgement is overdue."""
        if self._in_flight and time.monotonic() - self._progress > self._limits.stall_s:
            self.fail(Unresponsive("no acknowledgement in time"))
        if self._failure is not None:
            raise self._failure

    async def wait_beside(self, other: asyncio.Future[None], limit_s: float | None) -> None:
        """Wait for a future, but no longer than the limit; it ends with this. Raises what broke the
        window."""
        self._beside = other
        timer = None if limit_s is None else asyncio.get_running_loop().call_later(limit_s, _complete, other)
        try:
            self.check()
            await other
        finally:
            self._beside = None
            other.cancel()
            if timer is not None:
                timer.cancel()
        self.check()

    async def _wait_for_progress(self) -> None:
        self.check()
        self._room.clear()
        try:
            async with asyncio.timeout(self._limits.stall_s):
                await self._room.wait()
        except TimeoutError:
            self.fail(Unresponsive("no acknowledgement in time"))
        self.check()

    def fail(self, error: Exception) -> None:
        """Break it: the next call, and every waiting one, raises this error."""
        if self._failure is None:
            self._failure = error
        self._room.set()
        if self._beside is not None:
            _complete(self._beside)

    async def _on_answer(self, message: Msg) -> None:
        if self._failure is not None or not self._in_flight:
            return
        error = self._check_answer(message)
        if error is not None:
            self.fail(error)
            return
        sent = self._in_flight.popleft()
        self._in_flight_bytes -= sent.size
        self.in_flight -= sent.messages
        self.acked = AckPosition(sent.revision, sent.sequence, sent.written)
        self.acks += sent.messages
        self._progress = time.monotonic()
        self._room.set()

    def _check_answer(self, message: Msg) -> Exception | None:
        """None for the acknowledgement of the first message in flight, else the error."""
        if not message.data:
            return Unavailable("no stream listens")
        try:
            answer = _decoder.decode(message.data)
        except msgspec.DecodeError as error:
            return Unavailable(f"not an acknowledgement: {error}")
        if answer.error is None:
            # A duplicate is acknowledged with the sequence of its first copy, so it does not fit either.
            fits = answer.seq == self._in_flight[0].sequence
            return None if fits else OutOfSequence(f"got {answer.seq}, expected {self._in_flight[0].sequence}")
        code = answer.error.get("err_code", 0)
        if code in (_WRONG_LAST_SEQUENCE, _WRONG_LAST_ID):
            return OutOfSequence(str(answer.error.get("description", "")))
        return ApiError(code if isinstance(code, int) else 0, str(answer.error.get("description", "")))


def _complete(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
