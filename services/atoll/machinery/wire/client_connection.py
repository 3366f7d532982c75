"""The client's side of one connection: a request out, a response in, and again.

Made and pooled by `HttpClient`. Invariants: a connection is `reusable` only when the last response was complete, its
framing was clear, both sides keep it alive, and nothing arrived unrequested. Of a large request one CHUNK_BYTES is
encrypted in a turn of the loop, and no more is buffered than the transport takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import cast

import httptools

from atoll.machinery.wire import read_buffer
from atoll.machinery.wire.exchange import Headers
from atoll.machinery.wire.idle_pool import PooledConnection
from atoll.machinery.wire.pending_response import BadResponse, ClientLimits, ConnectionLost, PendingResponse

_BODILESS = (204, 304)
_WITH_BODY = ("POST", "PUT", "PATCH")


#: Bytes of a request that are sent at once.
CHUNK_BYTES = 128 * 1024

#: The parts of a body in order; those of several requests may share them.
Body = bytes | Sequence[bytes]


def encode_request(method: str, target: str, headers: Headers, body: Body, host: str) -> Sequence[bytes]:
    """Return a request, a small one as one part. Raises ValueError if a value would break out of its line."""
    parts = (body,) if isinstance(body, bytes) else body
    size = len(body) if isinstance(body, bytes) else sum(map(len, body))
    fields = "".join([f"{name}: {value}\r\n" for name, value in headers])
    length = f"Content-Length: {size}\r\n" if size or method in _WITH_BODY else ""
    text = f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n{length}{fields}\r\n"
    lines = len(headers) + (4 if length else 3)
    if text.count("\n") != lines or text.count("\r") != lines or "\0" in text or " " in target:
        raise ValueError("line break, NUL or space where a request cannot have one")
    found = text.encode(), *parts
    return (b"".join(found),) if size < CHUNK_BYTES else found


def _chunks(parts: Sequence[bytes]) -> Iterator[memoryview]:
    for part in parts:
        view = memoryview(part)
        for start in range(0, len(view), CHUNK_BYTES):
            yield view[start : start + CHUNK_BYTES]


class ClientConnection(PooledConnection):
    """One connection of a client."""

    __slots__ = (
        "_head_bytes",
        "_head_only",
        "_headers",
        "_in_head",
        "_incoming",
        "_is_full",
        "_limits",
        "_on_closed",
        "_parser",
        "_paused",
        "_unsent",
        "_until_close",
    )

    def __init__(self, limits: ClientLimits) -> None:
        super().__init__()
        self._limits = limits
        self._incoming: PendingResponse | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, list[str]] = {}
        self._head_bytes = 0
        self._in_head = False
        self._head_only = False
        self._until_close = False
        self._paused = False
        #: What is left of a large request, and whether the transport takes no more of it for now.
        self._unsent: Iterator[memoryview] | None = None
        self._is_full = False

    @property
    def reusable(self) -> bool:
        """Another request may be sent on it."""
        return not self.closed and self._incoming is None and not self._transport.is_closing()

    def send(self, request: Sequence[bytes], incoming: PendingResponse, *, head_only: bool) -> None:
        """Send a request whose response goes to `incoming`; `head_only` for HEAD, whose body never comes."""
        self._incoming = incoming
        self._head_only = head_only
        self.longest_bytes = max(self.longest_bytes, *map(len, request))
        if self.closed:
            self._fail(ConnectionLost("connection closed before the request", begun=False))
            return
        if len(request) == 1:
            self._transport.write(request[0])
        else:
            self._unsent = _chunks(request)
            self._send_more()

    def abort(self) -> None:
        """Close at once; a response under way fails."""
        if not self.closed:
            self.closed, self._unsent = True, None
            self._fail(ConnectionLost("closed by us", begun=True))
            self._transport.abort()

    def close(self) -> None:
        """Close an idle connection."""
        if not self.closed:
            self.closed = True
            self._transport.close()

    def resume(self) -> None:
        """Read from the socket again once half of the held bytes were taken."""
        incoming = self._incoming
        if self._paused and (incoming is None or incoming.buffered_bytes < self._limits.stream_buffer_bytes // 2):
            self._paused = False
            if not self.closed:
                self._transport.resume_reading()

    def _send_more(self) -> None:
        """Send the next part of a large request, and others in later turns of the loop."""
        if self._unsent is None or self._is_full:
            return
        chunk = next(self._unsent, None)
        if chunk is None:
            self._unsent = None
        else:
            self._transport.write(chunk)
            asyncio.get_running_loop().call_soon(self._send_more)

    # asyncio.Protocol

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._send_more()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        read_buffer.give_back(transport)

    def data_received(self, data: bytes) -> None:
        incoming = self._incoming
        if incoming is None:
            self.abort()  # Unrequested bytes: the next response could be taken for them.
            return
        incoming.begun = True
        self.longest_bytes = max(self.longest_bytes, len(data))
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse(BadResponse("server switched protocols"))
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            self._refuse(cause if isinstance(cause, BadResponse) else BadResponse(str(cause)))
        except httptools.HttpParserError as error:
            self._refuse(BadResponse(f"malformed HTTP response: {error}"))
        else:
            self._watch_sizes(incoming, len(data))

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed, self._unsent = True, None
        # It refers to this connection: a cycle, which kept the buffers of TLS until the collector came.
        del self._parser
        incoming = self._incoming
        if incoming is None:
            return
        if self._until_close and exc is None:
            self._finish()
        else:
            self._fail(ConnectionLost(f"connection lost: {exc or 'closed by the server'}", begun=incoming.begun))

    # Callbacks of httptools

    def on_message_begin(self) -> None:
        if self._incoming is None:
            raise BadResponse("a response without a request")
        self._headers = {}
        self._head_bytes = 0
        self._in_head = True

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value) + 4
        if self._head_bytes > self._limits.header_bytes:
            raise BadResponse("response headers are too large")
        if self._in_head:
            text = value.decode("utf-8", "replace").rstrip(" \t")
            self._headers.setdefault(name.decode("ascii").lower(), []).append(text)

    def on_headers_complete(self) -> None:
        self._in_head = False
        status: int = self._parser.get_status_code()
        incoming = self._incoming
        if status < 200 or incoming is None:
            return
        incoming.keep_alive = self._parser.should_keep_alive()
        incoming.set_head(status, self._headers)
        framed = "content-length" in self._headers or "transfer-encoding" in self._headers
        self._until_close = not framed and status not in _BODILESS and not self._head_only
        if self._head_only:
            # The parser expects the body that Content-Length announces; a new one does not.
            self._parser = httptools.HttpResponseParser(self)
            self._finish()

    def on_body(self, part: bytes) -> None:
        if self._incoming is not None:
            self._incoming.add(part)

    def on_message_complete(self) -> None:
        incoming = self._incoming
        if incoming is not None and incoming.status:
            self._finish()

    # Internal

    def _watch_sizes(self, incoming: PendingResponse, size: int) -> None:
        if self._in_head:
            self._head_bytes += size
            if self._head_bytes > 2 * self._limits.header_bytes:
                self._refuse(BadResponse("response headers are too large"))
        elif (
            incoming.streaming
            and incoming.buffered_bytes > self._limits.stream_buffer_bytes
            and not (self._paused or self.closed)
        ):
            self._paused = True
            self._transport.pause_reading()

    def _finish(self) -> None:
        incoming, self._incoming = self._incoming, None
        self._until_close = False
        self.used = True
        assert incoming is not None
        if not incoming.keep_alive or self._unsent is not None:
            # Not `close`: nothing reads the rest of a request that was refused early.
            self.abort()
        incoming.end()

    def _fail(self, error: ConnectionLost | BadResponse) -> None:
        incoming, self._incoming = self._incoming, None
        if incoming is not None:
            incoming.fail(error)

    def _refuse(self, error: BadResponse) -> None:
        self._fail(error)
        self.abort()
