"""The call shape between HTTP and everything above it: one request in, one reply out.

`wire.server` makes an Exchange for each request and calls the handler; the pipeline answers through it. No class above
this layer sees a socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

import msgspec

Headers = Sequence[tuple[str, str]]


class Peer(msgspec.Struct, frozen=True):
    """The client of a connection. `certificate` is the DER of a verified client certificate, or None."""

    address: str
    port: int
    certificate: bytes | None = None


class HeaderSet(msgspec.Struct):
    """Headers that requests of one connection share, but for Content-Length.

    `credentials` and `preferences` are what the handler read in them, `forwarded` what a proxy passes on of them, kept
    for the next request. They derive from nothing else, and not from Content-Length. `fields` are the headers of the
    last request that a proxy sent for one without a body, and what else they derive from.
    """

    headers: Mapping[str, list[str]]
    credentials: Any = None
    preferences: Any = None
    forwarded: Any = None
    fields: Any = None

    def forget(self) -> None:
        """Keep the headers alone: what derives from them is made again for the next request, if one comes."""
        self.credentials = self.preferences = self.forwarded = self.fields = None


class HttpRequest(msgspec.Struct, frozen=True):
    """One parsed request. `target` is the raw request target, parsed further exactly once by the pipeline.

    `headers` maps lower-case names to values in order of arrival; a body above the server's limit never gets here (413
    was sent). `body` is complete, unless the request is `streamed`: then it is empty, and the exchange has the body as
    it arrives.
    """

    method: str
    target: bytes
    headers: Mapping[str, list[str]]
    body: bytes
    peer: Peer
    streamed: bool = False
    #: None for a request that was not received.
    header_set: HeaderSet | None = None

    def header(self, name: str, default: str = "") -> str:
        """First value of a header (lower-case name), or default."""
        values = self.headers.get(name)
        return values[0] if values else default


class Exchange(Protocol):
    """One request and the way to answer it. Exactly one of `reply` or `start`...`finish`/`abort` is called."""

    request: HttpRequest

    @property
    def closed(self) -> bool:
        """The client is gone; writes are dropped."""

    def reply(self, status: int, headers: Headers, body: bytes | Sequence[bytes] = b"") -> None:
        """Send a whole response. Content-Length is set here; a sequence of bytes is joined on the wire."""

    def start(self, status: int, headers: Headers) -> None:
        """Send the head at once and stream the body (chunked)."""

    def write(self, data: bytes) -> None:
        """Queue body bytes; all writes of one loop turn leave as one chunk."""

    def write_now(self, data: bytes) -> bool:
        """Send body bytes in this call, as a chunk of their own; false, with nothing sent, if the client does not take
        them yet or written bytes wait before them."""

    async def drain(self) -> None:
        """Wait until the client read enough for more to be sent. Raises ConnectionResetError if it is gone, and cuts a
        client that reads nothing for the server's stall limit (60 s)."""

    def finish(self) -> None:
        """End a streamed body properly."""

    def abort(self) -> None:
        """Cut the connection without the last chunk: the client must not take the part for the whole."""

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call back once when the client goes before the reply ended."""

    def on_drain(self, callback: Callable[[], None]) -> None:
        """Call back once when the server begins to drain, or at once if it has begun: a stream ends itself then, as one
        whose connection is still open at the deadline is cut."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run the rest of this exchange as a task owned by the server (cancelled when the client goes)."""

    def follow(self, outcome: asyncio.Future[Any], then: Callable[[asyncio.Future[Any]], None]) -> None:
        """Call `then(outcome)` once the outcome is there, without a task; it is cancelled when the client goes."""


class Handler(Protocol):
    """The handler of a server. It may answer synchronously, or `spawn` a coroutine that does."""

    def __call__(self, exchange: Exchange, /) -> None: ...
