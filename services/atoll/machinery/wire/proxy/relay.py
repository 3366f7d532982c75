"""One relayed request: its body to a backend as it arrives, the response to the client as it arrives.

The front proxy's handler makes one for each request that a shard answers, the egress forwarder one for each request to
a mount, a virtual resource or a remote shard. A relay hands bytes over between the client's exchange and the backend's
connection, and stops reading on one side while the other takes none. Invariants: a request is sent a second time only
if nothing of it can have reached the backend, or if a second time has no effect (GET, HEAD and OPTIONS without a body,
on a pooled connection that ended before any byte of a response); a response cut short on one side is cut short on the
other; when one side leaves, the other is closed.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

import structlog

from atoll.machinery.wire.proxy import framing
from atoll.machinery.wire.proxy.backend import Backend, BackendUnreachable
from atoll.machinery.wire.proxy.backend_connection import BackendConnection, ResponseHead
from atoll.machinery.wire.proxy.streaming import StreamingExchange
from atoll.machinery.wire.response import BODILESS

log = structlog.get_logger()

#: Methods that may be sent again when a pooled connection ended without a response.
_SAFE = frozenset(("GET", "HEAD", "OPTIONS"))


class RelayOwner(Protocol):
    """The code that began a relay. Exactly one of `failed` and `done` is called, once."""

    def check(self, head: ResponseHead) -> None:
        """Look at the head of the response before any of it is sent. What this raises ends in `failed`.

        Not called for a whole response of a backend that the operator trusts.
        """

    def failed(self, error: Exception) -> None:
        """No response was begun, and the client waits for one.

        BackendUnreachable: nothing was sent. TimeoutError: no response in time. Anything else: the outcome is unknown.
        """

    def done(self, status: int) -> None:
        """The relay ended after a response with this status; 0: the client left before one."""


class Relay:
    """Implements `streaming.BodySink` and `backend_connection.ResponseSink`.

    `endless`: the response is a watch, which ends when the server drains.
    """

    __slots__ = (
        "_backend",
        "_chunks",
        "_connection",
        "_ending",
        "_endless",
        "_exchange",
        "_head",
        "_owner",
        "_repeatable",
        "_request_ended",
        "_status",
        "_unsent",
        "_upgraded",
        "upgrades",
    )

    def __init__(
        self, exchange: StreamingExchange, backend: Backend, head: bytes, owner: RelayOwner, *, endless: bool = False
    ) -> None:
        self._exchange, self._backend, self._head = exchange, backend, head
        self._owner: RelayOwner | None = owner
        body = exchange.body
        self.upgrades = body.upgrades and not exchange.old
        self._connection: BackendConnection | None = None
        self._unsent = head
        self._repeatable = exchange.request.method in _SAFE and not body.announced and not self.upgrades
        self._request_ended = self._upgraded = self._ending = False
        #: The response's content is framed in chunks here.
        self._chunks = False
        self._endless = endless
        self._status = 0

    def start(self) -> None:
        """Send the request, at once if there is an idle connection. A watch takes none that was made large, and if it
        can be sent again a stream."""
        backend, endless = self._backend, self._endless
        stream = endless and self._repeatable
        if stream:
            connection = backend.stream()
        elif endless:
            connection = backend.slim_connection()
        else:
            connection = backend.idle_connection()
        if connection is not None:
            self.send_over(connection)
        else:
            self._exchange.spawn(self._connect(fresh=endless, stream=stream))

    def send_over(self, connection: BackendConnection) -> None:
        """Send the request over a connection of the backend."""
        if self._exchange.old:
            self._exchange.keep_alive = False
        self._connection = connection
        connection.begin(self, head_only=self._exchange.request.method == "HEAD", endless=self._endless)
        if self._exchange.client_full:
            connection.pause(True)
        self._exchange.stream_body(self)
        if self._request_ended and self._unsent:
            self.request_end()  # Sent again: the body, which is empty, had ended before.
        elif self._unsent and self._connection is connection:
            head, self._unsent = self._unsent, b""
            connection.write(head)

    def cut(self) -> None:
        """End both sides without the rest of the response."""
        self._leave_backend()
        self._exchange.cut()
        self._report(self._status)

    # BodySink: the client's side

    @property
    def full(self) -> bool:
        return self._connection is None or self._connection.full

    def request_data(self, data: bytes) -> None:
        if self._connection is None:
            return
        if not self._upgraded and self._exchange.body.length_bytes is None:
            data = framing.chunk(data)
        head, self._unsent = self._unsent, b""
        self._connection.write(head + data if head else data)

    def request_end(self) -> None:
        connection = self._connection
        self._request_ended = True
        if connection is None:
            return
        tail = framing.LAST_CHUNK if self._exchange.body.length_bytes is None else b""
        head, self._unsent = self._unsent, b""
        if head or tail:
            connection.write(head + tail)
        if not self._status:
            connection.deadline_s = asyncio.get_running_loop().time() + self._backend.limits.head_timeout_s

    def client_full(self, full: bool) -> None:
        if self._connection is not None:
            self._connection.pause(full)

    def request_broken(self) -> None:
        self._leave_backend()
        self._report(0)

    def client_gone(self) -> None:
        self._leave_backend()
        self._report(0)

    # ResponseSink: the backend's side

    def interim(self, head: ResponseHead) -> None:
        exchange = self._exchange
        if exchange.old:
            return
        if head.status == 100:
            if not exchange.body.awaits_continue:
                return
            exchange.body.awaits_continue = False
        exchange.send_interim(framing.response_head(head.first, head.headers, b""))

    def response_head(self, head: ResponseHead, data: bytes) -> None:
        exchange, connection, owner = self._exchange, self._connection, self._owner
        if connection is None or owner is None:
            return
        if exchange.old and head.chunked and not connection.reframes:
            self.response_lost(ValueError("a chunked response to HTTP/1.0"), begun=True)
            return
        try:
            owner.check(head)
        except Exception as error:
            self._fail(error)
            return
        # Once a response has begun its request is not sent again.
        self._status, self._head = head.status, b""
        upgrade = head.status == 101
        if head.until_close:
            exchange.keep_alive = False
        closing = b"" if upgrade else exchange.connection_header()
        if not connection.reframes:
            exchange.send(framing.response_head(head.first, head.headers, closing, upgrade=upgrade) + data)
        else:
            # A client of HTTP/1.0 gets the content until the connection closes.
            has_body = head.status not in BODILESS and exchange.request.method != "HEAD"
            self._chunks = head.chunked and has_body and not exchange.old
            closing += b"Transfer-Encoding: chunked\r\n" if self._chunks else b""
            exchange.send(framing.untrusted_head(head.first, head.headers, closing, upgrade=upgrade))
            self.response_data(data)
        if upgrade:
            self._upgraded = True
            exchange.switch_protocols()
        elif head.chunked and self._endless:
            exchange.on_drain(self._end_watch)

    def passes_whole(self) -> bool:
        return self._request_ended and self._exchange.stays_open and not self.upgrades

    def whole_response(self, status: int, data: bytes) -> None:
        connection, self._connection = self._connection, None
        assert connection is not None
        # First what the client waits for: the next request of its connection is served in a later turn.
        self._exchange.send_whole(data)
        self._backend.release(connection)
        owner, self._owner = self._owner, None
        if owner is not None:
            owner.done(status)

    def response_data(self, data: bytes) -> None:
        if self._chunks:
            data = framing.chunk(data) if data else data
        self._exchange.send(data)
        if self._ending:
            self._end_watch()

    def response_end(self) -> None:
        connection, self._connection = self._connection, None
        assert connection is not None
        if self._upgraded:
            self._exchange.cut()
            self._backend.release(connection)
        else:
            if not self._request_ended:
                # The rest of the request would be taken for the next one.
                connection.abort()
            self._backend.release(connection)
            if self._chunks:
                self._exchange.send(framing.LAST_CHUNK)
            self._exchange.end(keep_alive=True)
        self._report(self._status)

    def response_lost(self, error: Exception, *, begun: bool) -> None:
        connection = self._connection
        if connection is None:
            return
        self._leave_backend()
        if self._exchange.begun:
            self._exchange.cut()
            self._report(self._status)
            log.info("response cut short", backend=self._backend.authority, reason=str(error))
        elif connection.used and not begun and self._repeatable:
            self._repeatable = False
            self._unsent = self._head
            self._exchange.spawn(self._connect(fresh=True))
        else:
            self._fail(error)

    def backend_writable(self) -> None:
        self._exchange.resume_body()

    # Internal

    async def _connect(self, *, fresh: bool = False, stream: bool = False) -> None:
        try:
            connection = await self._backend.connect(fresh=fresh, stream=stream)
        except BackendUnreachable as error:
            self._fail(error)
            return
        except asyncio.CancelledError:
            self._report(0)  # The client is gone, or its request was refused.
            raise
        if self._exchange.closed:
            self._backend.release(connection)
        else:
            self.send_over(connection)

    def _end_watch(self) -> None:
        """End a watch after a complete chunk, so that its client sees the end of a watch and not a broken response."""
        connection = self._connection
        if connection is None:
            return
        self._ending = True
        if connection.between_chunks or connection.reframes:
            self._leave_backend()
            self._exchange.send(framing.LAST_CHUNK)
            self._exchange.end(keep_alive=False)
            self._report(self._status)

    def _leave_backend(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            if self._upgraded:
                connection.close()
            else:
                connection.leave()
            self._backend.release(connection)

    def _fail(self, error: Exception) -> None:
        self._leave_backend()
        if self._exchange.closed:
            self._report(0)
            return
        owner, self._owner = self._owner, None
        if owner is not None:
            log.info("request not answered", backend=self._backend.authority, reason=str(error))
            owner.failed(error)

    def _report(self, status: int) -> None:
        owner, self._owner = self._owner, None
        if owner is not None:
            owner.done(status)
