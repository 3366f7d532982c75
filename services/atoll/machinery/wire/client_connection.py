"""The client's side of one connection: a request out, a response in, and again.

Made and pooled by `HttpClient`. Invariant: a connection is `reusable` only when the last response was complete, its
framing was clear, both sides keep it alive, and nothing arrived unrequested.
"""

from __future__ import annotations

import asyncio
from typing import cast

import httptools

from atoll.machinery.wire.exchange import Headers
from atoll.machinery.wire.idle_pool import PooledConnection
from atoll.machinery.wire.pending_response import BadResponse, ClientLimits, ConnectionLost, PendingResponse

_BODILESS = (204, 304)
_WITH_BODY = ("POST", "PUT", "PATCH")


def encode_request(method: str, target: str, headers: Headers, body: bytes, host: str) -> bytes:
    """Return a request as bytes. Raises ValueError if a value would break out of its line."""
    fields = "".join([f"{name}: {value}\r\n" for name, value in headers])
    length = f"Content-Length: {len(body)}\r\n" if body or method in _WITH_BODY else ""
    text = f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n{length}{fields}\r\n"
    lines = len(headers) + (4 if length else 3)
    if text.count("\n") != lines or text.count("\r") != lines or "\0" in text or " " in target:
        raise ValueError("line break, NUL or space where a request cannot have one")
    return text.encode() + body


class ClientConnection(PooledConnection):
    """One connection of a client."""

    __slots__ = (
        "_head_bytes",
        "_head_only",
        "_headers",
        "_in_head",
        "_incoming",
        "_limits",
        "_on_closed",
        "_parser",
        "_paused",
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

    @property
    def reusable(self) -> bool:
        """Another request may be sent on it."""
        return not self.closed and self._incoming is None and not self._transport.is_closing()

    def send(self, request: bytes, incoming: PendingResponse, *, head_only: bool) -> None:
        """Send a request whose response goes to `incoming`; `head_only` for HEAD, whose body never comes."""
        self._incoming = incoming
        self._head_only = head_only
        if self.closed:
            self._fail(ConnectionLost("connection closed before the request", begun=False))
            return
        self._transport.write(request)

    def abort(self) -> None:
        """Close at once; a response under way fails."""
        if not self.closed:
            self.closed = True
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

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        incoming = self._incoming
        if incoming is None:
            self.abort()  # Unrequested bytes: the next response could be taken for them.
            return
        incoming.begun = True
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
        self.closed = True
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
        if not incoming.keep_alive:
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
