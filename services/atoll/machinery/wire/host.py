"""What the parts of the server need of the parts that own them, as protocols.

`Server` implements `Host` for its acceptors and connections; `Connection` implements `Outlet` for its exchanges. They
are declared here, so that imports point one way: exchange, host < server_exchange < connection < acceptor < server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from atoll.machinery.wire.exchange import Handler, HttpRequest
from atoll.machinery.wire.limits import Limits


class Counts:
    """What a server counts of its clients, for metrics."""

    __slots__ = ("cut_clients", "failed_handshakes", "handshakes")

    def __init__(self) -> None:
        self.handshakes = self.failed_handshakes = 0
        #: Cut as they did not read what was sent to them.
        self.cut_clients = 0


class Flushable(Protocol):
    """An exchange with bytes to send at the end of the loop turn."""

    def flush(self) -> None: ...


class OpenConnection(Protocol):
    """A connection as the server's sweep and drain see it."""

    @property
    def is_new(self) -> bool:
        """Whether nothing of its first request has arrived yet."""

    def check(self, now: float) -> None:
        """Cut the connection if one of its deadlines passed."""

    def drain(self) -> None:
        """Close if idle; otherwise tell the exchange that the server drains."""

    def cut(self) -> None:
        """Close at once, without the rest of what was written."""

    def cut_request(self, refused: Callable[[HttpRequest], bool]) -> None:
        """Cut the connection if its request in progress is refused."""


class Host(Protocol):
    """The server, as its acceptors and connections see it."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    @property
    def now(self) -> Callable[[], float]:
        """The loop's clock in seconds."""

    @property
    def limits(self) -> Limits: ...

    @property
    def handler(self) -> Handler: ...

    @property
    def date(self) -> str:
        """The Date header line, up to one sweep old."""

    @property
    def draining(self) -> bool: ...

    @property
    def phase_timeouts_s(self) -> tuple[float, float, float]:
        """Timeouts by phase of the parser: idle, head, body."""

    @property
    def connections(self) -> int:
        """Open connections, including those in their handshake."""

    @property
    def counts(self) -> Counts: ...

    def make_protocol(self) -> asyncio.Protocol:
        """Return what speaks on an accepted socket: a connection, or what makes one when its handshake is over."""

    def make_connection(self) -> asyncio.Protocol:
        """Return a new connection, for a socket or a stream."""

    def opened(self, connection: OpenConnection) -> None:
        """Sweep a connection until `closed`."""

    def closed(self, connection: OpenConnection) -> None:
        """Forget a connection."""

    def lingers(self, connection: OpenConnection) -> None:
        """Look at a connection in each sweep from now on: it closes soon."""

    def account(self, size_bytes: int) -> None:
        """Count body bytes held (negative: released). Raises ApiError 503 above the limit of all bodies."""

    def track(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work` as a task that `drain` waits for."""

    def hold(self, outcome: asyncio.Future[Any]) -> None:
        """Let `drain` wait for an outcome, as it does for a task."""

    def flush_soon(self, exchange: Flushable) -> None:
        """Call `exchange.flush` once at the end of this loop turn."""


class Outlet(Protocol):
    """The connection, as its exchanges see it."""

    @property
    def limits(self) -> Limits: ...

    @property
    def lost(self) -> bool:
        """The client is gone, or was cut."""

    @property
    def paused(self) -> bool:
        """The transport holds more than its high-water mark."""

    @property
    def host(self) -> Host: ...

    def send(self, data: bytes) -> None:
        """Write at once; dropped when the client is gone."""

    def send_parts(self, *parts: bytes) -> None:
        """Write parts of which one is too long to copy."""

    def flush_soon(self, exchange: Flushable) -> None:
        """Call `exchange.flush` once at the end of this loop turn."""

    def unsent_bytes(self) -> int:
        """Bytes held by the transport; 0 below its high-water mark."""

    async def writable(self) -> None:
        """Wait until the transport is below its low-water mark. Raises ConnectionResetError when it is lost."""

    def track(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work` as a task of the server."""

    def ended(self, exchange: Flushable) -> None:
        """Go on with the next request, or close: the reply of the active exchange is complete."""

    def cut(self) -> None:
        """Close at once, without the rest of what was written."""
