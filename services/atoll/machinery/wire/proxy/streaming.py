"""The server's side of one connection whose requests are passed on: bodies in as they come, answers out as they are.

The front proxy's server makes these in place of `Connection`; its handler gets a StreamingExchange once the head of a
request is whole, and gives it a BodySink, or answers by itself. Invariants: one request at a time, in order; what a client
sends is read only as fast as it is taken; an answer that cannot be told whole from cut short is cut so that the client
sees it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec

from atoll.machinery.wire import response
from atoll.machinery.wire.connection import NEVER, Connection
from atoll.machinery.wire.exchange import Headers, Peer
from atoll.machinery.wire.parser import ParsedRequest, RequestParser
from atoll.machinery.wire.proxy.head_parser import HeadParser, RequestBody
from atoll.machinery.wire.server_exchange import ENDED, NEW, STREAMING, ServerExchange

if TYPE_CHECKING:
    from atoll.machinery.wire.server import Server

#: Body bytes that wait for a sink before the client is read no further.
_HELD_BYTES = 64 * 1024


class BodySink(Protocol):
    """What takes a request's body and hears of its client. All calls come from the event loop, none after `gone`."""

    @property
    def full(self) -> bool:
        """No more can be taken now; `StreamingExchange.go_on` tells when it can."""

    def part(self, data: bytes) -> None:
        """More of the body, or of what is spoken after an upgrade."""

    def whole(self) -> None:
        """The body ended as its framing said."""

    def client_full(self, full: bool) -> None:
        """The client takes no more for now (or again)."""

    def broken(self) -> None:
        """The body will never be whole; the client is answered already, or cut."""

    def gone(self) -> None:
        """The client is gone."""


class StreamingExchange(ServerExchange):
    """A request whose body may still be on its way. Beside `reply` and the like there is `send` ... `end`: bytes that
    are framed already."""

    __slots__ = ("_sink", "_told_whole", "body")

    _connection: StreamingConnection

    def __init__(self, connection: StreamingConnection, parsed: ParsedRequest, body: RequestBody) -> None:
        super().__init__(connection, parsed)
        self.body = body
        self._sink: BodySink | None = None
        self._told_whole = False

    @property
    def begun(self) -> bool:
        """Something was answered."""
        return self._state != NEW

    @property
    def client_full(self) -> bool:
        return self._connection.paused

    @property
    def crowded(self) -> bool:
        """The sink takes no more for now."""
        return self._sink is not None and self._sink.full

    @property
    def wants_body(self) -> bool:
        """More of the body may be parsed."""
        if self.body.ended:
            return False
        return not self.crowded if self._sink is not None else self.body.held_bytes < _HELD_BYTES

    def take(self, sink: BodySink) -> None:
        """Give the body to `sink` from now on."""
        self._sink = sink
        self.body_came()
        if not self.body.ended:
            # What came meanwhile was not parsed further than a little.
            self._connection.feed_on()

    def invite(self) -> None:
        """Tell a client that waits for it to send the body."""
        if self.body.awaits_continue:
            self.body.awaits_continue = False
            if not self.old:
                self._connection.send(response.CONTINUE)

    async def whole(self) -> None:
        """Have the whole body in `request`. Raises CancelledError if it never gets whole."""
        self.invite()
        collector = _Collector()
        self.take(collector)
        body = await collector.done
        # Counted until the reply is complete, as every body that is held.
        self._connection.count(len(body))
        self.request = msgspec.structs.replace(self.request, body=body)

    def go_on(self) -> None:
        """The sink has room again."""
        self._connection.feed_on()

    def send(self, data: bytes) -> None:
        """Send bytes of a final answer as they are."""
        if self._state == NEW:
            self._state = STREAMING
        self._connection.send(data)

    def send_early(self, data: bytes) -> None:
        """Send a whole interim response (1xx)."""
        self._connection.send(data)

    def end(self, *, keep_alive: bool) -> None:
        """The answer is complete."""
        if self._state == ENDED:
            return
        self._state = ENDED
        self.keep_alive = self.keep_alive and keep_alive and self.body.ended
        self._connection.ended(self)

    def cut(self) -> None:
        """The answer will never be complete: what was sent still leaves, then the connection closes without its end."""
        if self._state != ENDED:
            self._end_unsent()
            self._connection.close_cut(self)

    def splice(self) -> None:
        """From now on bytes go to the sink as they come, and `send` is all there is the other way."""
        self._connection.splice()

    def closing_line(self) -> bytes:
        """The Connection header that the answer has to have, empty for none. Asked once the body's state matters."""
        if self._connection.draining or not self.body.ended:
            self.keep_alive = False
        return b"" if self.keep_alive else b"Connection: close\r\n"

    def reply(self, status: int, headers: Headers, body: bytes | Sequence[bytes] = b"") -> None:
        """As for every exchange; a client that is still sending is not listened to for another request."""
        if not self.body.ended:
            self.keep_alive = False
        super().reply(status, headers, body)

    # Called by the connection

    def body_came(self) -> None:
        """More was parsed."""
        sink, body = self._sink, self.body
        if sink is None:
            return
        if body.parts:
            size = body.held_bytes
            sink.part(body.take())
            self._connection.count(-size)
        if body.ended and not self._told_whole:
            self._told_whole = True
            sink.whole()

    def flow(self, full: bool) -> None:
        """The client's side filled up, or has room again."""
        if self._sink is not None:
            self._sink.client_full(full)

    def spliced(self, data: bytes) -> None:
        """Bytes after an upgrade."""
        if self._sink is not None:
            self._sink.part(data)

    def drop_sink(self) -> None:
        """The body is broken and the client was told."""
        self._end_unsent()
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.broken()
        if self._task is not None:
            self._task.cancel()

    def gone(self) -> None:
        sink, self._sink = self._sink, None
        super().gone()
        if sink is not None:
            sink.gone()

    async def _run(self, work: Coroutine[Any, Any, None]) -> None:
        """Unlike others, a task may leave the answer to the sink."""
        try:
            await work
        except asyncio.CancelledError:
            if self._state != ENDED:
                self.cut()
            raise
        except Exception as error:
            self.failed(error)


class _Collector:
    """A sink that keeps the body, whose size the parser bounds."""

    full = False

    def __init__(self) -> None:
        self.done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._parts: list[bytes] = []

    def part(self, data: bytes) -> None:
        self._parts.append(data)

    def whole(self) -> None:
        if not self.done.done():
            self.done.set_result(b"".join(self._parts))

    def client_full(self, full: bool) -> None: ...

    def broken(self) -> None:
        self.done.cancel()

    def gone(self) -> None:
        self.done.cancel()


class StreamingConnection(Connection):
    """As Connection, with handlers called at the end of a head."""

    __slots__ = ("_spliced",)

    _parser: HeadParser

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self._spliced = False

    # asyncio.Protocol

    def data_received(self, data: bytes) -> None:
        if self._spliced and self._active is not None:
            cast(StreamingExchange, self._active).spliced(data)
            self._hold_reading()
            return
        super().data_received(data)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._flow(True)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._flow(False)

    # For exchanges

    def count(self, size_bytes: int) -> None:
        """Count body bytes that are held beside those not taken yet (negative: taken and gone)."""
        self._server.account(size_bytes)

    def feed_on(self) -> None:
        """Parse on in a turn of its own, as the sink may be in the middle of something."""
        if not self.lost:
            self._server.loop.call_soon(self._pump)

    def splice(self) -> None:
        """Give everything that comes, and what came behind the request, to the active exchange's sink."""
        exchange = cast(StreamingExchange, self._active)
        self._spliced = True
        self._deadline = NEVER
        held = b"".join([exchange.body.behind, *self._held])
        self._held.clear()
        self._held_bytes = 0
        if held:
            exchange.spliced(held)
        self._pump()

    def close_cut(self, exchange: StreamingExchange) -> None:
        """Close behind what was written, without the end of an answer."""
        if self._active is not exchange:
            return
        self._release(exchange)
        if not self.lost and not self._closing:
            self._close()

    def ended(self, exchange: ServerExchange) -> None:
        if self._active is exchange:
            body = cast(StreamingExchange, exchange).body
            if not body.ended and not self.lost:
                # It was answered before it was heard out, and what it still sends must not lose it the answer.
                self._release(cast(StreamingExchange, exchange))
                self._close_lingering()
                return
            self._server.account(-body.held_bytes)
            body.take()
        super().ended(exchange)

    # Inside

    def _make_parser(self, peer: Peer) -> RequestParser:
        return HeadParser(self.limits, peer, self._server.account)

    def _begin(self, parsed: ParsedRequest) -> None:
        exchange = StreamingExchange(self, parsed, self._parser.inflows.popleft())
        self._active = exchange
        self._deadline = NEVER if exchange.body.ended else self._server.now() + self.limits.body_timeout_s
        try:
            self._server.handler(exchange)
        except Exception as error:
            exchange.failed(error)

    def _pump(self) -> None:
        if self._pumping or self.lost:
            return
        self._pumping = True
        try:
            while not self._closing and not self.lost and self._step():
                pass
        finally:
            self._pumping = False
        if self._closing or self.lost:
            return
        if self._active is None:
            self._rest()
        elif self._parser.refusal is not None and not self._parser.ready:
            self._refuse_under_way(cast(StreamingExchange, self._active))
        else:
            self._hold_reading()

    def _step(self) -> bool:
        """Begin the next request, or parse one more piece; False if there is nothing to do now."""
        parser, active = self._parser, cast("StreamingExchange | None", self._active)
        if active is None and parser.ready:
            self._begin(parser.ready.popleft())
            return True
        if not self._held or parser.ended or (active is not None and not active.wants_body):
            return False
        piece = self._held.popleft()
        self._held_bytes -= len(piece)
        parser.feed(piece)
        if active is not None:
            active.body_came()
            if active.body.ended:
                self._deadline = NEVER
        return True

    def _refuse_under_way(self, exchange: StreamingExchange) -> None:
        """The rest of a request that is served already cannot be: its body is not what it said, or too long."""
        if exchange.body.ended:
            return  # It is the request behind it, whose turn comes.
        error = self._parser.refusal
        assert error is not None
        began = exchange.begun
        self._drop_active(exchange)
        if began:
            self._close()
        else:
            self._refuse(error)

    def _drop_active(self, exchange: StreamingExchange) -> None:
        self._release(exchange)
        exchange.drop_sink()

    def _release(self, exchange: StreamingExchange) -> None:
        """The active exchange is over, and so is what is held of it."""
        self._server.account(-exchange.body.held_bytes - len(exchange.request.body))
        exchange.body.take()
        self._active = None

    def _expire(self) -> None:
        exchange = cast("StreamingExchange | None", self._active)
        if exchange is None:
            super()._expire()
            return
        began = exchange.begun
        self._drop_active(exchange)
        if began:
            self.cut()
        else:
            super()._expire()

    def _hold_reading(self) -> None:
        """Read on only while what came is taken."""
        active = cast("StreamingExchange | None", self._active)
        if self._spliced:
            crowded = active is not None and active.crowded
        else:
            crowded = self._held_bytes > self.limits.pipelined_bytes
        if crowded == self._reading_paused or self.lost:
            return
        self._reading_paused = crowded
        if crowded:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _flow(self, full: bool) -> None:
        if self._active is not None:
            cast(StreamingExchange, self._active).flow(full)

    def _bodies_held(self) -> int:
        held = sum(inflow.held_bytes for inflow in self._parser.inflows)
        if self._active is not None:
            held += cast(StreamingExchange, self._active).body.held_bytes + len(self._active.request.body)
        return held
