"""The proxy's side of one connection to a backend: a request out, an answer in, and again.

Made and kept by `backend`; `relay` speaks through it. Answers are parsed only as far as to know where they end: their
bodies go on as they came. Invariant: it is `reusable` only when the last answer was whole, its framing clear, both
sides keep it alive, and nothing came unasked.
"""

from __future__ import annotations

import asyncio
import math
import select
import socket
from typing import Protocol, cast

import httptools
import msgspec

#: An answer's head, and how many interim ones (1xx) may precede it.
MAX_HEAD_BYTES, MAX_INTERIM = 64 * 1024, 16
_END = b"\r\n\r\n"
_IDLE, _HEAD, _BODY, _SPLICED = 0, 1, 2, 3
NEVER = math.inf


class BadBackendResponse(Exception):
    """What came back is not HTTP, or not what was asked for."""


class ResponseHead(msgspec.Struct, frozen=True):
    """An answer's head: status line without its end, headers as they came; how its body ends."""

    first: bytes
    status: int
    headers: list[tuple[bytes, bytes]]
    chunked: bool
    #: The end of the connection ends the body.
    until_close: bool


class ResponseSink(Protocol):
    """Who sent the request. Called from the event loop; after `finished`, `lost` or `BackendConnection.leave` never again."""

    upgrades: bool

    def interim(self, head: ResponseHead) -> None:
        """A 1xx answer, which is whole."""

    def answered(self, head: ResponseHead, rest: bytes) -> None:
        """The head of the answer, with what of its body came along."""

    def more(self, data: bytes) -> None:
        """More of the body, or of what is spoken after an upgrade."""

    def finished(self) -> None:
        """The answer is whole."""

    def lost(self, error: Exception, *, begun: bool) -> None:
        """There will be no (more) answer; `begun` if any byte of it had come."""

    def room(self) -> None:
        """The link takes more again."""


class BackendConnection(asyncio.Protocol):
    """One connection to a backend."""

    __slots__ = (
        "_buffer",
        "_chunked",
        "_ended",
        "_head_only",
        "_headers",
        "_interim",
        "_keeps",
        "_parser",
        "_phase",
        "_reading_paused",
        "_seen_taken",
        "_stalled_since",
        "_taker",
        "_transport",
        "_until_close",
        "_written_bytes",
        "between_chunks",
        "closed",
        "deadline_s",
        "full",
        "idle_since_s",
        "used",
    )

    _transport: asyncio.Transport

    def __init__(self) -> None:
        self.closed = False
        #: A request was answered on it already.
        self.used = False
        #: The transport holds more than it should.
        self.full = False
        self.idle_since_s = 0.0
        #: When whoever waits for a head has waited enough.
        self.deadline_s = NEVER
        #: What of a chunked body came ends with a chunk.
        self.between_chunks = False
        self._taker: ResponseSink | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._phase = _IDLE
        self._buffer = b""
        self._reading_paused = False
        self._head_only = False
        self._interim = 0
        self._written_bytes = self._seen_taken = 0
        self._stalled_since = 0.0

    @property
    def reusable(self) -> bool:
        return not self.closed and self._taker is None and not self._transport.is_closing()

    def still_quiet(self) -> bool:
        """Nothing waits in the socket of this idle link: a byte or an end there, which the loop has not seen yet, means
        that the backend closed it, and what is sent now would be lost with its outcome unknown."""
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not poll.poll(0)

    def begin(self, taker: ResponseSink, *, head_only: bool) -> None:
        """From now on what comes is for `taker`; `head_only` for HEAD, whose body never comes."""
        self._taker = taker
        self._head_only = head_only
        self._phase = _HEAD
        self._interim = 0
        # The next look finds that something was taken, and counts from there.
        self._seen_taken = -1

    def write(self, data: bytes) -> None:
        if not self.closed:
            self._written_bytes += len(data)
            self._transport.write(data)

    def pause(self, pause: bool) -> None:
        """Read no more of the answer for now, or go on."""
        if pause == self._reading_paused or self.closed:
            return
        self._reading_paused = pause
        if pause:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def leave(self) -> None:
        """Nobody waits for the rest: close at once."""
        self._taker = None
        self.abort()

    def abort(self) -> None:
        """Close at once."""
        if not self.closed:
            self.closed = True
            self._transport.abort()

    def close(self) -> None:
        """Close behind what was written."""
        self._taker = None
        if not self.closed:
            self.closed = True
            self._transport.close()

    def check(self, now_s: float, stall_s: float) -> None:
        """End a wait that is over. Called by the sweep."""
        if self.closed or self._taker is None:
            return
        if now_s >= self.deadline_s:
            self._fail(TimeoutError("no answer in time"))
            return
        unsent = self._transport.get_write_buffer_size()
        taken = self._written_bytes - unsent
        if not unsent or taken > self._seen_taken:
            self._stalled_since = now_s
        elif now_s - self._stalled_since >= stall_s:
            self._fail(TimeoutError("the backend takes nothing"))
        self._seen_taken = taken

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)

    def data_received(self, data: bytes) -> None:
        taker = self._taker
        if taker is None:
            self.abort()  # Nobody asked: whatever this is, the next answer could be taken for it.
        elif self._phase == _SPLICED:
            taker.more(data)
        elif self._phase == _HEAD:
            self._take_heads(taker, data)
        elif self._parsed(data):
            taker.more(data)
            self._end_if_whole()

    def pause_writing(self) -> None:
        self.full = True

    def resume_writing(self) -> None:
        self.full = False
        if self._taker is not None:
            self._taker.room()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        taker, self._taker = self._taker, None
        if taker is None:
            return
        if exc is None and (self._phase == _SPLICED or (self._phase == _BODY and self._until_close)):
            taker.finished()
        else:
            begun = self._phase != _HEAD or bool(self._buffer) or self._interim > 0
            taker.lost(exc or ConnectionResetError("closed by the backend"), begun=begun)

    # Callbacks of httptools

    def on_message_begin(self) -> None:
        if self._phase != _HEAD:
            raise BadBackendResponse("more than one answer")
        self._ended = False
        self._headers: list[tuple[bytes, bytes]] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._phase == _HEAD:
            self._headers.append((name, value))  # A trailer is none, and goes on with the body.

    def on_headers_complete(self) -> None:
        self._keeps = self._parser.should_keep_alive()
        self._phase = _BODY

    def on_chunk_header(self) -> None:
        self.between_chunks = False

    def on_chunk_complete(self) -> None:
        self.between_chunks = True

    def on_message_complete(self) -> None:
        self._ended = True

    # Inside

    def _take_heads(self, taker: ResponseSink, data: bytes) -> None:
        while self._phase == _HEAD:
            data = self._buffer + data if self._buffer else data
            end = data.find(_END)
            if end < 0 or end > MAX_HEAD_BYTES:
                self._buffer = data
                if len(data) > MAX_HEAD_BYTES:
                    self._fail(BadBackendResponse("the head of the answer is too large"))
                return
            self._buffer = b""
            head = self._head(data[: end + 4])
            data = data[end + 4 :]
            if head is None:
                return
            if head.status == 101 or head.status >= 200:
                self._begin_body(taker, head, data)
                return
            self._phase = _HEAD
            self._interim += 1
            if self._interim > MAX_INTERIM:
                self._fail(BadBackendResponse("too many interim answers"))
                return
            taker.interim(head)
            if not data:
                return

    def _head(self, data: bytes) -> ResponseHead | None:
        """The head that `data` is; None if it is none, of which the taker was told."""
        upgraded = False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            upgraded = True
        except (httptools.HttpParserError, httptools.HttpParserCallbackError) as error:
            self._fail(BadBackendResponse(f"malformed answer: {error}"))
            return None
        if self._phase != _BODY:
            self._fail(BadBackendResponse("malformed head of an answer"))
            return None
        status: int = self._parser.get_status_code()
        if (status == 101) != (upgraded and self._taker is not None and self._taker.upgrades):
            self._fail(BadBackendResponse("the backend changed the protocol unasked"))
            return None
        names = {name.lower() for name, _ in self._headers}
        chunked = b"transfer-encoding" in names
        framed = chunked or b"content-length" in names
        self._until_close = not (framed or status < 200 or status in (204, 304) or self._head_only)
        return ResponseHead(data[: data.index(b"\r\n")], status, self._headers, chunked, self._until_close)

    def _begin_body(self, taker: ResponseSink, head: ResponseHead, rest: bytes) -> None:
        self.deadline_s = NEVER
        self.between_chunks = head.chunked
        if head.status == 101:
            self._phase = _SPLICED
            taker.answered(head, rest)
            return
        if self._head_only:
            # The parser expects the body that Content-Length announces; a new one does not.
            self._parser = httptools.HttpResponseParser(self)
            self._ended = True
            if rest:
                self._fail(BadBackendResponse("a body that nobody asked for"))
                return
        elif rest and not self._parsed(rest):
            return
        taker.answered(head, rest)
        self._end_if_whole()

    def _parsed(self, data: bytes) -> bool:
        """Whether `data` goes on with the answer as its framing said; the taker is told if it does not."""
        if self._ended:
            self._fail(BadBackendResponse("more than one answer"))
            return False
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserCallbackError, httptools.HttpParserUpgrade) as error:
            self._fail(BadBackendResponse(f"malformed answer: {error}"))
            return False
        return True

    def _end_if_whole(self) -> None:
        taker = self._taker
        if taker is None or not self._ended or self._phase != _BODY:
            return
        self._taker = None
        self._phase = _IDLE
        self.used = True
        self.pause(False)
        if not self._keeps:
            # Not `close`: what is left of a request that was refused early nobody will read any more.
            self.abort()
        taker.finished()

    def _fail(self, error: Exception) -> None:
        taker, self._taker = self._taker, None
        begun = self._phase != _HEAD or bool(self._buffer) or self._interim > 0
        self.abort()
        if taker is not None:
            taker.lost(error, begun=begun)
