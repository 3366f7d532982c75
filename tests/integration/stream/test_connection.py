"""A connection to NATS that is given up before it is open."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest

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
