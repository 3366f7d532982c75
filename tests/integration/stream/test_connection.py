"""A connection to NATS that is given up before it is open, or ends before everything is sent."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest
from nats.aio.msg import Msg

from atoll.machinery.process import pki, tls
from atoll.machinery.stream import connection as connections
from atoll.machinery.stream.connection import Access, Connection


@pytest.fixture
def without_collection() -> Iterator[None]:
    """A socket that only the garbage collector closes stays open."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.long
@pytest.mark.usefixtures("without_collection")
@pytest.mark.parametrize("turns", [0, 10])
async def test_cancelled_while_the_server_greets_it_closes_its_socket(turns: int) -> None:
    """The client loses a cancellation in the turn in which its socket is connected, and waits for the greeting."""
    accepted: asyncio.Future[asyncio.StreamReader] = asyncio.get_running_loop().create_future()
    writers = []

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        accepted.set_result(reader)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    opening = asyncio.create_task(Connection.open(Access([f"nats://127.0.0.1:{port}"]), "test"))
    reader = await accepted
    for _ in range(turns):
        await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    async with asyncio.timeout(60):
        assert await reader.read() == b""
    writers[0].close()
    server.close()


async def test_one_that_is_lost_with_something_unsent_is_closed_whole() -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"version": "2.14.3", "max_payload": 1048576, "headers": true}\r\n')
        async for line in reader:
            if line == b"PING\r\n":
                writer.write(b"PONG\r\n")
        writer.close()

    async def ignore(_: Msg) -> None:
        """No message comes."""

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    connection = await Connection.open(Access([f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"]), "test")
    subscription, client = await connection.subscribe("news", ignore), connection.client
    await client.flush()
    assert client._transport is not None
    # As between a command and its turn to be sent.
    client._pending, client._pending_data_size = [b"PING\r\n"], 6
    client._transport._io_writer.transport.abort()  # type: ignore[attr-defined]
    async with asyncio.timeout(60):
        await connection.closed.wait()
        assert subscription._wait_for_msgs_task is not None
        await asyncio.wait([subscription._wait_for_msgs_task])
    assert client.is_closed
    server.close()


async def test_the_socket_to_a_server_that_stands_still_is_closed_with_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The end of TLS is said by both sides, and asyncio waits for the other one for half a minute."""
    monkeypatch.setattr(connections, "_CLOSE_TIMEOUT_S", 0.1)
    ca = pki.make_ca("nats")
    context = tls.server_context(pki.make_serving(ca, ["localhost"]))

    async def stand_still(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"version": "2.14.3", "max_payload": 1048576, "headers": true, "tls_required": true}\r\n')
        await writer.start_tls(context)
        await reader.readuntil(b"PING\r\n")
        writer.write(b"PONG\r\n")
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        still.append(writer)

    still = list[asyncio.StreamWriter]()

    server = await asyncio.start_server(stand_still, "127.0.0.1", 0)
    address = f"tls://localhost:{server.sockets[0].getsockname()[1]}"
    connection = await Connection.open(Access([address], ca=ca.certificate.decode()), "test")
    socket = connection.client._transport._io_writer.get_extra_info("socket")  # type: ignore[union-attr]
    await connection.close()
    await asyncio.sleep(0)
    assert socket.fileno() == -1
    still[0].transport.abort()
    server.close()
