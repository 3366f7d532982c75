"""One stream as a transport: what `Connection` and `BackendConnection` write and read, as over a socket of their own.

A `Session` makes one for each stream, hands it the frames of the peer and takes its data in turn with the other
streams. Invariants: no more is sent than the peer gave credit for, and credit is given only for bytes that the protocol
took, so a reader that stops holds its own stream alone; `connection_lost` is called once, last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

import structlog

from atoll.machinery.wire.multiplex import frames
from atoll.machinery.wire.multiplex.frames import DATA, END, PAYLOAD_BYTES, RESET, WINDOW_BYTES, BrokenFrame

log = structlog.get_logger()

#: Bytes that wait to be sent, above which the protocol is paused, and below which it goes on.
HIGH_BYTES, LOW_BYTES = 64 * 1024, 16 * 1024


class Carrier(Protocol):
    """The session, as its streams see it."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    def extra(self, name: str, default: Any) -> Any:
        """What is known of the connection that carries the streams."""

    def send(self, frame: bytes) -> None:
        """Send a frame that needs no credit, with the others of this turn of the loop."""

    def has_data(self, stream: StreamTransport) -> None:
        """Take data of the stream when it is its turn."""

    def forget(self, number: int) -> None:
        """The stream is over on this side."""


class StreamTransport(asyncio.Transport):
    """The transport of one stream."""

    __slots__ = (
        "_carrier",
        "_credit",
        "_held",
        "_is_closing",
        "_is_full",
        "_is_over",
        "_is_paused",
        "_peer_ended",
        "_protocol",
        "_room",
        "_taken",
        "_unsent",
        "is_queued",
        "number",
    )

    def __init__(self, carrier: Carrier, number: int, protocol: asyncio.Protocol) -> None:
        self._carrier, self.number, self._protocol = carrier, number, protocol
        #: Bytes that may be sent, and that the peer may send; of these the ones taken since it was last told.
        self._credit, self._room, self._taken = WINDOW_BYTES, WINDOW_BYTES, 0
        #: What waits for credit or its turn, and what the protocol does not read yet.
        self._unsent: bytearray | None = None
        self._held: list[bytes] | None = None
        self._is_full = self._is_paused = self._is_closing = self._is_over = self._peer_ended = False
        #: The session has it in its queue.
        self.is_queued = False

    # asyncio.Transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """As for the connection that carries the stream, but `socket`, which is not the stream's."""
        return default if name == "socket" else self._carrier.extra(name, default)

    def is_closing(self) -> bool:
        return self._is_closing

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing or not data:
            return
        if self._unsent is None:
            self._unsent = bytearray(data)
        else:
            self._unsent += data
        if len(self._unsent) > HIGH_BYTES and not self._is_full:
            self._is_full = True
            self._call(self._protocol.pause_writing)
        self._queue()

    def get_write_buffer_size(self) -> int:
        return len(self._unsent) if self._unsent is not None else 0

    def is_reading(self) -> bool:
        return not self._is_paused

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._carrier.loop.call_soon(self._go_on)

    def close(self) -> None:
        """End the stream once what was written is sent."""
        if not self._is_closing:
            self._is_closing = True
            if self._unsent is None:
                self._carrier.send(frames.head(END, self.number))
                self._end()

    def abort(self) -> None:
        """End the stream now: the peer sees a connection that was cut."""
        if not self._is_over:
            self._carrier.send(frames.head(RESET, self.number))
            self._end()

    # For the session

    def begin(self) -> None:
        """Hand the transport to its protocol."""
        self._call(self._protocol.connection_made, self)

    def next_frame(self) -> tuple[bytes, ...]:
        """The parts of the next frame of data, with the end of a closed stream behind its last; empty without data."""
        unsent = self._unsent
        if unsent is None:
            return ()
        size = min(len(unsent), self._credit, PAYLOAD_BYTES)
        self._credit -= size
        found: tuple[bytes, ...] = frames.head(DATA, self.number, size), bytes(memoryview(unsent)[:size])
        if size < len(unsent):
            del unsent[:size]
        else:
            self._unsent = None
            if self._is_closing:
                found = *found, frames.head(END, self.number)
                self._end()
        if self._is_full and self.get_write_buffer_size() <= LOW_BYTES:
            self._is_full = False
            self._call(self._protocol.resume_writing)
        return found

    @property
    def can_send(self) -> bool:
        """It has data and credit."""
        return self._unsent is not None and self._credit > 0

    def receive(self, data: bytes) -> None:
        """Data of the peer. Raises BrokenFrame beyond the credit that it has."""
        self._room -= len(data)
        if self._room < 0 or self._peer_ended:
            raise BrokenFrame("data beyond the credit or the end of a stream")
        if self._is_paused or self._held:
            self._held = self._held or []
            self._held.append(data)
        else:
            self._deliver(data)

    def receive_credit(self, size: int) -> None:
        """The peer takes `size` more bytes. Raises BrokenFrame for more than it was sent."""
        self._credit += size
        if self._credit > WINDOW_BYTES:
            raise BrokenFrame("credit for bytes that were not sent")
        self._queue()

    def receive_end(self) -> None:
        """The peer has ended the stream: it is over once the protocol has read all."""
        self._peer_ended = True
        if not self._held or self._is_closing:
            self.lose(None)

    def lose(self, error: Exception | None) -> None:
        """The stream is over, by the peer or with its connection."""
        if not self._is_over:
            self._forget()
            self._tear_down(error)

    # Internal

    def _queue(self) -> None:
        if self.can_send and not self.is_queued:
            self._carrier.has_data(self)

    def _end(self) -> None:
        """This side is done: what the peer sends from now on is dropped."""
        self._forget()
        self._carrier.loop.call_soon(self._tear_down, None)

    def _forget(self) -> None:
        self._is_over = self._is_closing = True
        self._unsent = self._held = None
        self._carrier.forget(self.number)

    def _tear_down(self, error: Exception | None) -> None:
        protocol = self._protocol
        # The two refer to each other: in a cycle they would wait for the collector.
        del self._protocol
        self._call(protocol.connection_lost, error)

    def _deliver(self, data: bytes) -> None:
        self._taken += len(data)
        if self._taken >= WINDOW_BYTES // 2:
            self._carrier.send(frames.credit(self.number, self._taken))
            self._room += self._taken
            self._taken = 0
        # Of what arrives behind its own end a protocol hears nothing.
        if not self._is_closing:
            self._call(self._protocol.data_received, data)

    def _go_on(self) -> None:
        """Deliver what arrived while the protocol did not read."""
        while self._held and not self._is_paused:
            self._deliver(self._held.pop(0))
        if self._peer_ended and not self._held:
            self.lose(None)

    def _call(self, callback: Callable[..., None], *args: Any) -> None:
        """Call the protocol; what it raises ends its stream, and no other."""
        try:
            callback(*args)
        except Exception:
            log.exception("stream failed")
            self.abort()
