"""The HTTP server: connections, their sweep, their tasks, and its shutdown.

A process makes one Server, starts it on its addresses and drains it on SIGTERM; the server calls its handler for each
request. Invariant: when `drain` has returned, no socket, task or timer of the server is left.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Callable, Coroutine
from email.utils import formatdate
from typing import Any

import structlog

from atoll.machinery.process import open_files
from atoll.machinery.process.tls import ALPN_PROTOCOLS
from atoll.machinery.wire.acceptor import Acceptor, Listening, bind
from atoll.machinery.wire.connection import Connection
from atoll.machinery.wire.exchange import Handler, HttpRequest, Peer
from atoll.machinery.wire.host import Counts, Flushable, Host, OpenConnection
from atoll.machinery.wire.limits import Limits
from atoll.machinery.wire.multiplex.chosen import ChosenProtocol
from atoll.machinery.wire.multiplex.frames import ALPN
from atoll.machinery.wire.multiplex.server_session import ServerSession
from atoll.machinery.wire.parser import bodies_full

log = structlog.get_logger()

#: Longest interval of the sweep, and at which it looks at all connections. Both are at most a quarter of the shortest
#: limit that they keep: most connections are quiet, and to look at each is most of what they cost.
_SWEEP_S, _ROUND_S = 1.0, 2.5
#: How long a server that drains waits for the first request of a connection, and between two looks.
FIRST_REQUEST_S, _LOOK_S = 2.0, 0.02
#: Streams flushed in one loop turn, so that requests are served in between: an event for a thousand watchers takes 10
#: ms of TLS.
_FLUSH_BATCH = 128
#: Connections whose credential is looked at in one loop turn.
_CUT_BATCH = 128


class Server:
    """An HTTP/1.1 server on the running event loop.

    With `ssl_context` every TCP address speaks TLS; without, plain text (tests, Unix sockets). `connection` makes what
    speaks on an accepted socket. Attributes that are not underscored serve the connections of this package, except
    `draining` and `connections`.
    """

    def __init__(
        self,
        handler: Handler,
        limits: Limits,
        ssl_context: ssl.SSLContext | None = None,
        connection: Callable[[Host], Connection] = Connection,
    ) -> None:
        self.handler = handler
        self._connection = connection
        self.limits = limits = limits.within(open_files.limit())
        self.counts = Counts()
        self.draining = self._takes_new = False
        self.date = ""
        #: By phase of the parser: idle, head, body.
        self.phase_timeouts_s = (limits.idle_timeout_s, limits.header_timeout_s, limits.body_timeout_s)
        self.loop = asyncio.get_running_loop()
        self.now = self.loop.time
        self._ssl_context = ssl_context
        self._streams_of: Callable[[Peer], bool] | None = None
        self._acceptors: list[Acceptor] = []
        self._connections: set[OpenConnection] = set()
        self._lingering: set[OpenConnection] = set()
        self._tasks: set[asyncio.Future[Any]] = set()
        self._dirty: deque[Flushable] = deque()
        self._bodies_bytes = 0
        self._emptied = asyncio.Event()
        self._emptied.set()
        self._round_s = min(_ROUND_S, min(*self.phase_timeouts_s, limits.stall_timeout_s) / 4)
        self._sweep_s = min(_SWEEP_S, self._round_s, min(limits.linger_s, limits.handshake_timeout_s) / 4)
        #: When all connections are looked at next, and the second that `date` says.
        self._round_at, self._second = 0.0, 0
        self._sweep_timer: asyncio.TimerHandle | None = None

    @property
    def connections(self) -> int:
        """Open connections, those in their handshake included."""
        return len(self._connections) + sum(acceptor.pending for acceptor in self._acceptors)

    async def start(self, host: str, port: int) -> int:
        """Listen on one more TCP address and return its port (port 0 picks one). Raises OSError if it is taken."""
        sock = await bind(host, port)
        self.accept_from(sock)
        return int(sock.getsockname()[1])

    def accept_from(self, listening: Listening) -> None:
        """Accept from one more socket, which the server then owns."""
        self._listen(Acceptor(self, listening, self._ssl_context))

    def use(self, ssl_context: ssl.SSLContext) -> None:
        """Use another TLS context for new connections; open ones keep theirs.

        Session tickets of the former context are not valid in this one: each context has keys of its own.
        """
        self._ssl_context = ssl_context
        if self._streams_of is not None:
            ssl_context.set_alpn_protocols([ALPN, *ALPN_PROTOCOLS])
        for acceptor in self._acceptors:
            acceptor.use(ssl_context)

    def accept_streams(self, of: Callable[[Peer], bool]) -> None:
        """Let clients for whom `of` holds carry many connections over one (`multiplex`), from now on."""
        self._streams_of = of
        if self._ssl_context is not None:
            self.use(self._ssl_context)

    def cut_requests(self, refused: Callable[[HttpRequest], bool]) -> None:
        """Cut the connections whose request in progress is refused, such as a watch of a credential that ended."""
        self._cut_some(refused, deque(self._connections))

    async def drain(self, deadline_s: float) -> None:
        """Stop: accept nothing more, close idle connections, let requests finish and streams end themselves
        (`Exchange.on_drain`); after `deadline_s` seconds cut what is left. Returns when all is closed.

        Whoever was connected before may send one request within FIRST_REQUEST_S: a balancer that was not refused does
        not try another server.
        """
        until_s = self.now() + deadline_s
        self.draining = self._takes_new = True
        for acceptor in self._acceptors:
            acceptor.stop()
        for connection in list(self._connections):
            if not connection.is_new:
                connection.drain()
        await self._first_requests(min(deadline_s, FIRST_REQUEST_S))
        self._takes_new = False
        for acceptor in self._acceptors:
            acceptor.close()
        for connection in list(self._connections):
            connection.drain()
        try:
            async with asyncio.timeout(max(0.0, until_s - self.now())):
                await self._emptied.wait()
                while self._tasks:
                    await asyncio.wait(self._tasks)
        except TimeoutError:
            log.warning("drain deadline passed", connections=len(self._connections), tasks=len(self._tasks))
            self._cut_all()
        await self._emptied.wait()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()

    def _cut_some(self, refused: Callable[[HttpRequest], bool], left: deque[OpenConnection]) -> None:
        for _ in range(min(len(left), _CUT_BATCH)):
            left.popleft().cut_request(refused)
        if left:
            self.loop.call_soon(self._cut_some, refused, left)

    async def _first_requests(self, limit_s: float) -> None:
        """Wait until every connection has sent a request, for so long at most."""
        until_s = self.now() + limit_s
        while self.now() < until_s and (  # noqa: ASYNC110  # once in a process's life, and no event tells of these
            any(acceptor.pending for acceptor in self._acceptors) or any(each.is_new for each in self._connections)
        ):
            await asyncio.sleep(_LOOK_S)

    def _cut_all(self) -> None:
        for connection in list(self._connections):
            connection.cut()
        for task in list(self._tasks):
            task.cancel()

    # For the acceptors, connections and exchanges

    def make_protocol(self) -> asyncio.Protocol:
        """Return what speaks on an accepted socket."""
        of = self._streams_of
        if of is None:
            return self._connection(self)
        return ChosenProtocol(self.make_connection, lambda: ServerSession(self, of))

    def make_connection(self) -> Connection:
        """Return a new connection, for a socket or a stream."""
        return self._connection(self)

    def opened(self, connection: OpenConnection) -> None:
        """Sweep a new connection until `closed`."""
        self._connections.add(connection)
        self._emptied.clear()
        if self.draining and not self._takes_new:
            self.loop.call_soon(connection.drain)

    def closed(self, connection: OpenConnection) -> None:
        """Forget a connection: another may be accepted."""
        self._connections.discard(connection)
        self._lingering.discard(connection)
        if not self._connections:
            self._emptied.set()
        for acceptor in self._acceptors:
            acceptor.resume()

    def lingers(self, connection: OpenConnection) -> None:
        """Look at a connection in each sweep from now on: it closes soon."""
        self._lingering.add(connection)

    def account(self, size_bytes: int) -> None:
        """Count body bytes held (negative: released). Raises ApiError 503 above the limit."""
        self._bodies_bytes += size_bytes
        if size_bytes > 0 and self._bodies_bytes > self.limits.bodies_bytes:
            raise bodies_full()

    def track(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work` as a task that `drain` waits for."""
        task = self.loop.create_task(work)
        self.hold(task)
        return task

    def hold(self, outcome: asyncio.Future[Any]) -> None:
        """Let `drain` wait for an outcome, as it does for a task."""
        self._tasks.add(outcome)
        outcome.add_done_callback(self._tasks.discard)

    def flush_soon(self, exchange: Flushable) -> None:
        """Flush `exchange` once this loop turn's callbacks have run; one callback serves all streams."""
        if not self._dirty:
            self.loop.call_soon(self._flush)
        self._dirty.append(exchange)

    # Internal

    def _listen(self, acceptor: Acceptor) -> None:
        self._acceptors.append(acceptor)
        acceptor.resume()
        if self._sweep_timer is None:
            self._sweep()

    def _flush(self) -> None:
        dirty = self._dirty
        for _ in range(min(len(dirty), _FLUSH_BATCH)):
            dirty.popleft().flush()
        if dirty:
            self.loop.call_soon(self._flush)

    def _sweep(self) -> None:
        now, second = self.now(), int(time.time())
        if second != self._second:
            self._second, self.date = second, f"Date: {formatdate(second, usegmt=True)}\r\n"
        is_round = now >= self._round_at
        if is_round:
            self._round_at = now + self._round_s
        for connection in list(self._connections if is_round else self._lingering):
            connection.check(now)
        for acceptor in self._acceptors:
            acceptor.check(now)
        self._sweep_timer = self.loop.call_later(self._sweep_s, self._sweep)
