"""The server's side: each stream is a connection of the server, with its limits, its sweep and its drain.

`chosen` makes one on an accepted connection whose client offered the protocol. Invariant: streams are taken only from a
peer that the server accepts them of, a front proxy, and no longer than it does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from atoll.machinery.wire.exchange import HttpRequest, Peer
from atoll.machinery.wire.host import Host
from atoll.machinery.wire.multiplex import frames
from atoll.machinery.wire.multiplex.frames import MAX_STREAMS, RESET, BrokenFrame
from atoll.machinery.wire.multiplex.session import Session
from atoll.machinery.wire.multiplex.stream import StreamTransport
from atoll.machinery.wire.peer import PEER, peer_of

log = structlog.get_logger()


class ServerSession(Session):
    """Implements `host.OpenConnection`."""

    def __init__(self, host: Host, accepts: Callable[[Peer], bool]) -> None:
        super().__init__()
        self._host, self._accepts = host, accepts

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        #: One for all streams, as it holds the client's certificate.
        self._peer = peer_of(transport)
        self._host.opened(self)
        self._cut_refused()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._host.closed(self)

    def extra(self, name: str, default: Any) -> Any:
        return self._peer if name == PEER else super().extra(name, default)

    def opened(self, number: int) -> None:
        """Serve a stream; one beyond the server's connections is cut, as the client has others to try."""
        if number <= self.last_number:
            raise BrokenFrame(f"stream {number} opened again")
        if len(self.streams) >= MAX_STREAMS:
            raise BrokenFrame("too many streams")
        self.last_number = number
        host = self._host
        if host.connections >= host.limits.connections:
            self.send(frames.head(RESET, number))
            return
        stream = self.streams[number] = StreamTransport(self, number, host.make_connection())
        stream.begin()

    def emptied(self) -> None:
        if self._host.draining and not self.lost:
            self.loop.call_soon(self.drain)

    # OpenConnection

    @property
    def is_new(self) -> bool:
        """Whether no stream was opened yet."""
        return not self.lost and self.last_number == 0

    def check(self, now: float) -> None:
        """Cut it if it is stalled, close it if it is idle."""
        if self.lost:
            return
        self.check_stall(now, self._host.limits.stall_timeout_s)
        if not self.lost and not self.streams and now - self.idle_since_s >= self._host.limits.idle_timeout_s:
            self.close()

    def drain(self) -> None:
        """Close it if it carries nothing; otherwise with its last stream, which is drained by itself."""
        if not self.lost and not self.streams:
            self.close()

    def cut(self) -> None:
        """Cut it, and with it all streams."""
        if not self.lost:
            self.abort()

    def cut_request(self, refused: Callable[[HttpRequest], bool]) -> None:
        """Cut it if its client is one no longer of whom streams are accepted; requests are looked at by stream."""
        if not self.lost:
            self._cut_refused()

    def _cut_refused(self) -> None:
        if not self._accepts(self._peer):
            log.warning("streams refused", peer=self._peer.address)
            self.abort()
