"""A load generator that costs less than the server: requests built before, answers read to their length.

Scenarios make the bytes of their requests once and send them over kept connections in a closed loop: each connection
has one request under way, and the next leaves when its answer is whole. Bodies are kept only on request. It is no
general client: it parses only the responses of this server.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Iterator
from typing import cast

import msgspec

END_OF_HEAD, END_OF_CHUNKS = b"\r\n\r\n", b"\r\n0\r\n\r\n"
_LENGTH = b"\r\nContent-Length: "
_UNKNOWN = -1
TIMEOUT_S = 120.0


class Origin(msgspec.Struct, frozen=True):
    """The address and the user of a connection."""

    host: str
    port: int
    tls: ssl.SSLContext
    token: str

    def request(
        self, method: str, path: str, body: bytes = b"", content_type: str = "application/json", more: str = ""
    ) -> bytes:
        """A whole request; `more` are headers, each with its line end."""
        head = f"{method} {path} HTTP/1.1\r\nHost: {self.host}\r\n"
        if self.token:
            head += f"Authorization: Bearer {self.token}\r\n"
        if body:
            head += f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        return (head + more).encode() + b"User-Agent: loadtest\r\n\r\n" + body


class Load(msgspec.Struct):
    """Results of a closed loop. Latencies in seconds, in order of arrival; `bytes` counts bodies."""

    answers: int = 0
    bytes: int = 0
    errors: int = 0
    latencies_s: list[float] = []
    wall_s: float = 0.0

    @property
    def rate(self) -> float:
        """Answers a second."""
        return self.answers / self.wall_s if self.wall_s else 0.0

    def percentile_ms(self, share: float) -> float:
        """A percentile of the latencies, 0.5 the median."""
        ordered = sorted(self.latencies_s)
        return ordered[min(int(len(ordered) * share), len(ordered) - 1)] * 1000 if ordered else 0.0


class Connection(asyncio.Protocol):
    """One connection. `answered` gets status and size of each whole answer, at once."""

    def __init__(self, answered: Callable[[Connection, int, int], None]) -> None:
        self._answered = answered
        self._head = b""
        self._in_body = False
        self._left = self._size = self._status = 0
        self._tail = b""
        self.sent_at = 0.0
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def send(self, request: bytes) -> None:
        self.sent_at = time.perf_counter()
        self._transport.write(request)

    def close(self) -> None:
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self._answered(self, 0, 0)

    def data_received(self, data: bytes) -> None:
        if not self._in_body:
            data = self._head + data if self._head else data
            end = data.find(END_OF_HEAD)
            if end < 0:
                self._head = data
                return
            self._begin(data, end)
            data = data[end + 4 :]
        self._size += len(data)
        if self._left == _UNKNOWN:
            self._tail = (self._tail + data)[-len(END_OF_CHUNKS) :]
            whole = self._tail == END_OF_CHUNKS
        else:
            whole = self._size >= self._left
        if whole:
            self._in_body = False
            self._answered(self, self._status, self._size)

    def _begin(self, data: bytes, end: int) -> None:
        self._head, self._in_body, self._size, self._tail = b"", True, 0, b""
        self._status = int(data[9:12])
        at = data.find(_LENGTH, 0, end + 2)
        self._left = int(data[at + len(_LENGTH) : data.index(b"\r", at + 2)]) if at >= 0 else _UNKNOWN


async def connect(origin: Origin, count: int, make: Callable[[], asyncio.Protocol]) -> list[asyncio.Transport]:
    """Open connections, a few at a time."""
    loop = asyncio.get_running_loop()
    found: list[asyncio.Transport] = []
    for begin in range(0, count, 16):
        some = [
            loop.create_connection(make, origin.host, origin.port, ssl=origin.tls, server_hostname="localhost")
            for _ in range(min(16, count - begin))
        ]
        found.extend(transport for transport, _ in await asyncio.gather(*some))
    return found


class ClosedLoop:
    """Sends what `requests` gives over some connections, until it ends or time is up."""

    def __init__(self, requests: Iterator[bytes], seconds: float) -> None:
        self._requests, self._seconds = requests, seconds
        self.load = Load(latencies_s=[])
        self._busy = 0
        self._until = 0.0
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self, origin: Origin, connections: int) -> Load:
        """Raises ConnectionError if the server cut a connection, TimeoutError if it went silent."""
        opened: list[Connection] = []

        def make() -> Connection:
            opened.append(Connection(self._answered))
            return opened[-1]

        await connect(origin, connections, make)
        began = time.perf_counter()
        self._until = began + self._seconds
        self._busy = len(opened)
        for connection in opened:
            self._next(connection)
        async with asyncio.timeout(self._seconds + TIMEOUT_S):
            await self._ended
        self.load.wall_s = time.perf_counter() - began
        for connection in opened:
            connection.close()
        return self.load

    def _next(self, connection: Connection) -> None:
        request = next(self._requests, None) if time.perf_counter() < self._until else None
        if request is not None:
            connection.send(request)
            return
        self._busy -= 1
        if not self._busy and not self._ended.done():
            self._ended.set_result(None)

    def _answered(self, connection: Connection, status: int, size: int) -> None:
        if connection.lost:
            if not self._ended.done():
                self._ended.set_exception(ConnectionError("the server closed a connection under load"))
            return
        load = self.load
        load.answers += 1
        load.bytes += size
        load.errors += status >= 300
        load.latencies_s.append(time.perf_counter() - connection.sent_at)
        self._next(connection)


async def closed_loop(origin: Origin, requests: Iterator[bytes], connections: int, seconds: float) -> Load:
    """Run a closed loop; a second loop may run beside it."""
    return await ClosedLoop(requests, seconds).run(origin, connections)
