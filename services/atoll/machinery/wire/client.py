"""An HTTP/1.1 client: one origin, a bounded pool of connections, whole responses and streams.

Used by the Kubernetes client, by controllers that call another shard, by egress, tests and benchmarks. Credentials are
the caller's: a client certificate in the origin's context, a bearer token in the headers. Invariant: a request is sent
twice only if the first one cannot have had an effect, and every wait has a deadline.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType

import msgspec

from atoll.machinery.wire.client_connection import Body, ClientConnection, encode_request
from atoll.machinery.wire.exchange import Headers
from atoll.machinery.wire.idle_pool import IdlePool
from atoll.machinery.wire.pending_response import (
    BadResponse,
    ClientError,
    ClientLimits,
    ConnectionLost,
    PendingResponse,
    Unreachable,
)

__all__ = [
    "BadResponse",
    "ClientError",
    "ClientLimits",
    "ClientResponse",
    "ClientStream",
    "ConnectionLost",
    "HttpClient",
    "Origin",
    "Unreachable",
]

#: Methods that may be sent again when a pooled connection ended without a response. PUT and DELETE are idempotent in
#: HTTP, but their second response (409, 404) would hide that the first request succeeded.
_SAFE = ("GET", "HEAD", "OPTIONS")


class Origin(msgspec.Struct, frozen=True):
    """Where a client connects.

    `tls` None means plain text. `server_name` is what the certificate must name, if that is not `host`; `name` what the
    Host header says, if that is not host and port.
    """

    host: str = ""
    port: int = 0
    tls: ssl.SSLContext | None = None
    server_name: str = ""
    name: str = ""

    @property
    def authority(self) -> str:
        """Value of the Host header."""
        if self.name:
            return self.name
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class ClientResponse(msgspec.Struct, frozen=True):
    """A whole response. `headers` maps lower-case names to values in order of arrival."""

    status: int
    headers: Mapping[str, list[str]]
    body: bytes

    def header(self, name: str, default: str = "") -> str:
        """First value of a header (lower-case name), or default."""
        values = self.headers.get(name)
        return values[0] if values else default


class ClientStream:
    """A response that is read as it arrives. Iterate for chunks, or `lines()`; use as a context manager or `close()`.

    Reading raises ConnectionLost if the body ends before its framing says so, and TimeoutError after `idle_timeout_s`
    of silence. Closing before the end closes the connection, which is how a watch ends.
    """

    def __init__(
        self, client: HttpClient, connection: ClientConnection, incoming: PendingResponse, idle_s: float
    ) -> None:
        self.status = incoming.status
        self.headers = incoming.headers
        self._client = client
        self._connection = connection
        self._incoming = incoming
        self._idle_timeout_s = idle_s
        self._closed = False

    async def __aenter__(self) -> ClientStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while piece := await self._next():
            yield piece

    async def lines(self) -> AsyncIterator[bytes]:
        """Lines without their end; a last one may lack it. Raises BadResponse for a line above the limit."""
        limit = self._client.limits.line_bytes
        begun: list[bytes] = []
        begun_bytes = 0
        while piece := await self._next():
            first, *others = piece.split(b"\n")
            begun.append(first)
            begun_bytes += len(first)
            if begun_bytes > limit:
                raise BadResponse(f"line is above {limit} bytes")
            if others:
                yield b"".join(begun)
                for line in others[:-1]:
                    yield line
                begun, begun_bytes = [others[-1]], len(others[-1])
        if begun_bytes:
            yield b"".join(begun)

    async def read(self) -> bytes:
        """The rest of the body. Raises BadResponse above the client's body limit."""
        limit = self._client.limits.body_bytes
        pieces: list[bytes] = []
        size = 0
        while piece := await self._next():
            size += len(piece)
            if size > limit:
                raise BadResponse(f"response body is above {limit} bytes")
            pieces.append(piece)
        return b"".join(pieces)

    def close(self) -> None:
        """End the stream; its connection goes back to the pool if the response was read to its end."""
        if not self._closed:
            self._closed = True
            self._client.release_stream(self._connection, self._incoming)

    async def _next(self) -> bytes:
        if self._closed:
            raise ConnectionLost("stream is closed", begun=True)
        if self._incoming.ready:
            piece = await self._incoming.piece()
        else:
            async with asyncio.timeout(self._idle_timeout_s):
                piece = await self._incoming.piece()
        self._connection.resume()
        return piece


class HttpClient:
    """Requests to one origin on the running loop. Close it when done; requests under way then fail."""

    def __init__(self, origin: Origin, limits: ClientLimits | None = None) -> None:
        self.origin = origin
        self.limits = limits or ClientLimits()
        self._authority = origin.authority
        self._loop = asyncio.get_running_loop()
        self._request_slots = asyncio.Semaphore(self.limits.connections)
        self._stream_slots = asyncio.Semaphore(self.limits.streams)
        self._idle: IdlePool[ClientConnection] = IdlePool(self.limits.connections, origin.tls)
        self._busy: set[ClientConnection] = set()
        self._reaper: asyncio.TimerHandle | None = None
        self._reaps_at_s = 0.0
        self._closed, self._kept = False, True

    async def request(
        self, method: str, target: str, headers: Headers = (), body: Body = b"", *, timeout_s: float = 0
    ) -> ClientResponse:
        """Send a request and wait for the whole response, whatever its status; redirects are not followed.

        `timeout_s` 0 means the client's limit. Raises Unreachable (not sent), ConnectionLost (outcome unknown),
        BadResponse, TimeoutError (outcome unknown).
        """
        data = encode_request(method, target, headers, body, self._authority)
        async with asyncio.timeout(timeout_s or self.limits.request_timeout_s), self._request_slots:
            try:
                return await self._whole(method, data, fresh=False)
            except _DiedUnused:
                return await self._whole(method, data, fresh=True)

    async def stream(
        self,
        method: str,
        target: str,
        headers: Headers = (),
        body: bytes = b"",
        *,
        timeout_s: float = 0,
        idle_timeout_s: float = 0,
    ) -> ClientStream:
        """Send a request and return as soon as the headers arrived. Close the returned stream.

        `timeout_s` is for the headers, `idle_timeout_s` for each silence after them; 0 means the client's limits.
        Raises as `request` does.
        """
        data = encode_request(method, target, headers, body, self._authority)
        async with asyncio.timeout(timeout_s or self.limits.request_timeout_s):
            connection, incoming = await self._open(method, data, slim=False)
        return ClientStream(self, connection, incoming, idle_timeout_s or self.limits.stream_idle_timeout_s)

    async def watch(self, target: str, headers: Headers = (), *, idle_timeout_s: float = 0) -> ClientStream:
        """As `stream`, for a GET whose response may last for hours: it goes over a connection that carried little."""
        data = encode_request("GET", target, headers, b"", self._authority)
        async with asyncio.timeout(self.limits.request_timeout_s):
            connection, incoming = await self._open("GET", data, slim=True)
        return ClientStream(self, connection, incoming, idle_timeout_s or self.limits.stream_idle_timeout_s)

    async def close(self) -> None:
        """Close all connections; requests under way fail, and further ones raise Unreachable."""
        self._closed = True
        if self._reaper is not None:
            self._reaper.cancel()
        for connection in list(self._busy):
            connection.abort()
        self._idle.clear()
        await asyncio.sleep(0)  # Transports report their end in the next turn.

    def retire(self) -> None:
        """Close idle connections now, and others once their requests end: none is kept for further requests."""
        self._kept = False
        self._idle.clear()
        if self._reaper is not None:
            self._reaper.cancel()

    def release_stream(self, connection: ClientConnection, incoming: PendingResponse) -> None:
        """Called by a stream that is closed."""
        self._stream_slots.release()
        self._release(connection)

    async def _whole(self, method: str, data: Sequence[bytes], *, fresh: bool) -> ClientResponse:
        connection = await self._connection(fresh=fresh)
        incoming = PendingResponse(streaming=False, body_limit=self.limits.body_bytes)
        reused = connection.used
        try:
            connection.send(data, incoming, head_only=method == "HEAD")
            body = await incoming.whole()
        except ConnectionLost as error:
            _raise_if_unused(error, method, reused=reused)
            raise
        finally:
            self._release(connection)
        return ClientResponse(incoming.status, incoming.headers, body)

    async def _open(
        self, method: str, data: Sequence[bytes], *, slim: bool
    ) -> tuple[ClientConnection, PendingResponse]:
        await self._stream_slots.acquire()
        try:
            try:
                return await self._begin(method, data, fresh=False, slim=slim)
            except _DiedUnused:
                return await self._begin(method, data, fresh=True)
        except BaseException:
            self._stream_slots.release()
            raise

    async def _begin(
        self, method: str, data: Sequence[bytes], *, fresh: bool, slim: bool = False
    ) -> tuple[ClientConnection, PendingResponse]:
        connection = await self._connection(fresh=fresh, slim=slim)
        incoming = PendingResponse(streaming=True, body_limit=0)
        reused = connection.used
        try:
            connection.send(data, incoming, head_only=method == "HEAD")
            await incoming.head()
        except BaseException as error:
            self._release(connection)
            if isinstance(error, ConnectionLost):
                _raise_if_unused(error, method, reused=reused)
            raise
        return connection, incoming

    async def _connection(self, *, fresh: bool, slim: bool = False) -> ClientConnection:
        if self._closed:
            raise Unreachable("client is closed")
        idle = self._idle
        connection = None if fresh else idle.take_slim() if slim else idle.take()
        if connection is None:
            connection = await self._connect()
        self._busy.add(connection)
        return connection

    async def _connect(self) -> ClientConnection:
        origin = self.origin
        name = (origin.server_name or origin.host) if origin.tls else None
        renewals = self._idle.context.renewals
        try:
            async with asyncio.timeout(self.limits.connect_timeout_s):
                _, connection = await self._loop.create_connection(
                    self._make, origin.host, origin.port, ssl=origin.tls, server_hostname=name
                )
        except (OSError, TimeoutError) as error:
            raise Unreachable(f"cannot connect to {self._authority}: {error or 'timed out'}") from error
        connection.renewals = renewals
        return connection

    def _make(self) -> ClientConnection:
        return ClientConnection(self.limits)

    def _release(self, connection: ClientConnection) -> None:
        self._busy.discard(connection)
        if self._closed or not self._kept:
            connection.abort()
            return
        if self._idle.put(connection, self._loop.time()):
            self._reap_at(self._due_s(connection))

    def _due_s(self, connection: ClientConnection) -> float:
        """When a connection will have been idle for too long."""
        limits = self.limits
        longest_s = limits.idle_timeout_s
        return connection.idle_since_s + (
            longest_s if connection.is_slim else min(limits.large_idle_timeout_s, longest_s)
        )

    def _reap_at(self, due_s: float) -> None:
        """Look at the idle connections then, or before."""
        if self._reaper is not None:
            # The loop's handle does not say it: that of what is due at once has no time.
            if self._reaps_at_s <= due_s:
                return
            self._reaper.cancel()
        self._reaps_at_s, self._reaper = due_s, self._loop.call_at(due_s, self._reap)

    def _reap(self) -> None:
        """Close connections that have been idle for too long, and schedule the next look."""
        self._reaper, now_s = None, self._loop.time()
        self._idle.close_if(lambda each: self._due_s(each) <= now_s)
        if self._idle:
            self._reap_at(max(min(map(self._due_s, self._idle)), now_s + 0.01))


class _DiedUnused(Exception):
    """A pooled connection ended before any byte of the response to a request that may be sent again."""


def _raise_if_unused(error: ConnectionLost, method: str, *, reused: bool) -> None:
    if reused and not error.begun and method in _SAFE:
        raise _DiedUnused from error
