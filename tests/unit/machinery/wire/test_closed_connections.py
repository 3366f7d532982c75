"""A connection that was closed is freed at once: the buffers of TLS take 256 KiB until it is, and a quiet process
collects no cycles for hours."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import uvloop

from atoll.machinery.wire.client import HttpClient, Origin
from atoll.machinery.wire.exchange import Exchange
from atoll.machinery.wire.limits import Limits
from atoll.machinery.wire.proxy.backend import Backend, BackendLimits
from atoll.machinery.wire.server import Server
from harness.clients.raw_http import until
from unit.machinery.wire.test_backend_connection import _Sink
from unit.machinery.wire.test_slim_connections import tls_contexts

Use = Callable[[Origin], Awaitable[None]]


def handler(exchange: Exchange) -> None:
    if exchange.request.target == b"/watch":
        exchange.start(200, [])
        exchange.write(b"an event")
    else:
        exchange.reply(200, [], b"a reply")


async def requests(origin: Origin) -> None:
    client = HttpClient(origin)
    assert (await client.request("GET", "/")).body == b"a reply"
    assert (await client.request("HEAD", "/")).body == b""
    await client.close()


async def a_watch(origin: Origin) -> None:
    client = HttpClient(origin)
    async with await client.watch("/watch") as stream:
        assert await anext(aiter(stream)) == b"an event"
    await client.close()


async def a_relayed_request(origin: Origin) -> None:
    backend = Backend(origin, BackendLimits())
    connection = await backend.connect(fresh=True)
    sink = _Sink()
    connection.begin(cast(Any, sink), head_only=False, endless=False)
    connection.write(b"GET / HTTP/1.1\r\nHost: backend\r\n\r\n")
    await until(lambda: connection.reusable)
    backend.release(connection)
    backend.close()


def tls_connections() -> int:
    return sum(type(each).__name__ == "SSLProtocol" for each in gc.get_objects())


@asynccontextmanager
async def no_collection() -> AsyncIterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def left(use: Use) -> int:
    """How many connections are there after these were closed, without any collection."""
    serving, client = tls_contexts()
    server = Server(handler, Limits(), serving)
    origin = Origin("127.0.0.1", await server.start("127.0.0.1", 0), client)
    try:
        async with no_collection():
            before = tls_connections()
            await use(origin)
            await until(lambda: server.connections == 0)
            await until(lambda: tls_connections() == before)
            return tls_connections() - before
    finally:
        await server.drain(0)


@pytest.mark.parametrize("use", [requests, a_watch, a_relayed_request])
def test_a_closed_connection_is_freed_at_once(use: Use) -> None:
    assert uvloop.run(left(use)) == 0
