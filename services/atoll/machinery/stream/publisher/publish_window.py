"""Pipelined publishing into one stream: many messages in flight, each fenced by the sequence it expects.

A lane sends and skips in revision order; acknowledgements come back on one inbox in the same order. A request
a message would cost a round trip each, the client's own asynchronous publish costs a future each; this costs
a row in a deque. Invariant: what is acknowledged is a prefix of what was sent, and the first answer that does
not fit stops everything behind it, since the server refused that too. The expected sequence alone would not
do that: where somebody else wrote one message, our first is refused and our second fits. So each message names
the id of the one before it as well.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from atoll.machinery.stream.connection import ApiError, Connection, Unavailable, Unresponsive

if TYPE_CHECKING:
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

_WRONG_LAST_SEQUENCE = 10071
_WRONG_LAST_ID = 10070
_HEADERS_SIZE = 768
_ID = "Nats-Msg-Id"
_EXPECTED = "Nats-Expected-Last-Sequence"
_EXPECTED_ID = "Nats-Expected-Last-Msg-Id"


class OutOfSequence(Exception):
    """The stream's end is not where this publisher thought: look at it again before going on."""


class WindowLimits(msgspec.Struct, frozen=True):
    """Bounds of what is in flight, and how long an acknowledgement may take."""

    messages: int = 1000
    size_bytes: int = 8 << 20
    stall_s: float = 5.0


class OutgoingMessage(msgspec.Struct, frozen=True):
    """A message to send. `written` is the revision it carries; `id` names it in the stream, unlike any other."""

    subject: str
    payload: bytes
    headers: dict[str, str]
    written: int
    id: str


class AckPosition(msgspec.Struct, frozen=True):
    """All entries up to `revision` are done; the last message is at `sequence` and carries `written`."""

    revision: int
    sequence: int
    written: int


class _PubAck(msgspec.Struct):
    seq: int = 0
    error: dict[str, object] | None = None


class _InFlight:
    __slots__ = ("revision", "sequence", "size", "written")

    def __init__(self, revision: int, written: int, sequence: int, size: int) -> None:
        self.revision, self.written, self.sequence, self.size = revision, written, sequence, size


_decoder = msgspec.json.Decoder(_PubAck)


class PublishWindow:
    """Sends on one connection. Create, `open`, then `send` and `skip`; `failure` completes when it broke."""

    def __init__(self, connection: Connection, limits: WindowLimits, start: AckPosition) -> None:
        self._connection = connection
        self._limits = limits
        self.acked = start
        self.acks = 0
        self._next = start.sequence
        self._last_id = ""
        self._flying: deque[_InFlight] = deque()
        self._flying_bytes = 0
        self._room = asyncio.Event()
        self._subscription: Subscription | None = None
        self._inbox = ""
        self._progress = 0.0
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def open(self) -> None:
        """Listen for acknowledgements. Raises Unavailable."""
        self._connection.on_lost(self.fail)
        self._inbox = self._connection.inbox()
        self._subscription = await self._connection.subscribe(self._inbox, self._on_answer)

    async def close(self) -> None:
        """Stop listening. What is in flight may or may not arrive; the next resume finds out."""
        self.fail(Unavailable("closed"))
        self.failure.exception()
        self._connection.forget(self.fail)
        if self._subscription is not None:
            await self._connection.unsubscribe(self._subscription)

    @property
    def in_flight(self) -> int:
        return len(self._flying)

    async def send(self, message: OutgoingMessage, revision: int) -> None:
        """Send the next message, waiting for room; its acknowledgement means that entries up to `revision`
        are done. Raises what broke the pipeline."""
        size = len(message.payload) + _HEADERS_SIZE
        while self._is_full(size):
            await self._wait_for_progress()
        self.check()
        message.headers[_ID] = message.id
        message.headers[_EXPECTED] = str(self._next)
        if self._last_id:
            message.headers[_EXPECTED_ID] = self._last_id
        self._next += 1
        self._last_id = message.id
        if not self._flying:
            self._progress = time.monotonic()
        self._flying.append(_InFlight(revision, message.written, self._next, size))
        self._flying_bytes += size
        await self._connection.publish(message.subject, message.payload, self._inbox, message.headers)

    def skip(self, revision: int) -> None:
        """An entry that needs no message is done as soon as those before it are."""
        if self._flying:
            self._flying[-1].revision = revision
        else:
            self.acked = AckPosition(revision, self.acked.sequence, self.acked.written)

    async def drain(self) -> None:
        """Wait until everything sent is acknowledged. Raises what broke the pipeline."""
        while self._flying:
            await self._wait_for_progress()
        self.check()

    def _is_full(self, size: int) -> bool:
        if not self._flying:
            return False
        return len(self._flying) >= self._limits.messages or self._flying_bytes + size > self._limits.size_bytes

    def check(self) -> None:
        """Raises what broke the pipeline, also if an acknowledgement is overdue."""
        if self._flying and time.monotonic() - self._progress > self._limits.stall_s:
            self.fail(Unresponsive("no acknowledgement in time"))
        if self.failure.done():
            self.failure.result()

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
        """Break it: whoever waits on it or uses it next gets this error."""
        if not self.failure.done():
            self.failure.set_exception(error)
        self._room.set()

    async def _on_answer(self, message: Msg) -> None:
        if self.failure.done() or not self._flying:
            return
        error = self._judge(message)
        if error is not None:
            self.fail(error)
            return
        sent = self._flying.popleft()
        self._flying_bytes -= sent.size
        self.acked = AckPosition(sent.revision, sent.sequence, sent.written)
        self.acks += 1
        self._progress = time.monotonic()
        self._room.set()

    def _judge(self, message: Msg) -> Exception | None:
        """None for the acknowledgement that the head of the window waits for."""
        if not message.data:
            return Unavailable("nobody keeps the stream")
        try:
            answer = _decoder.decode(message.data)
        except msgspec.DecodeError as error:
            return Unavailable(f"not an acknowledgement: {error}")
        if answer.error is None:
            # A duplicate is acknowledged with the sequence of its first copy, so it does not fit either.
            fits = answer.seq == self._flying[0].sequence
            return None if fits else OutOfSequence(f"got {answer.seq}, expected {self._flying[0].sequence}")
        code = answer.error.get("err_code", 0)
        if code in (_WRONG_LAST_SEQUENCE, _WRONG_LAST_ID):
            return OutOfSequence(str(answer.error.get("description", "")))
        return ApiError(code if isinstance(code, int) else 0, str(answer.error.get("description", "")))
