"""Server connections whose requests may be relayed: bodies in as they arrive, framed responses out as they are.

A server makes these in place of `Connection`. Its `BodyPolicy` says which requests the handler gets at the end of their
heads; every exchange can be given a `BodySink`, or be answered like any other. Invariants: one request at a time, in
order; a client's body is read only as fast as its sink takes it; a response that cannot be told complete from cut short
is cut so that the client sees it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec

from atoll.machinery.meta.status import ApiError
from atoll.machinery.wire import response
from atoll.machinery.wire.connection import NEVER, Connection
from atoll.machinery.wire.exchange import Peer
from atoll.machinery.wire.host import Host
from atoll.machinery.wire.parser import WHOLE, BodyPolicy, ParsedRequest, RequestBody, RequestParser, whole_body
from atoll.machinery.wire.server_exchange import ENDED, NEW, STREAMING, ServerExchange

#: Body bytes that wait for a sink before no more is read of the client.
_HELD_BYTES = 64 * 1024


class BodySink(Protocol):
    """The receiver of a request's body. Called from the event loop, never after `client_gone`."""

    @property
    def full(self) -> bool:
        """No more can be taken now; call `StreamingExchange.resume_body` once it can."""

    def request_data(self, data: bytes) -> None:
        """More of the body, or of the protocol after an upgrade."""

    def request_end(self) -> None:
        """The body ended as its framing said."""

    def client_full(self, full: bool) -> None:
        """The client takes no more for now (or again)."""

    def request_broken(self) -> None:
        """The body will never be complete; the client has been answered, or cut."""

    def client_gone(self) -> None:
        """The client is gone."""


class StreamingExchange(ServerExchange):
    """A request whose body may still be arriving. In addition to `reply` and `start` ... `finish`, a response can be
    sent as `send` ... `end`: bytes that are framed already."""

    _sink: BodySink | None = None
    _end_delivered: bool = False
    if TYPE_CHECKING:
        _connection: StreamingConnection

    @property
    def begun(self) -> bool:
        """Part of a response was sent."""
        return self._state != NEW

    @property
    def client_full(self) -> bool:
        return self._connection.paused

    @property
    def sink_full(self) -> bool:
        """The sink takes no more for now."""
        return self._sink is not None and self._sink.full

    @property
    def wants_body(self) -> bool:
        """More of the body may be parsed."""
        if self.body.ended:
            return False
        return not self.sink_full if self._sink is not None else self.body.held_bytes < _HELD_BYTES

    def open_body(self) -> RequestBody:
        """The framing of the body, also of a request that arrived whole."""
        headers = self.request.headers
        if self.body is WHOLE and ("content-length" in headers or "transfer-encoding" in headers):
            self.body = whole_body(headers, self.request.body)
        return self.body

    def stream_body(self, sink: BodySink) -> None:
        """Give the body to `sink` from now on."""
        self._sink = sink
        if self.body is WHOLE and not self.request.body and not self._end_delivered:
            self._end_delivered = True
            sink.request_end()
            return
        self.body_arrived()
        if not self.body.ended:
            # Until now only a little of the body was parsed.
            self._connection.parse_soon()

    def invite_body(self) -> None:
        """Send `100 Continue` to a client that waits for it."""
        if self.body.awaits_continue:
            self.body.awaits_continue = False
            if not self.old:
                self._connection.send(response.CONTINUE)

    async def read_body(self) -> None:
        """Have the whole body in `request`. Raises CancelledError if it will never be complete."""
        if self.body.ended and not self.body.parts:
            return
        self.invite_body()
        collector = _Collector()
        self.stream_body(collector)
        body = await collector.done
        self._sink, self._end_delivered = None, False
        # Counted until the reply is complete, as every body that is held.
        self._connection.count(len(body))
        self.request = msgspec.structs.replace(self.request, body=body, streamed=False)

    def resume_body(self) -> None:
        """The sink has room again."""
        self._connection.parse_soon()

    def send(self, data: bytes) -> None:
        """Send bytes of a final response as they are."""
        if self._state == NEW:
            self._state = STREAMING
        self._connection.send(data)

    @property
    def stays_open(self) -> bool:
        """The response needs no Connection header: a next request may follow."""
        return self.keep_alive and self.body.ended and not self._connection.host.draining

    def send_whole(self, data: bytes) -> None:
        """Send bytes of a final response that are all of it."""
        self._state = ENDED
        self._connection.send(data)
        self._release_sink()
        self._connection.ended(self)

    def send_interim(self, data: bytes) -> None:
        """Send a complete interim response (1xx)."""
        self._connection.send(data)

    def end(self, *, keep_alive: bool) -> None:
        """The response is complete."""
        if self._state == ENDED:
            return
        self._state = ENDED
        self.keep_alive = self.keep_alive and keep_alive and self.body.ended
        self._release_sink()
        self._connection.ended(self)

    def _release_sink(self) -> None:
        """Forget the sink of a whole body. It knows this exchange: the two would stay until garbage is collected."""
        if self.body.ended:
            self._sink = None

    def cut(self) -> None:
        """Close after what was sent, without the end of a response that will never be complete."""
        if self._state != ENDED:
            self._end_unsent()
            self._connection.close_cut(self)

    def switch_protocols(self) -> None:
        """From now on bytes go to the sink as they arrive, and `send` is the only way back."""
        self._connection.switch_protocols()

    def connection_header(self) -> bytes:
        """The Connection header line of the response, empty for none. Call it when the head is sent, as it depends on
        how much of the body has arrived."""
        if self._connection.host.draining or not self.body.ended:
            self.keep_alive = False
        return b"" if self.keep_alive else b"Connection: close\r\n"

    # Called by the connection

    def body_arrived(self) -> None:
        """More of the body was parsed."""
        sink, body = self._sink, self.body
        if sink is None:
            return
        if body.parts:
            size = body.held_bytes
            sink.request_data(body.take())
            self._connection.count(-size)
        if body.ended and not self._end_delivered:
            self._end_delivered = True
            if self.request.body:
                sink.request_data(self.request.body)
            sink.request_end()

    def client_flow(self, full: bool) -> None:
        """The transport to the client filled up, or has room again."""
        if self._sink is not None:
            self._sink.client_full(full)

    def upgraded_data(self, data: bytes) -> None:
        """Bytes after an upgrade."""
        if self._sink is not None:
            self._sink.request_data(data)

    def drop_sink(self) -> None:
        """The body is broken, and the client has been answered."""
        self._end_unsent()
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.request_broken()
        if self._task is not None:
            self._task.cancel()

    def gone(self) -> None:
        sink, self._sink = self._sink, None
        super().gone()
        if sink is not None:
            sink.client_gone()

    async def _run(self, work: Coroutine[Any, Any, None]) -> None:
        """Unlike that of other exchanges, a task may leave the response to the sink."""
        try:
            await work
        except asyncio.CancelledError:
            if self._sink is None:
                self.abort()
            elif self._state != ENDED:
                self.cut()
            raise
        except Exception as error:
            self.failed(error)
        else:
            if self._sink is None:
                self._check_answered()


class _Collector:
    """A sink that keeps the body, whose size the parser bounds."""

    full = False

    def __init__(self) -> None:
        self.done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._parts: list[bytes] = []

    def request_data(self, data: bytes) -> None:
        self._parts.append(data)

    def request_end(self) -> None:
        if not self.done.done():
            self.done.set_result(b"".join(self._parts))

    def client_full(self, full: bool) -> None: ...

    def request_broken(self) -> None:
        self.done.cancel()

    def client_gone(self) -> None:
        self.done.cancel()


class StreamingConnection(Connection):
    """A Connection that hands over requests at the end of their heads, as its policy says."""

    __slots__ = ("_policy", "_upgraded")

    def __init__(self, server: Host, policy: BodyPolicy) -> None:
        super().__init__(server)
        self._policy = policy
        self._upgraded = False

    # asyncio.Protocol

    def pause_writing(self) -> None:
        super().pause_writing()
        self._client_flow(True)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._client_flow(False)

    # For exchanges

    def count(self, size_bytes: int) -> None:
        """Count body bytes held outside of the parser (negative: taken by a sink)."""
        self.host.account(size_bytes)

    def parse_soon(self) -> None:
        """Parse on in a turn of its own: the sink may call in the middle of its work."""
        if not self.lost:
            self.host.loop.call_soon(self._pump)

    def switch_protocols(self) -> None:
        """Give everything that follows, and what already followed the request, to the sink of the active exchange."""
        exchange = cast(StreamingExchange, self._active)
        self._upgraded = True
        self._deadline = NEVER
        held = b"".join([exchange.body.after_upgrade, *self._held])
        self._held.clear()
        self._held_bytes = 0
        if held:
            exchange.upgraded_data(held)
        self._pump()

    def close_cut(self, exchange: StreamingExchange) -> None:
        """Close after what was written, without the end of a response."""
        if self._active is not exchange:
            return
        self._release(exchange)
        if not self.lost and not self._closing:
            self._close()

    # Internal

    def _hold(self, data: bytes) -> None:
        if self._upgraded and self._active is not None:
            cast(StreamingExchange, self._active).upgraded_data(data)
            self._hold_reading()
        else:
            super()._hold(data)

    def _body_done(self, exchange: ServerExchange) -> bool:
        body = exchange.body
        if not body.ended and not self.lost:
            # The response came first: what the client still sends must not cost it the response.
            self._release(exchange)
            self._close_lingering()
            return False
        self.host.account(-body.held_bytes)
        body.take()
        return True

    def _make_parser(self, peer: Peer) -> RequestParser:
        return RequestParser(self.limits, peer, self.host.account, self._policy)

    def _begin(self, parsed: ParsedRequest) -> None:
        exchange = StreamingExchange(self, parsed.request, parsed.keep_alive, parsed.old, parsed.body)
        self._active = exchange
        self._deadline = NEVER if parsed.body.ended else self.host.now() + self.limits.body_timeout_s
        try:
            self.host.handler(exchange)
        except Exception as error:
            exchange.failed(error)

    def _pump(self) -> None:
        if self._pumping or self.lost:
            return
        self._pumping = True
        parser = self._parser
        try:
            while not self._closing and not self.lost:
                if self._active is None and parser.ready:
                    self._begin(parser.ready.pop(0))
                elif not self._held or not self._parse_piece():
                    break
        finally:
            self._pumping = False
        if self._closing or self.lost:
            return
        if self._active is None:
            self._rest()
        elif parser.refusal is not None and not parser.ready:
            self._refuse_active(cast(StreamingExchange, self._active), parser.refusal)
        elif self._upgraded or self._held or self._reading_paused:
            self._hold_reading()

    def _parse_piece(self) -> bool:
        """Parse one piece of what was received; False if none may be parsed now."""
        parser, active = self._parser, cast("StreamingExchange | None", self._active)
        if parser.ended or (active is not None and not active.wants_body):
            return False
        piece = self._held.pop(0)
        self._held_bytes -= len(piece)
        parser.feed(piece)
        if active is not None:
            active.body_arrived()
            if active.body.ended:
                self._deadline = NEVER
            elif active.body.unlimited:
                # A body without limit may take any time, as long as it makes progress.
                self._deadline = self.host.now() + self.limits.body_timeout_s
        return True

    def _refuse_active(self, exchange: StreamingExchange, error: ApiError) -> None:
        """The rest of a request that is being served is malformed or too large."""
        if exchange.body.ended:
            return  # The refusal is of the next request, which is refused in its turn.
        began = exchange.begun
        self._drop_active(exchange)
        if began:
            self._close()
        else:
            self._refuse(error)

    def _drop_active(self, exchange: StreamingExchange) -> None:
        self._release(exchange)
        exchange.drop_sink()

    def _release(self, exchange: ServerExchange) -> None:
        """The active exchange is over: uncount the bytes held for it."""
        self.host.account(-exchange.body.held_bytes - len(exchange.request.body))
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
        """Read from the socket only while what was read is taken."""
        if self._upgraded:
            active = cast("StreamingExchange | None", self._active)
            hold = active is not None and active.sink_full
        else:
            hold = self._held_bytes > self.limits.pipelined_bytes
        if hold == self._reading_paused or self.lost:
            return
        self._reading_paused = hold
        if hold:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _client_flow(self, full: bool) -> None:
        if self._active is not None:
            cast(StreamingExchange, self._active).client_flow(full)
