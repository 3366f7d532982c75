"""Both sides of a connection that carries streams, joined in memory: bytes move when the test says.

joined = Joined()
near = joined.open()
near.transport.write(b"x")
await joined.carry()
assert joined.served[0].data == b"x"
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from atoll.machinery.wire.exchange import Peer
from atoll.machinery.wire.host import Host
from atoll.machinery.wire.limits import Limits
from atoll.machinery.wire.multiplex.client_session import ClientSession
from atoll.machinery.wire.multiplex.server_session import ServerSession
from atoll.machinery.wire.multiplex.session import Session
from atoll.machinery.wire.multiplex.stream import StreamTransport


class StreamHost:
    """The server of the streams."""

    def __init__(self, make: Callable[[], asyncio.Protocol], limits: Limits | None = None) -> None:
        self.make_connection, self.limits = make, limits or Limits()
        self.connections = 0
        self.draining = False
        self._open: set[ServerSession] = set()

    @property
    def sessions(self) -> int:
        """The connections that carry streams."""
        return len(self._open)

    def opened(self, session: ServerSession) -> None:
        self._open.add(session)

    def closed(self, session: ServerSession) -> None:
        self._open.discard(session)

    def cut(self) -> None:
        """Cut the connections, as when the process is killed."""
        for session in self._open:
            session.cut()


class Wire(asyncio.Transport):
    """One end of the connection; `writes` are those that the test has not carried over yet."""

    def __init__(self, extra: dict[str, object] | None = None) -> None:
        super().__init__(extra)
        self.writes: list[bytes] = []
        self.is_over = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self.is_over:
            self.writes.append(bytes(data))

    def get_write_buffer_size(self) -> int:
        return sum(map(len, self.writes))

    def is_closing(self) -> bool:
        return self.is_over

    def close(self) -> None:
        self.is_over = True

    def abort(self) -> None:
        self.is_over = True


class Reader(asyncio.Protocol):
    """What speaks on a stream: it keeps what it receives, and how often it lost its transport."""

    transport: StreamTransport

    def __init__(self) -> None:
        self.data = b""
        self.ends: list[Exception | None] = []
        self.is_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(StreamTransport, transport)

    def data_received(self, data: bytes) -> None:
        assert not self.ends
        self.data += data

    def pause_writing(self) -> None:
        assert not self.is_paused
        self.is_paused = True

    def resume_writing(self) -> None:
        assert self.is_paused
        self.is_paused = False

    def connection_lost(self, exc: Exception | None) -> None:
        self.ends.append(exc)


class Joined:
    """A client's session and a server's. `served` are the server's ends of the streams, in their order."""

    def __init__(self, limits: Limits | None = None, accepts: Callable[[Peer], bool] = lambda _: True) -> None:
        self.served: list[Reader] = []
        self.host = StreamHost(self._serve, limits)
        self.client, self.server = ClientSession(), ServerSession(cast(Host, self.host), accepts)
        self.near, self.far = Wire(), Wire({"socket": "one for all"})
        self.client.connection_made(self.near)
        self.server.connection_made(self.far)

    def open(self) -> Reader:
        """The client's end of a new stream."""
        reader = Reader()
        self.client.open(reader)
        return reader

    async def carry(self, most: int = 1 << 30) -> None:
        """Carry bytes both ways until none are left, `most` at a time."""
        while True:
            await turns()
            moved = _move(self.near, self.server, most)
            if not _move(self.far, self.client, most) and not moved:
                return

    def _serve(self) -> Reader:
        self.served.append(Reader())
        return self.served[-1]


async def turns() -> None:
    """Let what is due in the loop run, with what it makes due."""
    for _ in range(3):
        await asyncio.sleep(0)


def _move(wire: Wire, to: Session, most: int) -> bool:
    data, wire.writes = b"".join(wire.writes), []
    for at in range(0, len(data), most):
        to.data_received(data[at : at + most])
    return bool(data)
