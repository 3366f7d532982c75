"""A watch through the proxy takes no connection that a long response made large: it may keep it for hours."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from atoll.machinery.process import pki, tls
from atoll.machinery.wire.client import Origin
from atoll.machinery.wire.idle_pool import SLIM_BYTES
from atoll.machinery.wire.proxy.backend import Backend, BackendLimits
from atoll.machinery.wire.proxy.backend_connection import BackendConnection, ResponseHead
from atoll.machinery.wire.proxy.relay import Relay, RelayOwner
from atoll.machinery.wire.proxy.streaming import StreamingExchange
from unit.machinery.wire.test_backend_connection import _Sink


class Exchange:
    """An exchange of a request without a body; `spawned` has what it runs."""

    def __init__(self) -> None:
        self.spawned: list[Coroutine[Any, Any, None]] = []
        self.old = self.client_full = self.closed = False
        self.body = SimpleNamespace(upgrades=False, announced=False)
        self.request = SimpleNamespace(method="GET")

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.spawned.append(work)

    def stream_body(self, sink: object) -> None: ...

    def send(self, data: bytes) -> None: ...

    def connection_header(self) -> bytes:
        return b""


def tls_contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's context, whose handshake leaves nothing unread, and a client's."""
    ca = pki.make_ca("ca")
    serving = tls.server_context(pki.make_serving(ca, ["127.0.0.1"]), ca.certificate)
    serving.num_tickets = 0
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(cadata=ca.certificate.decode())
    return serving, client


def answered(connection: BackendConnection, size: int) -> BackendConnection:
    """Have a whole response of so many bytes arrive at once."""
    connection.begin(cast(Any, _Sink()), head_only=False, endless=False)
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size
    connection.write(b"GET / HTTP/1.1\r\n\r\n")
    connection.data_received(head + b"x" * size)
    return connection


async def taken(backend: Backend, *, endless: bool) -> BackendConnection:
    """The connection that a request goes over."""
    exchange = Exchange()
    relay = Relay(cast(StreamingExchange, exchange), backend, b"", cast(RelayOwner, None), endless=endless)
    relay.start()
    for work in exchange.spawned:
        await work
    assert relay._connection is not None
    return relay._connection


@pytest.mark.parametrize("endless", [False, True])
async def test_a_watch_takes_no_large_connection(endless: bool) -> None:
    serving, client = tls_contexts()
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0, ssl=serving)
    backend = Backend(Origin("127.0.0.1", server.sockets[0].getsockname()[1], client), BackendLimits())
    try:
        slim = answered(await backend.connect(fresh=True), 1000)
        large = answered(await backend.connect(fresh=True), SLIM_BYTES)
        for each in (slim, large):
            backend.release(each)
        found = [await taken(backend, endless=endless) for _ in range(2)]
        if endless:
            assert found[0] is slim
            assert found[1] not in (slim, large)
        else:
            assert found == [large, slim], "the one that was used last"
    finally:
        backend.close()
        server.close()


async def test_a_request_is_kept_until_its_response_begins() -> None:
    owner = cast(RelayOwner, SimpleNamespace(check=lambda head: None))
    relay = Relay(cast(StreamingExchange, Exchange()), cast(Backend, None), b"GET", owner, endless=True)
    relay._connection = cast(BackendConnection, SimpleNamespace(reframes=False))
    assert relay._head == b"GET"
    relay.response_head(ResponseHead(b"HTTP/1.1 200 OK", 200, [], chunked=False, until_close=False), b"")
    assert relay._head == b""
