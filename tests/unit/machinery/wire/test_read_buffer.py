"""A TLS connection takes no memory for what it never read, whatever its read buffer was made of."""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, ClassVar

import pytest
import uvloop

from atoll.machinery.wire import read_buffer
from atoll.machinery.wire.client import HttpClient, Origin
from atoll.machinery.wire.connection import Connection
from atoll.machinery.wire.exchange import Exchange
from atoll.machinery.wire.host import Host
from atoll.machinery.wire.limits import Limits
from atoll.machinery.wire.proxy.backend import Backend, BackendLimits
from atoll.machinery.wire.server import Server
from unit.machinery.wire.test_slim_connections import tls_contexts

#: The loop's buffer; of it a handshake and a short request leave their bytes in the first pages.
SIZE, USED = 256 * 1024, 8 * 4096
#: Memory that stays in use between two pieces keeps them from becoming one, which would be given back.
CHUNKS, BETWEEN = 32, 64 * 1024
LIBC = ctypes.CDLL(None)
LIBC.malloc.argtypes, LIBC.malloc.restype = (ctypes.c_size_t,), ctypes.c_void_p
LIBC.free.argtypes = (ctypes.c_void_p,)


@contextmanager
def used_memory() -> Iterator[None]:
    """Have what is allocated next in the size of a read buffer be made of memory that was used before."""
    LIBC.free(LIBC.malloc(SIZE))  # From now on chunks of this size are kept.
    chunks, between = [], []
    for _ in range(CHUNKS):
        chunks.append(LIBC.malloc(SIZE))
        between.append(LIBC.malloc(BETWEEN))
    for each in chunks:
        ctypes.memset(each, 0xAA, SIZE)
        LIBC.free(each)
    try:
        yield
    finally:
        for each in between:
            LIBC.free(each)


def buffer_of(connection: Any) -> memoryview:
    """The read buffer of a connection."""
    found: memoryview = read_buffer._owner(connection._transport).get_buffer(0)
    return found


class Kept(Connection):
    """A connection of a server that the test looks at."""

    __slots__ = ()
    made: ClassVar[list[Connection]] = []

    def __init__(self, server: Host) -> None:
        super().__init__(server)
        self.made.append(self)


def handler(exchange: Exchange) -> None:
    exchange.reply(200, [], b"a reply")


@asynccontextmanager
async def served() -> AsyncIterator[Origin]:
    """A server, and where it is."""
    serving, client = tls_contexts()
    Kept.made = []
    server = Server(handler, Limits(), serving, Kept)
    try:
        yield Origin("127.0.0.1", await server.start("127.0.0.1", 0), client)
    finally:
        await server.drain(0)


async def connections() -> tuple[list[memoryview], bytes]:
    """The buffers of one connection of each kind, made of used memory, and a reply that came over them."""
    async with served() as origin:
        with used_memory():
            client, backend = HttpClient(origin), Backend(origin, BackendLimits())
            try:
                relayed = await backend.connect(fresh=True)
                body = (await client.request("GET", "/")).body
                kinds = [relayed, client._idle._idle[0], Kept.made[-1]]
                return [memoryview(bytes(buffer_of(each))) for each in kinds], body
            finally:
                backend.close()
                await client.close()


def test_a_new_connection_has_no_pages_that_it_never_used() -> None:
    buffers, body = uvloop.run(connections())
    assert body == b"a reply"
    for each in buffers:
        assert len(each) == SIZE
        # The pages at its ends are of others too.
        assert not any(each[USED:-4096]), "it has what was in its memory before"


async def given_back() -> tuple[int, bytes, bytes]:
    """What is given back of a buffer full of bytes, its content then, and a reply to a request that follows."""
    async with served() as origin:
        client = HttpClient(origin)
        try:
            await client.request("GET", "/")
            connection = client._idle._idle[0]
            buffer = buffer_of(connection)
            ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(buffer)), 0xAA, len(buffer))
            size = read_buffer.give_back(connection._transport)
            content = bytes(buffer)
            return size, content, (await client.request("GET", "/")).body
        finally:
            await client.close()


def test_a_connection_works_on_after_its_buffer_was_given_back() -> None:
    size, content, body = uvloop.run(given_back())
    assert size >= SIZE - 2 * 4096
    assert content.count(b"\0") == size
    assert body == b"a reply"


@pytest.mark.parametrize("loop", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_plain_connections_have_none(loop: Any) -> None:
    async def main() -> int:
        server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
        _, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
        try:
            return read_buffer.give_back(writer.transport)
        finally:
            writer.close()
            server.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(main()) == 0
