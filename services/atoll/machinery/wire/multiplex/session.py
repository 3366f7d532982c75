"""What speaks on a connection that carries streams: received frames go to their streams, frames of all to the socket.

`ClientSession` and `ServerSession` say who opens streams. Invariants: frames of a turn of the loop leave in one write,
one of each stream by turns; while the socket takes nothing, data stays in its streams, which see that it is not sent;
a peer that breaks a rule loses the connection; with the connection every stream is lost.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, cast

import structlog

from atoll.machinery.wire import read_buffer
from atoll.machinery.wire.multiplex.frames import CREDIT, DATA, END, OPEN, BrokenFrame, FrameReader, credit_size
from atoll.machinery.wire.multiplex.stream import StreamTransport

log = structlog.get_logger()

#: Written at a time, before it is looked whether the socket takes more.
_BATCH_BYTES = 64 * 1024


class Session(asyncio.Protocol):
    """One side of such a connection. `last_number` is that of the stream opened last, 0 before the first."""

    _transport: asyncio.Transport

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.streams: dict[int, StreamTransport] = {}
        self.last_number = 0
        self.lost = False
        #: Since when it has carried no stream, by the loop's clock.
        self.idle_since_s = self.loop.time()
        self._reader = FrameReader()
        self._control: list[bytes] = []
        self._queue: deque[StreamTransport] = deque()
        self._is_full = self._is_flushing = False
        self._written_bytes, self._seen_taken, self._stalled_since = 0, -1, 0.0

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        read_buffer.give_back(transport)

    def data_received(self, data: bytes) -> None:
        try:
            for kind, number, payload in self._reader.feed(data):
                if self.lost:
                    return
                self._take(kind, number, payload)
        except BrokenFrame as error:
            log.warning("connection of streams broken", reason=str(error), streams=len(self.streams))
            self.abort()

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._flush_soon()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose(exc or ConnectionResetError("the connection of the stream ended"))

    # For streams

    def extra(self, name: str, default: Any) -> Any:
        """What is known of the connection."""
        return self._transport.get_extra_info(name, default)

    def send(self, frame: bytes) -> None:
        """Send a frame that needs no credit."""
        self._control.append(frame)
        self._flush_soon()

    def has_data(self, stream: StreamTransport) -> None:
        """Take data of a stream when it is its turn."""
        stream.is_queued = True
        self._queue.append(stream)
        self._flush_soon()

    def forget(self, number: int) -> None:
        """A stream is over on this side."""
        self.streams.pop(number, None)
        if not self.streams:
            self.idle_since_s = self.loop.time()
            self.emptied()

    # For the server or the backend

    def check_stall(self, now_s: float, stall_s: float) -> None:
        """Cut the connection if its peer has taken nothing of what waits for `stall_s`. Called by a sweep."""
        unsent = self._transport.get_write_buffer_size()
        taken = self._written_bytes - unsent
        if not unsent or taken != self._seen_taken:
            self._seen_taken, self._stalled_since = taken, now_s
        elif now_s - self._stalled_since >= stall_s:
            log.info("stalled connection of streams cut", streams=len(self.streams), unsent_bytes=unsent)
            self.abort()

    def abort(self) -> None:
        """Cut the connection, and with it all streams."""
        self._transport.abort()
        self._lose(ConnectionResetError("the connection of the stream was cut"))

    def close(self) -> None:
        """Close the connection, which has no stream, after what was written has been sent."""
        self._is_full = False  # What is left are ends of streams.
        self._flush()
        self.lost = True
        self._transport.close()

    # By role

    def opened(self, number: int) -> None:
        """The peer opens a stream. Raises BrokenFrame where it may not."""
        raise BrokenFrame(f"stream {number} opened by the wrong side")

    def emptied(self) -> None:
        """The last stream is over."""

    # Internal

    def _take(self, kind: int, number: int, payload: bytes) -> None:
        if kind == OPEN:
            self.opened(number)
            return
        stream = self.streams.get(number)
        if stream is None:
            if not 0 < number <= self.last_number:
                raise BrokenFrame(f"a frame of stream {number}, which is not open")
            return  # It is over on this side, which the peer did not know yet.
        if kind == DATA:
            stream.receive(payload)
        elif kind == CREDIT:
            stream.receive_credit(credit_size(payload))
        elif kind == END:
            stream.receive_end()
        else:
            stream.lose(ConnectionResetError("the stream was cut"))

    def _flush_soon(self) -> None:
        if not (self._is_flushing or self._is_full or self.lost):
            self._is_flushing = True
            self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Send the frames of this turn; what the socket does not take now waits until it does."""
        self._is_flushing = False
        while (self._control or self._queue) and not (self._is_full or self.lost):
            parts, self._control = self._control, []
            size = 0
            while self._queue and size < _BATCH_BYTES:
                size += self._take_turn(self._queue.popleft(), parts)
            data = b"".join(parts)
            self._written_bytes += len(data)
            self._transport.write(data)

    def _take_turn(self, stream: StreamTransport, parts: list[bytes]) -> int:
        """Add the next frame of a stream, which comes behind the others if it has more; return the bytes."""
        stream.is_queued = False
        found = stream.next_frame()
        parts.extend(found)
        if stream.can_send and not stream.is_queued:
            self.has_data(stream)
        return sum(map(len, found))

    def _lose(self, error: Exception) -> None:
        if not self.lost:
            self.lost = True
            self._control, self._queue = [], deque()
            for stream in list(self.streams.values()):
                stream.lose(error)
