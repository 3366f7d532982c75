"""The client's side: a front proxy opens a stream for each watch.

`proxy.backend` makes one where a shard chose the protocol, and counts its streams. Invariant: a stream's number is used
once.
"""

from __future__ import annotations

import asyncio
import socket

from atoll.machinery.wire.multiplex import frames
from atoll.machinery.wire.multiplex.frames import LAST_NUMBER, OPEN
from atoll.machinery.wire.multiplex.session import Session
from atoll.machinery.wire.multiplex.stream import StreamTransport


class ClientSession(Session):
    """`renewals` are those of its TLS context when it was made."""

    def __init__(self) -> None:
        super().__init__()
        self.renewals = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)

    @property
    def opens(self) -> bool:
        """Whether another stream may be opened."""
        return not self.lost and not self._transport.is_closing() and self.last_number < LAST_NUMBER

    def open(self, protocol: asyncio.Protocol) -> None:
        """Open a stream, which `protocol` speaks on."""
        self.last_number = number = self.last_number + 1
        stream = self.streams[number] = StreamTransport(self, number, protocol)
        self.send(frames.head(OPEN, number))
        stream.begin()
