"""What a client keeps of connections that carried much: no watch, and no idle one for long.

Both ends of a TLS connection keep memory of its longest read and write until it ends.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from atoll.machinery.client.client import Client
from atoll.machinery.client.kubeconfig import Target
from atoll.machinery.wire.client import ClientLimits, HttpClient, Origin
from atoll.machinery.wire.exchange import Exchange
from atoll.machinery.wire.idle_pool import SLIM_BYTES
from harness.clients.raw_http import until
from harness.servers.in_process.wire_server import Running, Serve

MUCH = b"x" * (SLIM_BYTES + 1)


class Seen:
    """A server whose `/much` replies at length; `ports` has the client's port of each request."""

    def __init__(self) -> None:
        self.ports: list[int] = []

    def __call__(self, exchange: Exchange) -> None:
        self.ports.append(exchange.request.peer.port)
        exchange.reply(200, [], MUCH if exchange.request.target == b"/much" else b"little")


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
async def running(serve: Serve, seen: Seen) -> Running:
    return await serve(seen)


@pytest.fixture
async def client(running: Running) -> AsyncIterator[HttpClient]:
    # Either time alone tells which of the two was applied.
    made = HttpClient(Origin("127.0.0.1", running.port), ClientLimits(idle_timeout_s=600, large_idle_timeout_s=600))
    yield made
    await made.close()


@pytest.mark.parametrize(
    ("method", "target", "body", "is_reused"),
    [("GET", "/much", b"", False), ("PUT", "/", MUCH, False), ("PUT", "/", b"x" * 1000, True)],
)
async def test_a_watch_goes_over_a_connection_that_carried_little(
    client: HttpClient, seen: Seen, method: str, target: str, body: bytes, is_reused: bool
) -> None:
    await client.request(method, target, body=body)
    async with await client.watch("/watch") as stream:
        assert await stream.read() == b"little"
    first, watch = seen.ports
    assert (first == watch) == is_reused


async def test_a_watch_takes_the_small_one_of_two_idle_connections(client: HttpClient, seen: Seen) -> None:
    async with await client.stream("GET", "/much") as stream:
        # A second connection, as the first is in use.
        await client.request("GET", "/")
        await stream.read()
    async with await client.watch("/watch") as stream:
        await stream.read()
    large, small, watch = seen.ports
    assert large != small == watch


async def test_so_does_a_watch_of_a_kubernetes_client(client: HttpClient, running: Running, seen: Seen) -> None:
    kubernetes = Client(Target("127.0.0.1", running.port, "", None), http=client)
    await kubernetes.raw("GET", "/much")
    async with kubernetes.stream("/watch", {}) as stream:
        await stream.read()
    await kubernetes.raw("GET", "/much")
    lists, watch, again = seen.ports
    assert watch != lists
    assert again == watch, "the one that was used last"


async def test_lists_that_follow_one_another_share_a_connection(client: HttpClient, seen: Seen) -> None:
    for _ in range(3):
        await client.request("GET", "/much")
        async with await client.stream("GET", "/much") as stream:
            await stream.read()
    assert len(set(seen.ports)) == 1


async def test_an_idle_connection_that_carried_much_is_closed_sooner(running: Running, seen: Seen) -> None:
    limits = ClientLimits(idle_timeout_s=600, large_idle_timeout_s=0.05)
    client = HttpClient(Origin("127.0.0.1", running.port), limits)
    try:
        # Of this one the client's timer is set, for ten minutes later.
        await client.request("GET", "/")
        async with await client.stream("GET", "/") as one, await client.stream("GET", "/") as other:
            await client.request("GET", "/much")
            await one.read()
            await other.read()
        small = set(seen.ports[:3])
        await until(lambda: running.server.connections == 2)
        await client.request("GET", "/")
        assert seen.ports[-1] in small
    finally:
        await client.close()


async def test_each_idle_connection_is_closed_after_its_time(running: Running) -> None:
    limits = ClientLimits(idle_timeout_s=0.2, large_idle_timeout_s=0.05)
    client = HttpClient(Origin("127.0.0.1", running.port), limits)
    try:
        async with await client.stream("GET", "/") as stream:
            await client.request("GET", "/much")
            await stream.read()
        await until(lambda: running.server.connections == 0)
    finally:
        await client.close()
