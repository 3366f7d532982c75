"""One response while it arrives: bytes to status, headers and body, and the reader's wait for them.

Made by `HttpClient` for each request it sends, read whole or piece by piece. Invariant: a body is complete only if its
framing said so; a connection that ended earlier is an error.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping

import msgspec


class ClientLimits(msgspec.Struct, frozen=True):
    """Bounds of one client: sizes in bytes, times in seconds."""

    #: Requests in flight, and idle connections kept.
    connections: int = 64
    #: Open streams in addition; each has a connection of its own.
    streams: int = 1024
    connect_timeout_s: float = 10.0
    #: A whole request, waiting for a free connection included; for a stream, until its headers are there.
    request_timeout_s: float = 60.0
    #: Silence within a stream.
    stream_idle_timeout_s: float = 600.0
    #: Idle connections are closed after this time. Below the server's 120 s, so that the client closes first.
    idle_timeout_s: float = 60.0
    #: The same for those that carried much at once, of which both sides keep memory until they end.
    large_idle_timeout_s: float = 10.0
    header_bytes: int = 64 * 1024
    body_bytes: int = 64 << 20
    #: One line of a stream.
    line_bytes: int = 16 << 20
    #: Unread bytes of a stream above which the socket is not read.
    stream_buffer_bytes: int = 1 << 20


class ClientError(Exception):
    """A request that got no usable response."""


class Unreachable(ClientError):
    """No connection could be made; the request was not sent."""


class ConnectionLost(ClientError):
    """The connection ended before the response did. The outcome of the request is unknown.

    `begun` says whether any byte of the response had arrived.
    """

    def __init__(self, message: str, *, begun: bool) -> None:
        super().__init__(message)
        self.begun = begun


class BadResponse(ClientError):
    """The response is not HTTP, or larger than the client's limits."""


class PendingResponse:
    """A response being received.

    `status` is 0 until the headers are there; `ended` once the body is whole; `error` is what ended it before.
    """

    __slots__ = (
        "_limit",
        "_pieces",
        "_waiter",
        "begun",
        "buffered_bytes",
        "ended",
        "error",
        "headers",
        "keep_alive",
        "received_bytes",
        "status",
        "streaming",
    )

    def __init__(self, *, streaming: bool, body_limit: int) -> None:
        self.status = 0
        self.headers: Mapping[str, list[str]] = {}
        self.keep_alive = False
        self.begun = False
        self.ended = False
        self.error: ClientError | None = None
        self.buffered_bytes = 0
        self.received_bytes = 0
        self._pieces: deque[bytes] = deque()
        self.streaming = streaming
        self._limit = body_limit
        self._waiter: asyncio.Future[None] | None = None

    @property
    def ready(self) -> bool:
        """The next piece, or the end, has arrived."""
        return bool(self._pieces) or self.ended

    async def head(self) -> None:
        """Wait for status and headers. Raises ClientError."""
        while not self.status:
            await self._change()

    async def whole(self) -> bytes:
        """Wait for the end and return the body. Raises ClientError."""
        while not self.ended:
            await self._change()
        return b"".join(self._pieces)

    async def piece(self) -> bytes:
        """The next part of the body, b"" at its end. Raises ClientError."""
        while not self._pieces:
            if self.ended:
                return b""
            await self._change()
        piece = self._pieces.popleft()
        self.buffered_bytes -= len(piece)
        return piece

    async def _change(self) -> None:
        if self.error is not None:
            raise self.error
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
        if self.error is not None and not self._pieces:
            raise self.error

    # Called by the connection.

    def set_head(self, status: int, headers: Mapping[str, list[str]]) -> None:
        self.status, self.headers = status, headers
        if self.streaming:
            self._wake()

    def add(self, piece: bytes) -> None:
        """One more part. Raises BadResponse when a body that is read whole is too long."""
        self.received_bytes += len(piece)
        if not self.streaming and self.received_bytes > self._limit:
            raise BadResponse(f"response body is above {self._limit} bytes")
        self._pieces.append(piece)
        self.buffered_bytes += len(piece)
        if self.streaming:
            self._wake()

    def end(self) -> None:
        self.ended = True
        self._wake()

    def fail(self, error: ClientError) -> None:
        if not self.ended and self.error is None:
            self.error = error
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
