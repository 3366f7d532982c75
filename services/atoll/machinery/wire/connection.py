"""One accepted connection: received bytes to exchanges, replies to the transport, in order.

Made by the server for each socket. It has one parser and at most one exchange at a time; bytes of later requests wait
unparsed. Invariants: replies leave in the order of their requests; a refused connection is closed; every wait has a
deadline that the server's sweep enforces, so that no connection has a timer.
"""

from __future__ import annotations

import asyncio
import math
import select
from collections.abc import Callable, Coroutine
from typing import Any, cast

import structlog

from atoll.machinery.meta.status import ApiError
from atoll.machinery.wire import read_buffer, response
from atoll.machinery.wire.exchange import HttpRequest, Peer
from atoll.machinery.wire.host import Flushable, Host
from atoll.machinery.wire.parser import HEAD, IDLE, WHOLE, ParsedRequest, RequestParser
from atoll.machinery.wire.peer import peer_of
from atoll.machinery.wire.server_exchange import ServerExchange

log = structlog.get_logger()

#: Fed to the parser at a time, which bounds how many pipelined requests can be parsed before the first is answered.
_SLICE_BYTES = 16 * 1024
#: A deadline that never passes.
NEVER = math.inf
#: Refusals of clients that are likely to have more on the way: request too large, or too much of it at a time.
_SENDING_ON = frozenset((413, 414, 431, 503))
#: Looks of the sweep in a row at which nothing was written before, after which a connection is quiet.
QUIET_LOOKS = 4


class Connection(asyncio.Protocol):
    """The server's side of one connection.

    `lost` is true once the client is gone or was cut; `paused` while the transport holds more than its high-water mark.
    Public attributes are read by the exchanges of this connection.
    """

    __slots__ = (
        "_active",
        "_closing",
        "_deadline",
        "_held",
        "_held_bytes",
        "_linger",
        "_parser",
        "_pumping",
        "_quiet_looks",
        "_reading_paused",
        "_seen_taken",
        "_stalled_since",
        "_timed_phase",
        "_transport",
        "_waiters",
        "_written_bytes",
        "host",
        "limits",
        "lost",
        "paused",
    )

    _transport: asyncio.Transport
    _parser: RequestParser

    def __init__(self, server: Host) -> None:
        self.limits = server.limits
        self.lost = True
        self.paused = False
        self.host = server
        self._active: ServerExchange | None = None
        self._held: list[memoryview] = []
        self._held_bytes = 0
        self._closing = False
        self._linger = False
        self._pumping = False
        self._reading_paused = False
        self._deadline = NEVER
        self._timed_phase = HEAD
        self._written_bytes = 0
        self._seen_taken = self._quiet_looks = 0
        self._stalled_since = 0.0
        self._waiters: list[asyncio.Future[None]] = []

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.lost = False
        self._parser = self._make_parser(peer_of(transport))
        self._stalled_since = self.host.now()
        self._deadline = self._stalled_since + self.limits.header_timeout_s
        self.host.opened(self)
        read_buffer.give_back(transport)

    def data_received(self, data: bytes) -> None:
        if self._active is None and not self._held and len(data) <= _SLICE_BYTES and not self._closing:
            self._parser.feed(data)
            self._pump()
        elif self._closing:
            self._drop(len(data))
        else:
            self._hold(data)

    def _hold(self, data: bytes) -> None:
        """Keep bytes that may follow a request in progress."""
        view = memoryview(data)
        self._held.extend(view[at : at + _SLICE_BYTES] for at in range(0, len(data), _SLICE_BYTES))
        self._held_bytes += len(data)
        self._pump()
        if self._held_bytes > self.limits.pipelined_bytes and not self._reading_paused and not self.lost:
            self._reading_paused = True
            self._transport.pause_reading()

    def eof_received(self) -> None:
        """A half-closed client counts as gone, as in Go's server: the transport closes itself."""

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose()
        self.host.closed(self)

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        self._wake()

    # For exchanges

    def send(self, data: bytes) -> None:
        """Write now; dropped when the client is gone."""
        if not self.lost:
            self._written_bytes += len(data)
            if len(data) <= self.limits.piece_bytes:
                self._transport.write(data)
            else:
                self._send_pieces(data)

    def send_parts(self, *parts: bytes) -> None:
        """Write parts of which one is too long to copy."""
        if not self.lost:
            self._written_bytes += sum(map(len, parts))
            self._transport.writelines(parts)

    def _send_pieces(self, data: bytes) -> None:
        view, size = memoryview(data), self.limits.piece_bytes
        for start in range(0, len(data), size):
            self._transport.write(view[start : start + size])

    def flush_soon(self, exchange: Flushable) -> None:
        """Call `exchange.flush` once at the end of this loop turn."""
        self.host.flush_soon(exchange)

    def unsent_bytes(self) -> int:
        """Bytes held by the transport; 0 below its high-water mark, which saves a call for each write."""
        return self._transport.get_write_buffer_size() if self.paused and not self.lost else 0

    async def writable(self) -> None:
        """Wait until the transport fell below its low-water mark. Raises ConnectionResetError when it is lost."""
        waiter = self.host.loop.create_future()
        self._waiters.append(waiter)
        await waiter
        if self.lost:
            raise ConnectionResetError("client is gone")

    def track(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work` as a task of the server."""
        return self.host.track(work)

    def ended(self, exchange: Flushable) -> None:
        """The reply is complete: release the request's body, and go on with the next request or close."""
        active = self._active
        if active is None or active is not exchange:
            return
        if active.body is not WHOLE and not self._body_done(active):
            return
        self._active = None
        if active.request.body:
            self.host.account(-len(active.request.body))
        if self.lost:
            return
        if not active.keep_alive or self.host.draining:
            self._close()
        elif not self._pumping:
            if self._held or self._parser.phase or self._parser.refusal or self._parser.ready:
                # In a turn of its own: the next handler must not run inside of the task that ended this exchange.
                self.host.loop.call_soon(self._pump)
            else:
                self._time()

    def cut(self) -> None:
        """Close at once, without the rest of what was written."""
        if not self.lost:
            transport = self._transport
            self._lose()
            transport.abort()

    # For the server

    def cut_request(self, refused: Callable[[HttpRequest], bool]) -> None:
        """Cut the connection if its request in progress is refused."""
        if self._active is not None and refused(self._active.request):
            self.cut()

    @property
    def is_new(self) -> bool:
        """Whether nothing of its first request has arrived yet."""
        return self._parser.phase == IDLE != self._timed_phase and self._active is None and not self._closing

    def drain(self) -> None:
        """Close if idle; otherwise tell the exchange that the server drains.

        Bytes that wait in the socket may be a request, whose client would not learn whether it was served: it is
        answered first.
        """
        if self._active is not None:
            self._active.drain_begun()
        elif not self._closing and self._parser.phase == IDLE and not _has_unread(self._transport):
            self._close()

    def check(self, now: float) -> None:
        """Cut the connection if one of its deadlines passed. Called by the sweep."""
        if self.lost:
            return
        if now >= self._deadline:
            self._expire()
            return
        unsent = self._transport.get_write_buffer_size()
        taken = self._written_bytes - unsent
        if not unsent or taken > self._seen_taken:
            self._stalled_since = now
        elif now - self._stalled_since >= self.limits.stall_timeout_s:
            log.info("stalled client disconnected", unsent_bytes=unsent)
            self.host.counts.cut_clients += 1
            self.cut()
        if taken != self._seen_taken:
            self._seen_taken, self._quiet_looks = taken, 0
        elif self._quiet_looks < QUIET_LOOKS:
            self._quiet_looks += 1
            if self._quiet_looks == QUIET_LOOKS and not self.lost:
                self._slim()

    # Internal

    def _slim(self) -> None:
        """Keep what a quiet connection needs: what was kept for its next request is made again when one comes."""
        self._parser.forget_heads()
        active = self._active
        if active is not None and active.request.header_set is not None:
            active.request.header_set.forget()
        read_buffer.give_back(self._transport)

    def _body_done(self, exchange: ServerExchange) -> bool:
        """Whether the connection can go on behind the body of an answered request."""
        return True

    def _make_parser(self, peer: Peer) -> RequestParser:
        return RequestParser(self.limits, peer, self.host.account)

    def _pump(self) -> None:
        """Serve complete requests until an exchange stays active or none is left."""
        if self._pumping or self.lost:
            return
        self._pumping = True
        parser = self._parser
        try:
            while self._active is None and not self._closing:
                if parser.ready:
                    self._begin(parser.ready.pop(0))
                elif self._held and not parser.ended:
                    piece = self._held.pop(0)
                    self._held_bytes -= len(piece)
                    parser.feed(piece)
                else:
                    break
        finally:
            self._pumping = False
        if self._active is None and not self._closing and not self.lost:
            self._rest()

    def _begin(self, parsed: ParsedRequest) -> None:
        exchange = ServerExchange(self, parsed.request, parsed.keep_alive, parsed.old, parsed.body)
        self._active = exchange
        self._deadline = NEVER
        try:
            self.host.handler(exchange)
        except Exception as error:
            exchange.failed(error)

    def _rest(self) -> None:
        """No request is complete: send a refusal or `100 Continue`, and set the deadline of the current phase."""
        parser = self._parser
        if parser.refusal is not None:
            self._refuse(parser.refusal)
            return
        if parser.awaits_continue:
            parser.awaits_continue = False
            self.send(response.CONTINUE)
        if self._reading_paused:
            self._reading_paused = False
            self._transport.resume_reading()
        if parser.phase != self._timed_phase or self._deadline == NEVER:
            self._time()

    def _time(self) -> None:
        """Set the deadline of the phase. It runs from the phase's begin, so that trickling bytes buys no time."""
        phase = self._parser.phase
        if phase != self._timed_phase or self._deadline == NEVER:
            self._timed_phase = phase
            self._deadline = self.host.now() + self.host.phase_timeouts_s[phase]

    def _refuse(self, error: ApiError) -> None:
        self.send(response.refusal(error, self.host.date))
        if error.code in _SENDING_ON and not self.lost:
            self._close_lingering()
        else:
            self._close()

    def _close_lingering(self) -> None:
        """Read and drop for a while: closing with unread bytes resets the connection, and the client would miss the
        response."""
        self._closing = self._linger = True
        self._deadline = self.host.now() + self.limits.linger_s
        self.host.lingers(self)
        self._held.clear()
        if self._reading_paused:
            self._reading_paused = False
            self._transport.resume_reading()

    def _drop(self, size: int) -> None:
        """Count what a lingering client sends; close above two bodies."""
        self._held_bytes += size
        if self._linger and self._held_bytes > 2 * self.limits.body_bytes:
            self._close()

    def _expire(self) -> None:
        if self._closing and not self._linger:
            self.cut()
            return
        if not self._closing and self._parser.phase != IDLE:
            error = ApiError("the request did not arrive in time", code=408, reason="")
            self.send(response.refusal(error, self.host.date))
        self._close()

    def _close(self) -> None:
        """Close after what was written is sent; a client that does not take it is cut after the stall limit."""
        self._closing = True
        self._linger = False
        self._held.clear()
        self._deadline = self.host.now() + self.limits.stall_timeout_s
        if not self.lost:
            self._transport.close()

    def _lose(self) -> None:
        if self.lost:
            return
        self.lost = True
        self.host.account(-self._bodies_held())
        exchange, self._active = self._active, None
        self._parser.close()
        self._held.clear()
        self._wake()
        if exchange is not None:
            exchange.gone()

    def _bodies_held(self) -> int:
        """Body bytes that the server counts for this connection."""
        held, active = self._parser.held_bytes(), self._active
        return held if active is None else held + active.body.held_bytes + len(active.request.body)

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


def _has_unread(transport: asyncio.Transport) -> bool:
    """Whether bytes, or the end of the stream, wait in the socket. A stream of a shared connection has no socket."""
    found = transport.get_extra_info("socket")
    if found is None or found.fileno() < 0:
        return False
    poll = select.poll()
    poll.register(found.fileno(), select.POLLIN)
    return bool(poll.poll(0))
