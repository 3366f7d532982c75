"""The server's Exchange: one request on one connection, answered once.

Made by `Connection` for each request and given to the handler; it writes to the connection. Invariants: a reply is one
`transport.write`; all writes of a loop turn are one chunk; nothing is sent after the end, or after the client left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec
import structlog

from atoll.machinery.meta.objects import encode_json
from atoll.machinery.meta.status import InternalError
from atoll.machinery.wire import response
from atoll.machinery.wire.exchange import Headers, HttpRequest
from atoll.machinery.wire.host import Outlet
from atoll.machinery.wire.parser import RequestBody

log = structlog.get_logger()

#: How much of the response was sent.
NEW, STREAMING, ENDED = 0, 1, 2

#: Above this a body is not copied behind its head: two writes are cheaper than moving it.
_JOIN_BYTES = 64 * 1024
#: `drain` sends pending bytes above this size.
_FLUSH_BYTES = 64 * 1024
_FAILED = encode_json(InternalError("Internal error occurred: the request could not be served").status()) + b"\n"


class ServerExchange(msgspec.Struct, eq=False):
    """Implements `wire.exchange.Exchange`, which documents the methods."""

    _connection: Outlet
    request: HttpRequest
    keep_alive: bool
    old: bool
    body: RequestBody
    _state: int = NEW
    _head: bytes = b""
    _pending: list[bytes] = []
    _pending_bytes: int = 0
    _chunked: bool = False
    _silent: bool = False
    _task: asyncio.Future[Any] | None = None
    _on_close: list[Callable[[], None]] | None = None
    _on_drain: list[Callable[[], None]] | None = None

    @property
    def closed(self) -> bool:
        """The client is gone; writes are dropped."""
        return self._connection.lost

    def reply(self, status: int, headers: Headers, body: bytes | Sequence[bytes] = b"") -> None:
        """Send a whole response in one write."""
        if self._state != NEW:
            raise RuntimeError("this exchange was answered already")
        connection = self._connection
        host = connection.host
        if not self.body.ended:
            # No further request is read from a client that is still sending this one.
            self.keep_alive = False
        if not isinstance(body, bytes):
            body = b"".join(body)
        plain = self.keep_alive and not self.old and not host.draining
        framing = "" if plain else self._connection_line()
        if status not in response.BODILESS:
            framing = f"Content-Length: {len(body)}\r\n{framing}"
        elif body:
            raise ValueError(f"a {status} has no body")
        head = response.head(status, headers, framing, host.date)
        self._state = ENDED
        if self.request.method == "HEAD":
            connection.send(head)
        elif len(body) <= _JOIN_BYTES:
            connection.send(head + body)
        else:
            connection.send_parts(head, body)
        connection.ended(self)

    def start(self, status: int, headers: Headers) -> None:
        """Send the head in this loop turn, joined with what is written in it."""
        if self._state != NEW:
            raise RuntimeError("this exchange was answered already")
        self._chunked = not self.old
        self._silent = self.request.method == "HEAD"
        if self.old:
            # HTTP/1.0 has no chunks: the end of the connection ends the body.
            self.keep_alive = False
        framing = ("Transfer-Encoding: chunked\r\n" if self._chunked else "") + self._connection_line()
        head = response.head(status, headers, framing, self._connection.host.date)
        self._state = STREAMING
        self._head = head
        self._connection.flush_soon(self)

    def write(self, data: bytes) -> None:
        """Queue body bytes for this loop turn's chunk."""
        if self._state != STREAMING:
            if self._state == ENDED:
                return
            raise RuntimeError("write before start")
        if self._silent or not data:
            return
        self._pending.append(data)
        self._pending_bytes += len(data)
        connection = self._connection
        if self._pending_bytes + connection.unsent_bytes() > connection.limits.stream_buffer_bytes:
            log.warning("stream buffer exceeded", peer=self.request.peer.address)
            connection.host.counts.cut_clients += 1
            connection.cut()
        elif len(self._pending) == 1:
            connection.flush_soon(self)

    def write_now(self, data: bytes) -> bool:
        """Send a chunk at once; false if it must wait."""
        connection = self._connection
        if self._state != STREAMING or self._pending or self._head or connection.paused or connection.lost:
            return False
        if self._silent:
            return True
        connection.send(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)
        return True

    def flush(self) -> None:
        """Send pending bytes as one chunk. Called by the server at the end of a loop turn."""
        if self._pending_bytes > _JOIN_BYTES and len(self._pending) == 1 and self._chunked:
            self._send_long()
            return
        frame = self._frame(b"")
        if frame:
            self._connection.send(frame)

    def _send_long(self) -> None:
        """Send the one pending part as a chunk, without copying it: it is a slice of a list."""
        head, self._head = self._head, b""
        (part,), self._pending, self._pending_bytes = self._pending, [], 0
        self._connection.send_parts(b"%b%x\r\n" % (head, len(part)), part, b"\r\n")

    def _frame(self, tail: bytes) -> bytes:
        head, self._head = self._head, b""
        pending, size = self._pending, self._pending_bytes
        if not size:
            return head + tail
        self._pending, self._pending_bytes = [], 0
        if not self._chunked:
            return b"".join([head, *pending])
        return b"".join([head, b"%x\r\n" % size, *pending, b"\r\n", tail])

    async def drain(self) -> None:
        """Wait until more can be sent. Raises ConnectionResetError once the client is gone."""
        connection = self._connection
        if connection.lost:
            raise ConnectionResetError("client is gone")
        if self._pending_bytes > _FLUSH_BYTES:
            self.flush()
        if connection.paused:
            await connection.writable()

    def finish(self) -> None:
        """End the stream with its last chunk."""
        if self._state == NEW:
            raise RuntimeError("finish before start")
        if self._state == ENDED:
            return
        self._state = ENDED
        frame = self._frame(response.LAST_CHUNK if self._chunked and not self._silent else b"")
        if frame:
            self._connection.send(frame)
        self._connection.ended(self)

    def abort(self) -> None:
        """Cut the connection; the client sees that the body is not whole."""
        if self._state == ENDED:
            return
        self._end_unsent()
        self._on_close = self._task = None  # The handler ended the exchange, not the client.
        self._connection.cut()

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call back once when the client goes before the end; at once if it is gone."""
        if self.closed:
            callback()
        elif self._on_close is None:
            self._on_close = [callback]
        else:
            self._on_close.append(callback)

    def on_drain(self, callback: Callable[[], None]) -> None:
        """Call back once when the server begins to drain, or at once if it has begun."""
        if self._connection.host.draining:
            callback()
        elif self._on_drain is None:
            self._on_drain = [callback]
        else:
            self._on_drain.append(callback)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work` as a task that ends with the client. What it raises becomes a 500, or cuts the stream."""
        task = self._connection.track(self._run(work))
        # A task cancelled before its first step never awaits `work`, which must be closed then.
        task.add_done_callback(lambda _: work.close())
        self._task = task
        if self.closed:
            task.cancel()
        return task

    def follow(self, outcome: asyncio.Future[Any], then: Callable[[asyncio.Future[Any]], None]) -> None:
        """Call `then(outcome)` once the outcome is there; it is cancelled when the client goes."""
        self._task = outcome
        outcome.add_done_callback(then)
        self._connection.host.hold(outcome)
        if self._connection.lost:
            outcome.cancel()

    async def _run(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except asyncio.CancelledError:
            self.abort()
            raise
        except Exception as error:
            self.failed(error)
        else:
            self._check_answered()

    def _check_answered(self) -> None:
        """Fail if the current task was the last of the exchange, and ended without a reply."""
        is_last = self._task is asyncio.current_task()
        if is_last and self._state != ENDED and not self.closed:
            self.failed(RuntimeError("task ended without answering"))

    def failed(self, error: Exception) -> None:
        """Answer for a handler that raised: 500 if nothing was sent, else a cut; a client's leaving is no error."""
        if self.closed and isinstance(error, ConnectionResetError):
            self._end_unsent()
            return
        path = self.request.target.partition(b"?")[0].decode("latin-1")
        log.error("request handler failed", method=self.request.method, path=path, exc_info=error)
        if self._state == NEW:
            self.reply(500, [("Content-Type", "application/json")], _FAILED)
        else:
            self.abort()

    # Called by the connection.

    def gone(self) -> None:
        """The connection was lost before the end."""
        self._end_unsent()
        callbacks, self._on_close = self._on_close, None
        _call(callbacks)
        if self._task is not None:
            self._task.cancel()

    def drain_begun(self) -> None:
        """The server drains."""
        callbacks, self._on_drain = self._on_drain, None
        _call(callbacks)

    def _end_unsent(self) -> None:
        self._state = ENDED
        self._head = b""
        self._pending, self._pending_bytes = [], 0

    def _connection_line(self) -> str:
        if self._connection.host.draining:
            self.keep_alive = False
        if not self.keep_alive:
            return "Connection: close\r\n"
        return "Connection: keep-alive\r\n" if self.old else ""


def _call(callbacks: list[Callable[[], None]] | None) -> None:
    for callback in callbacks or ():
        try:
            callback()
        except Exception:
            log.exception("exchange callback failed")
