"""One request passed on: its body to a backend as it comes, the answer to the client as it comes.

Made by `doors` for each request that a backend answers. Between the client's exchange and the backend's link it only
hands bytes over, and stops reading on one side while the other takes none. Invariants: a request is sent a second time
only if nothing of it can have reached anybody, or if nobody could tell (GET, HEAD and OPTIONS without a body, on a kept
connection that ended before any answer); an answer cut short on one side is cut short on the other; who is gone on one
side is gone on the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from atoll.frontproxy.errors import answer_lost, no_answer, refuse, shard_down
from atoll.machinery.apiserver.requestinfo import RequestInfo
from atoll.machinery.wire.proxy import framing
from atoll.machinery.wire.proxy.backend import Backend, BackendUnreachable
from atoll.machinery.wire.proxy.backend_connection import BackendConnection, ResponseHead
from atoll.machinery.wire.proxy.streaming import StreamingExchange

log = structlog.get_logger()

#: May be sent again when a kept connection ended unanswered.
_SAFE = frozenset(("GET", "HEAD", "OPTIONS"))


class Relay:
    """Both a `passing.BodySink` and a `link.ResponseSink`. `done` is called once with the status (0: the client left first)."""

    __slots__ = (
        "_backend",
        "_done",
        "_ending",
        "_exchange",
        "_head",
        "_info",
        "_link",
        "_repeatable",
        "_spliced",
        "_status",
        "_unsent",
        "_whole",
        "upgrades",
    )

    def __init__(
        self, exchange: StreamingExchange, backend: Backend, head: bytes, done: Callable[[int], None], info: RequestInfo
    ) -> None:
        self._exchange, self._backend, self._head, self._done = exchange, backend, head, done
        body = exchange.body
        self.upgrades = body.upgrades and not exchange.old
        self._link: BackendConnection | None = None
        self._unsent = head
        self._repeatable = exchange.request.method in _SAFE and not body.said and not self.upgrades
        self._whole = self._spliced = self._ending = False
        self._info = info
        self._status = 0

    def start(self) -> None:
        """Send it on, at once over a kept connection."""
        if self._exchange.old:
            self._exchange.keep_alive = False
        link = self._backend.kept()
        if link is not None:
            self._go(link)
        else:
            self._exchange.spawn(self._connect())

    # BodySink: the client's side

    @property
    def full(self) -> bool:
        return self._link is None or self._link.full

    def part(self, data: bytes) -> None:
        if self._link is None:
            return
        if not self._spliced and self._exchange.body.length_bytes is None:
            data = framing.chunk(data)
        head, self._unsent = self._unsent, b""
        self._link.write(head + data if head else data)

    def whole(self) -> None:
        link = self._link
        self._whole = True
        if link is None:
            return
        tail = framing.LAST_CHUNK if self._exchange.body.length_bytes is None else b""
        head, self._unsent = self._unsent, b""
        if head or tail:
            link.write(head + tail)
        if not self._status:
            link.deadline_s = asyncio.get_running_loop().time() + self._backend.timing.head_timeout_s

    def client_full(self, full: bool) -> None:
        if self._link is not None:
            self._link.pause(full)

    def broken(self) -> None:
        self._part(0)

    def gone(self) -> None:
        self._part(0)

    # ResponseSink: the backend's side

    def interim(self, head: ResponseHead) -> None:
        if self._exchange.old:
            return
        if head.status == 100:
            if not self._exchange.body.awaits_continue:
                return
            self._exchange.body.awaits_continue = False
        self._exchange.send_early(framing.answer_head(head.first, head.headers, b""))

    def answered(self, head: ResponseHead, rest: bytes) -> None:
        exchange = self._exchange
        if exchange.old and head.chunked:
            self.lost(ValueError("chunks for who knows none"), begun=True)
            return
        self._status = head.status
        if head.status == 101:
            exchange.send(framing.answer_head(head.first, head.headers, b"", upgrade=True) + rest)
            self._spliced = True
            exchange.splice()
            return
        if head.until_close:
            exchange.keep_alive = False
        exchange.send(framing.answer_head(head.first, head.headers, exchange.closing_line()) + rest)
        if head.chunked and _is_endless(self._info):
            exchange.on_drain(self._end_watch)

    def more(self, data: bytes) -> None:
        self._exchange.send(data)
        if self._ending:
            self._end_watch()

    def finished(self) -> None:
        link, self._link = self._link, None
        assert link is not None
        if self._spliced:
            self._exchange.cut()
            self._backend.release(link)
        else:
            if not self._whole:
                # The rest of the request would be taken for the next one.
                link.abort()
            self._backend.release(link)
            self._exchange.end(keep_alive=True)
        self._report(self._status)

    def lost(self, error: Exception, *, begun: bool) -> None:
        link, self._link = self._link, None
        if link is None:
            return
        link.leave()
        self._backend.release(link)
        if self._exchange.begun:
            self._exchange.cut()
            self._report(self._status)
            log.info("answer cut short", backend=self._backend.url, reason=str(error))
        elif link.used and not begun and self._repeatable:
            self._repeatable = False
            self._unsent = self._head
            self._exchange.spawn(self._connect(fresh=True))
        else:
            timed_out = isinstance(error, TimeoutError)
            self._refuse(no_answer() if timed_out else answer_lost(), str(error))

    def room(self) -> None:
        self._exchange.go_on()

    # Inside

    async def _connect(self, *, fresh: bool = False) -> None:
        try:
            link = await self._backend.connect(fresh=fresh)
        except BackendUnreachable as error:
            self._refuse(shard_down(), str(error))
            return
        except asyncio.CancelledError:
            self._report(0)  # The client is gone, or was told that its request is none.
            raise
        if self._exchange.closed:
            self._backend.release(link)
        else:
            self._go(link)

    def _go(self, link: BackendConnection) -> None:
        self._link = link
        link.begin(self, head_only=self._exchange.request.method == "HEAD")
        if self._exchange.client_full:
            link.pause(True)
        self._exchange.take(self)
        if self._whole and self._unsent:
            self.whole()  # Sent again: the body, which is empty, was over before.
        elif self._unsent and self._link is link:
            head, self._unsent = self._unsent, b""
            link.write(head)

    def _end_watch(self) -> None:
        """End a watch behind a whole chunk, so that its client sees the end of a watch and not a broken answer."""
        link = self._link
        if link is None:
            return
        self._ending = True
        if link.between_chunks:
            self._link = None
            link.leave()
            self._backend.release(link)
            self._exchange.send(framing.LAST_CHUNK)
            self._exchange.end(keep_alive=False)
            self._report(self._status)

    def _refuse(self, error: Exception, reason: str) -> None:
        log.info("request not answered", backend=self._backend.url, reason=reason)
        self._report(0 if self._exchange.closed else refuse(self._exchange, self._info, error))

    def _part(self, status: int) -> None:
        """The client's side ended: so does the other."""
        link, self._link = self._link, None
        if link is not None:
            if self._spliced:
                link.close()
            else:
                link.leave()
            self._backend.release(link)
        self._report(status)

    def _report(self, status: int) -> None:
        done, self._done = self._done, _nothing
        done(status)


def _is_endless(info: RequestInfo) -> bool:
    """A stream that has no end of its own, wherever it goes."""
    return info.verb == "watch" or info.query.get("watch", "false").lower() not in {"false", "0"}


def _nothing(status: int) -> None:
    """Told once already."""
