"""The proxy's side of one connection to a backend: a request out, a response in, and again.

Made and pooled by `backend`; `relay` sends and receives through it. Responses are parsed only as far as needed to know
where they end: their bodies go on as they arrived, except on a `ReframingConnection`. A whole, plain response goes on
unchanged, without llhttp. Invariant: it is `reusable` only when the last response was complete, its framing clear, both
sides keep it alive, and nothing arrived unrequested.
"""

from __future__ import annotations

import asyncio
import math
import re
import socket
from typing import Protocol, cast

import httptools
import msgspec

from atoll.machinery.wire import read_buffer
from atoll.machinery.wire.idle_pool import PooledConnection

#: Bounds of a response's head, and of the number of interim responses (1xx) before it.
MAX_HEAD_BYTES, MAX_INTERIM = 64 * 1024, 16
_END = b"\r\n\r\n"
#: Headers of responses that mean the same on both sides, as they are written on both.
_FIELDS = (
    rb"(?:(?!(?i:connection|content-length|keep-alive|proxy-|te:|trailer|transfer-encoding|upgrade))"
    rb"[A-Za-z0-9-]++: [!-~][ -~]*+\r\n)*+"
)
#: The head of a response that can go on unchanged: one Content-Length, nothing about the connection or the framing.
_PLAIN = re.compile(
    rb"HTTP/1\.1 ((?!204|304)[2-5][0-9][0-9]) [ -~]*+\r\n%s(?i:content-length): ([0-9]{1,7})\r\n%s\r\n"
    % (_FIELDS, _FIELDS)
)
_IDLE, _HEAD, _BODY, _UPGRADED = 0, 1, 2, 3
NEVER = math.inf


class BadBackendResponse(Exception):
    """The response is not HTTP, or not one to the request that was sent."""


class ResponseHead(msgspec.Struct, frozen=True):
    """The head of a response: its status line without the line end, and headers as they arrived."""

    first: bytes
    status: int
    headers: list[tuple[bytes, bytes]]
    chunked: bool
    #: The end of the connection ends the body.
    until_close: bool


class ResponseSink(Protocol):
    """The receiver of a response. Called from the event loop; not after an end (`whole_response`, `response_end`,
    `response_lost`) or `leave`."""

    upgrades: bool

    def interim(self, head: ResponseHead) -> None:
        """A complete 1xx response."""

    def response_head(self, head: ResponseHead, data: bytes) -> None:
        """The head of the response, with the part of its body that arrived with it."""

    def passes_whole(self) -> bool:
        """Whether `whole_response` may be called."""

    def whole_response(self, status: int, data: bytes) -> None:
        """A complete response that can go on unchanged; nothing follows, not `response_end` either."""

    def response_data(self, data: bytes) -> None:
        """More of the body, or of the protocol after an upgrade."""

    def response_end(self) -> None:
        """The response is complete."""

    def response_lost(self, error: Exception, *, begun: bool) -> None:
        """The response will not be completed; `begun` if any byte of it arrived."""

    def backend_writable(self) -> None:
        """The connection takes more again."""


class BackendConnection(PooledConnection):
    """One connection to a backend that the operator trusts."""

    #: Bodies are handed on without their chunk framing.
    reframes = False

    __slots__ = (
        "_active",
        "_active_s",
        "_buffer",
        "_content",
        "_ended",
        "_gave_back",
        "_head_only",
        "_headers",
        "_interim",
        "_keeps",
        "_parser",
        "_phase",
        "_reading_paused",
        "_seen_taken",
        "_sink",
        "_stalled_since",
        "_until_close",
        "_written_bytes",
        "between_chunks",
        "deadline_s",
        "endless",
        "full",
        "is_stream",
    )

    def __init__(self) -> None:
        super().__init__()
        #: The transport holds more than its high-water mark.
        self.full = False
        #: When the head of the response must have arrived.
        self.deadline_s = NEVER
        #: The part of a chunked body that arrived ends with a complete chunk.
        self.between_chunks = False
        self._sink: ResponseSink | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._phase = _IDLE
        self._buffer = b""
        self._reading_paused = False
        self._head_only = False
        self._interim = 0
        self._written_bytes = self._seen_taken = 0
        self._stalled_since = 0.0
        self.endless = False
        #: It is a stream of a connection that has others, and ends with its response.
        self.is_stream = False
        self._active, self._active_s = True, 0.0
        #: Its read buffer was given back since something came.
        self._gave_back = True
        #: Parsed content that was not handed on yet; None where bodies go on as they arrived.
        self._content: list[bytes] | None = None

    @property
    def reusable(self) -> bool:
        return not self.closed and self._sink is None and not self._transport.is_closing()

    def begin(self, sink: ResponseSink, *, head_only: bool, endless: bool) -> None:
        """Give the next response to `sink`; `head_only` for HEAD, whose response has no body, `endless` for a watch."""
        self._sink = sink
        self.endless = endless
        self._head_only = head_only
        self._phase = _HEAD
        self._interim = 0
        # The next check sees progress, and counts from there.
        self._seen_taken = -1
        self._active = True

    def write(self, data: bytes) -> None:
        if not self.closed:
            self._written_bytes += len(data)
            self._active = True
            self._transport.write(data)

    def pause(self, pause: bool) -> None:
        """Read no more of the response for now, or go on."""
        if pause == self._reading_paused or self.closed:
            return
        self._reading_paused = pause
        if pause:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def leave(self) -> None:
        """Close at once: the rest of the response is not wanted."""
        self._sink = None
        self.abort()

    def abort(self) -> None:
        """Close at once."""
        if not self.closed:
            self.closed = True
            self._transport.abort()

    def close(self) -> None:
        """Close after what was written has been sent."""
        self._sink = None
        if not self.closed:
            self.closed = True
            self._transport.close()

    def check(self, now_s: float, stall_s: float, silence_s: float, upgraded_silence_s: float) -> None:
        """Fail the response if the backend takes nothing for `stall_s`, or sends nothing of it for `silence_s`.

        After an upgrade the connection fails when neither side sent anything for `upgraded_silence_s`. Called by the
        sweep.
        """
        if self.closed or self._sink is None:
            return
        if now_s >= self.deadline_s:
            self._fail(TimeoutError("no response in time"))
            return
        unsent = self._transport.get_write_buffer_size()
        taken = self._written_bytes - unsent
        if not unsent or taken > self._seen_taken:
            self._stalled_since = now_s
        elif now_s - self._stalled_since >= stall_s:
            self._fail(TimeoutError("the backend takes nothing"))
        self._seen_taken = taken
        if self._active or self._reading_paused or self._phase < _BODY:
            self._active, self._active_s, self._gave_back = False, now_s, False
            return
        if not self._gave_back:
            self._gave_back = True
            read_buffer.give_back(self._transport)
        if now_s - self._active_s >= (upgraded_silence_s if self._phase == _UPGRADED else silence_s):
            self._fail(TimeoutError("the backend sends nothing"))

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
        read_buffer.give_back(transport)

    def data_received(self, data: bytes) -> None:
        sink = self._sink
        self._active = True
        self.longest_bytes = max(self.longest_bytes, len(data))
        if sink is None:
            self.abort()  # Unrequested bytes: the next response could be taken for them.
        elif self._phase == _UPGRADED:
            sink.response_data(data)
        elif self._phase == _HEAD:
            if not self._took_whole(sink, data):
                self._take_heads(sink, data)
        elif self._parsed(data):
            sink.response_data(data if self._content is None else self._take_content())
            self._end_if_complete()

    def pause_writing(self) -> None:
        self.full = True

    def resume_writing(self) -> None:
        self.full = False
        if self._sink is not None:
            self._sink.backend_writable()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        # It refers to this connection: a cycle, which kept the buffers of TLS until the collector came.
        del self._parser
        sink, self._sink = self._sink, None
        if sink is None:
            return
        if exc is None and (self._phase == _UPGRADED or (self._phase == _BODY and self._until_close)):
            sink.response_end()
        else:
            sink.response_lost(exc or ConnectionResetError("closed by the backend"), begun=self._begun())

    # Callbacks of httptools

    def on_message_begin(self) -> None:
        if self._phase != _HEAD:
            raise BadBackendResponse("more than one response")
        self._ended = False
        self._headers: list[tuple[bytes, bytes]] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._phase == _HEAD:  # A trailer is not one of these.
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._keeps = self._parser.should_keep_alive()
        self._phase = _BODY

    def on_chunk_header(self) -> None:
        self.between_chunks = False

    def on_chunk_complete(self) -> None:
        self.between_chunks = True

    def on_message_complete(self) -> None:
        self._ended = True

    # Internal

    def _take_content(self) -> bytes:
        """The content parsed since the last call."""
        content, self._content = self._content, []
        return b"".join(content or ())

    def _begun(self) -> bool:
        return self._phase != _HEAD or bool(self._buffer) or self._interim > 0

    def _took_whole(self, sink: ResponseSink, data: bytes) -> bool:
        """Hand a response on unchanged that is whole and plain; False for any other."""
        found = _PLAIN.match(data)
        if found is None or found.end() > MAX_HEAD_BYTES or found.end() + int(found[2]) != len(data):
            return False
        if self._head_only or self._buffer or self._content is not None or not sink.passes_whole():
            return False
        self.deadline_s = NEVER
        self._sink = None
        self._phase = _IDLE
        self.used = True
        if self._reading_paused:
            self.pause(False)
        sink.whole_response(int(found[1]), data)
        return True

    def _take_heads(self, sink: ResponseSink, data: bytes) -> None:
        while self._phase == _HEAD:
            data = self._buffer + data if self._buffer else data
            end = data.find(_END)
            if end < 0 or end > MAX_HEAD_BYTES:
                self._buffer = data
                if len(data) > MAX_HEAD_BYTES:
                    self._fail(BadBackendResponse("the head of the response is too large"))
                return
            self._buffer = b""
            head = self._head(data[: end + 4])
            data = data[end + 4 :]
            if head is None:
                return
            if head.status == 101 or head.status >= 200:
                self._begin_body(sink, head, data)
                return
            self._phase = _HEAD
            self._interim += 1
            if self._interim > MAX_INTERIM:
                self._fail(BadBackendResponse("too many interim responses"))
                return
            sink.interim(head)
            if not data:
                return

    def _head(self, data: bytes) -> ResponseHead | None:
        """The head in `data`; None if it is malformed, in which case the sink was told."""
        upgraded = False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            upgraded = True
        except (httptools.HttpParserError, httptools.HttpParserCallbackError) as error:
            self._fail(BadBackendResponse(f"malformed response: {error}"))
            return None
        if self._phase != _BODY:
            self._fail(BadBackendResponse("malformed head of a response"))
            return None
        status: int = self._parser.get_status_code()
        if (status == 101) != (upgraded and self._sink is not None and self._sink.upgrades):
            self._fail(BadBackendResponse("the backend switched protocols without being asked"))
            return None
        names = {name.lower() for name, _ in self._headers}
        chunked = b"transfer-encoding" in names
        framed = chunked or b"content-length" in names
        self._until_close = not (framed or status < 200 or status in (204, 304) or self._head_only)
        headers, self._headers = self._headers, []
        return ResponseHead(data[: data.index(b"\r\n")], status, headers, chunked, self._until_close)

    def _begin_body(self, sink: ResponseSink, head: ResponseHead, data: bytes) -> None:
        self.deadline_s = NEVER
        self.between_chunks = head.chunked
        if head.status == 101:
            self._phase = _UPGRADED
            sink.response_head(head, data)
            return
        if self._head_only:
            # The parser expects the body that Content-Length announces; a new one does not.
            self._parser = httptools.HttpResponseParser(self)
            self._ended = True
            if data:
                self._fail(BadBackendResponse("a body in the response to HEAD"))
                return
        elif data and not self._parsed(data):
            return
        sink.response_head(head, data if self._content is None else self._take_content())
        self._end_if_complete()

    def _parsed(self, data: bytes) -> bool:
        """Parse more of the body; False if it breaks its framing, in which case the sink was told."""
        if self._ended:
            self._fail(BadBackendResponse("more than one response"))
            return False
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserCallbackError, httptools.HttpParserUpgrade) as error:
            self._fail(BadBackendResponse(f"malformed response: {error}"))
            return False
        return True

    def _end_if_complete(self) -> None:
        sink = self._sink
        if sink is None or not self._ended or self._phase != _BODY:
            return
        self._sink = None
        self._phase = _IDLE
        self.used = True
        self.pause(False)
        if not self._keeps:
            # Not `close`: nothing reads the rest of a request that was refused early.
            self.abort()
        sink.response_end()

    def _fail(self, error: Exception) -> None:
        sink, self._sink = self._sink, None
        begun = self._begun()
        self.abort()
        if sink is not None:
            sink.response_lost(error, begun=begun)


class ReframingConnection(BackendConnection):
    """One connection to a backend that a tenant named: only the content of bodies is handed on, without chunk framing,
    chunk extensions and trailers."""

    reframes = True

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__()
        self._content = []

    def on_body(self, part: bytes) -> None:
        if self._content is not None:
            self._content.append(part)
