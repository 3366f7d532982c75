"""Clients of other shards: their URLs, users and connections, and the errors of calls that fail."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from atoll.machinery.client.resource import WORKSPACES
from atoll.machinery.client.target import Target
from atoll.machinery.meta.status import ServiceUnavailable
from atoll.machinery.process.client_identity import client_identity
from atoll.machinery.process.pki import make_ca, make_client, make_serving
from atoll.machinery.process.private_files import Pair
from atoll.machinery.process.tls import client_context, server_context
from atoll.machinery.wire.exchange import Exchange
from atoll.machinery.wire.limits import Limits
from atoll.machinery.wire.pending_response import Unreachable
from atoll.machinery.wire.server import Server
from atoll.replication.peers import EXTERNAL_LOGICAL_CLUSTER_ADMIN, LOGICAL_CLUSTER_ADMIN, PEER_ERRORS, NoPeer, Peers

_SERVING, _CLIENTS = make_ca("serving"), make_ca("clients")
_JSON = ("content-type", "application/json")


def target(pair: Pair | None = None) -> Target:
    """A target as a kubeconfig gives it; its own address must have no effect."""
    return Target("192.0.2.1", 1, "/elsewhere", client_context(_SERVING.certificate, pair))


class Shard:
    """A server that records its requests and their clients."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []
        self.connections: set[int] = set()
        self.busy = False
        self._server = Server(self._answer, Limits(), self._context())
        self.url = ""

    @staticmethod
    def _context() -> ssl.SSLContext:
        return server_context(make_serving(_SERVING, ["127.0.0.1"]), _CLIENTS.certificate)

    async def start(self) -> None:
        self.url = f"https://127.0.0.1:{await self._server.start('127.0.0.1', 0)}"

    async def stop(self) -> None:
        await self._server.drain(1.0)

    def _answer(self, exchange: Exchange) -> None:
        peer = exchange.request.peer
        who = client_identity(peer.certificate).common_name if peer.certificate else ""
        self.requests.append((exchange.request.target.decode(), who))
        self.connections.add(peer.port)
        if self.busy:
            status = ServiceUnavailable("come back").status()
            exchange.reply(503, (_JSON, ("retry-after", "1")), msgspec.json.encode(status))
        else:
            exchange.reply(200, (_JSON,), b'{"metadata":{"name":"x"}}')


class Site:
    """Shards by name, and a process's clients of them."""

    def __init__(self) -> None:
        self.urls: dict[str, str] = {}
        pairs = {name: make_client(_CLIENTS, name) for name in (LOGICAL_CLUSTER_ADMIN, EXTERNAL_LOGICAL_CLUSTER_ADMIN)}
        self.peers = Peers(self._find, {name: target(pair) for name, pair in pairs.items()})

    def _find(self, name: str) -> dict[str, Any] | None:
        url = self.urls.get(name)
        return {"spec": {"baseURL": url}} if url is not None else None

    async def ask(self, shard: str, identity: str = LOGICAL_CLUSTER_ADMIN) -> None:
        await self.peers.client(shard, identity).cluster("abc").get(WORKSPACES, "x")


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    here = Site()
    yield here
    await here.peers.close()


@pytest.fixture
async def shard() -> AsyncIterator[Shard]:
    here = Shard()
    await here.start()
    yield here
    await here.stop()


async def test_a_call_goes_to_the_base_url_of_the_shard_as_who_was_asked_for(site: Site, shard: Shard) -> None:
    site.urls["eu"] = f"{shard.url}/behind"
    await site.ask("eu")
    await site.ask("eu", EXTERNAL_LOGICAL_CLUSTER_ADMIN)
    path = "/behind/clusters/abc/apis/tenancy.kcp.io/v1alpha1/workspaces/x"
    assert shard.requests == [(path, LOGICAL_CLUSTER_ADMIN), (path, EXTERNAL_LOGICAL_CLUSTER_ADMIN)]


async def test_connections_are_kept(site: Site, shard: Shard) -> None:
    site.urls["eu"] = shard.url
    for _ in range(5):
        await site.ask("eu")
    assert len(shard.connections) == 1


async def test_a_shard_that_moved_is_found_by_the_next_call(site: Site, shard: Shard) -> None:
    other = Shard()
    await other.start()
    site.urls["eu"] = shard.url
    await site.ask("eu")
    site.urls["eu"] = other.url
    await site.ask("eu")
    await other.stop()
    assert (len(shard.requests), len(other.requests)) == (1, 1)


async def test_who_is_busy_is_asked_once_and_the_caller_told(site: Site, shard: Shard) -> None:
    site.urls["eu"], shard.busy = shard.url, True
    with pytest.raises(ServiceUnavailable):
        await site.ask("eu")
    assert len(shard.requests) == 1


async def test_who_is_gone_is_said_at_once(site: Site, shard: Shard) -> None:
    site.urls["eu"] = shard.url
    await shard.stop()
    with pytest.raises(Unreachable):
        await site.ask("eu")


async def test_a_server_of_another_authority_is_not_told_anything(shard: Shard) -> None:
    stranger = make_ca("stranger")
    given = Target("192.0.2.1", 1, "", client_context(stranger.certificate, make_client(_CLIENTS, "a")))
    peers = Peers(lambda name: {"spec": {"baseURL": shard.url}}, {LOGICAL_CLUSTER_ADMIN: given})
    with pytest.raises(PEER_ERRORS):
        await peers.client("eu").get(WORKSPACES, "x")
    await peers.close()
    assert shard.requests == []


async def test_a_shard_that_is_not_known_is_named(site: Site) -> None:
    with pytest.raises(NoPeer, match="shard eu is not known here"):
        site.peers.client("eu")


@pytest.mark.parametrize("url", ["", "http://127.0.0.1:1", "https://", "https://host:port", "eu.example"])
async def test_a_shard_without_an_https_url_is_not_called(site: Site, url: str) -> None:
    site.urls["eu"] = url
    with pytest.raises(NoPeer, match="is no https URL"):
        site.peers.client("eu")


async def test_without_credentials_nobody_is_called(shard: Shard) -> None:
    peers = Peers(lambda name: {"spec": {"baseURL": shard.url}}, {})
    with pytest.raises(NoPeer, match="no credentials were given"):
        peers.client("eu")
    await asyncio.sleep(0)
    assert shard.requests == []
