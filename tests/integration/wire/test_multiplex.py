"""Streams over real TLS: who may open them, what their requests know of the client, and old and new peers together."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from atoll.machinery.process import pki, tls
from atoll.machinery.process.client_identity import client_identity
from atoll.machinery.process.private_files import Pair
from atoll.machinery.process.tls import ClientContext
from atoll.machinery.wire.client import HttpClient, Origin
from atoll.machinery.wire.exchange import Exchange, Peer
from atoll.machinery.wire.limits import Limits
from atoll.machinery.wire.proxy.backend import Backend, BackendLimits
from atoll.machinery.wire.proxy.backend_connection import BackendConnection
from atoll.machinery.wire.proxy.backend_streams import MOST_STREAMS, SPREAD
from harness.clients.raw_http import until
from harness.servers.in_process.wire_server import Running, Serve
from unit.machinery.wire.test_backend_connection import _Sink

PROXY = "front-proxy"


class Watches:
    """A handler whose answers begin and go on; `served` are their exchanges."""

    def __init__(self) -> None:
        self.served: list[Exchange] = []

    def __call__(self, exchange: Exchange) -> None:
        self.served.append(exchange)
        exchange.start(200, [])
        exchange.write(_name(exchange.request.peer).encode())
        exchange.on_drain(exchange.finish)


def _name(peer: Peer) -> str:
    return client_identity(peer.certificate).common_name if peer.certificate else ""


def is_proxy(peer: Peer) -> bool:
    return _name(peer) == PROXY


@pytest.fixture
def server_tls(ca: Pair) -> ssl.SSLContext:
    """Of one server, which says in it what it speaks."""
    return tls.server_context(pki.make_serving(ca, ["127.0.0.1"]), ca.certificate)


@pytest.fixture
def watches() -> Watches:
    return Watches()


@pytest.fixture
async def running(serve: Serve, watches: Watches, server_tls: ssl.SSLContext) -> Running:
    found = await serve(watches, tls=server_tls)
    found.server.accept_streams(is_proxy)
    return found


@asynccontextmanager
async def backend(running: Running, tls_context: ClientContext) -> AsyncIterator[Backend]:
    """The server as a proxy sees it that presents this context's certificate."""
    found = Backend(Origin("127.0.0.1", running.port, tls_context), BackendLimits(), streams=True)
    try:
        yield found
    finally:
        found.close()


@pytest.fixture
async def shard(running: Running, ca: Pair) -> AsyncIterator[Backend]:
    async with backend(running, tls.client_context(ca.certificate, pki.make_client(ca, PROXY))) as found:
        yield found


async def watch(shard: Backend) -> tuple[BackendConnection, _Sink]:
    """Begin a watch."""
    connection = shard.stream() or await shard.connect(fresh=True, stream=True)
    sink = _Sink()
    connection.begin(cast(Any, sink), head_only=False, endless=True)
    connection.write(b"GET /watch HTTP/1.1\r\nHost: a\r\n\r\n")
    return connection, sink


async def test_requests_of_a_stream_have_the_certificate_of_their_connection(running: Running, shard: Backend) -> None:
    found = [await watch(shard) for _ in range(3)]
    await until(lambda: all(sink.parts for _, sink in found))
    assert all(PROXY.encode() in b"".join(sink.parts) for _, sink in found)
    assert all(connection.is_stream for connection, _ in found)
    # Each stream counts, and the connection that carries them.
    assert running.server.connections == 4
    for connection, _ in found:
        shard.release(connection)
    await until(lambda: running.server.connections == 1)


async def test_a_client_that_is_no_proxy_has_no_streams(running: Running, watches: Watches, ca: Pair) -> None:
    async with backend(running, tls.client_context(ca.certificate, pki.make_client(ca, "alice"))) as alice:
        _, sink = await watch(alice)
        await until(lambda: sink.lost)
    await until(lambda: running.server.connections == 0)
    assert not watches.served
    client = HttpClient(Origin("127.0.0.1", running.port, tls.client_context(ca.certificate)))
    stream = await client.stream("GET", "/watch")
    assert stream.status == 200
    stream.close()
    await client.close()


async def test_few_streams_share_few_connections(running: Running, shard: Backend) -> None:
    for _ in range(4 * SPREAD):
        await watch(shard)
    await until(lambda: running.server.connections == 4 * SPREAD + 2)
    assert MOST_STREAMS > 4 * SPREAD


async def test_watches_that_come_at_once_wait_for_one_connection(running: Running, shard: Backend) -> None:
    await asyncio.gather(*(watch(shard) for _ in range(SPREAD)))
    await until(lambda: running.server.connections == SPREAD + 1)
    assert running.server.counts.handshakes == 1


async def test_an_older_server_gets_a_connection_for_each_watch_until_it_is_a_newer_one(
    serve: Serve, watches: Watches, server_tls: ssl.SSLContext, ca: Pair
) -> None:
    found = await serve(watches, tls=server_tls)
    async with backend(found, tls.client_context(ca.certificate, pki.make_client(ca, PROXY))) as shard:
        older = await asyncio.gather(*(watch(shard) for _ in range(5)))
        await until(lambda: all(sink.parts for _, sink in older))
        assert not any(connection.is_stream for connection, _ in older)
        assert found.server.connections == 5
        found.server.accept_streams(is_proxy)
        newer = [await watch(shard) for _ in range(2)]
        assert all(connection.is_stream for connection, _ in newer)


async def test_a_context_that_takes_the_place_of_another_accepts_streams_too(
    running: Running, shard: Backend, ca: Pair
) -> None:
    running.server.use(tls.server_context(pki.make_serving(ca, ["127.0.0.1"]), ca.certificate))
    connection, _ = await watch(shard)
    assert connection.is_stream


async def test_a_draining_server_ends_the_watches_and_the_connection(running: Running, shard: Backend) -> None:
    found = [await watch(shard) for _ in range(3)]
    await until(lambda: all(sink.parts for _, sink in found))
    await running.server.drain(30)
    assert running.server.connections == 0
    await until(lambda: all(sink.ended for _, sink in found))


async def test_a_drain_that_is_over_cuts_what_is_left(running: Running, watches: Watches, shard: Backend) -> None:
    _, sink = await watch(shard)
    await until(lambda: sink.parts)
    cast(Any, watches.served[0])._on_drain = None
    await running.server.drain(0)
    assert running.server.connections == 0
    await until(lambda: sink.lost)


async def test_a_renewed_certificate_is_presented_by_the_next_watch(running: Running, shard: Backend, ca: Pair) -> None:
    context = cast(ClientContext, shard._origin.tls)
    before, sink = await watch(shard)
    await until(lambda: sink.parts)
    context.replace(tls.client_context(ca.certificate, pki.make_client(ca, PROXY)))
    after, _ = await watch(shard)
    assert after.is_stream
    await until(lambda: running.server.connections == 4)
    shard.release(before)
    await until(lambda: running.server.connections == 3)
    # The old connection, which has no stream any more, is not kept until it is idle for long.
    shard.check(asyncio.get_running_loop().time())
    await until(lambda: running.server.connections == 2)


async def test_a_proxy_closes_a_connection_that_is_idle(running: Running, shard: Backend) -> None:
    connection, sink = await watch(shard)
    await until(lambda: sink.parts)
    now_s = asyncio.get_running_loop().time()
    shard.check(now_s + 2 * BackendLimits().idle_timeout_s)
    shard.release(connection)
    await until(lambda: running.server.connections == 1)
    shard.check(now_s + 2 * BackendLimits().idle_timeout_s)
    await until(lambda: running.server.connections == 0)


async def test_a_server_closes_a_connection_that_is_idle(
    serve: Serve, watches: Watches, server_tls: ssl.SSLContext, ca: Pair
) -> None:
    found = await serve(watches, Limits(idle_timeout_s=0.2), server_tls)
    found.server.accept_streams(is_proxy)
    async with backend(found, tls.client_context(ca.certificate, pki.make_client(ca, PROXY))) as shard:
        connection, _ = await watch(shard)
        shard.release(connection)
        await until(lambda: found.server.connections == 0)
        again, _ = await watch(shard)
        assert again.is_stream


async def test_those_who_waited_for_streams_that_are_refused_do_not_wait_for_each_other(
    serve: Serve, watches: Watches, server_tls: ssl.SSLContext, ca: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await serve(watches, tls=server_tls)
    async with backend(found, tls.client_context(ca.certificate, pki.make_client(ca, PROXY))) as shard:
        connect, begun, all_begun = shard._streams.connect, 0, asyncio.Event()

        async def gated() -> BackendConnection:
            nonlocal begun
            begun += 1
            if begun == 4:
                all_begun.set()
            if begun > 1:
                await all_begun.wait()
            return await connect()

        monkeypatch.setattr(shard._streams, "connect", gated)
        await asyncio.gather(*(watch(shard) for _ in range(4)))
