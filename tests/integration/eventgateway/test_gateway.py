"""Event gateways at a real nats-server: whom they let in, whose connections they end, and that several are one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from atoll.eventgateway.gateway import build_gateway
from atoll.machinery.apiserver.authentication import event_tokens
from atoll.machinery.apiserver.authentication.event_tokens import EventTokens
from atoll.machinery.apiserver.authentication.service_account_keys import KeySet, load_keys
from atoll.machinery.apiserver.authentication.service_accounts import DEFAULT_ISSUER, ServiceAccountIssuers
from atoll.machinery.apiserver.authentication.token_issuer import Account, TokenIssuer
from atoll.machinery.process.pki import make_rsa_key
from atoll.machinery.process.tasks import stop
from atoll.machinery.stream.permissions import KICK_SUBJECT
from atoll.machinery.stream.server.config import NatsUser
from atoll.machinery.stream.tenants.auth_callout import make_keys
from atoll.machinery.stream.tenants.gateway import Gateway
from atoll.machinery.stream.tenants.subscriber_permissions import (
    GATEWAYS,
    control_address,
    gateway_permissions,
    identity,
)
from harness.servers.nats import NatsServer
from harness.servers.tenant_server import GATEWAY, OTHER_GATEWAY, RawClient, TenantServer
from harness.waits import until

ANN = identity("ann")


@pytest.fixture(scope="module")
def keys() -> KeySet:
    return load_keys(make_rsa_key())


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[TenantServer]:
    async with TenantServer(tmp_path) as server:
        yield server


class Running:
    """A gateway that works until `stop`."""

    def __init__(self, server: TenantServer, keys: KeySet, user: str = GATEWAY, most_connections: int = 64) -> None:
        self.registry = CollectorRegistry()
        access = server.users[user].access(server.address)
        tokens = EventTokens(keys.verifying, (DEFAULT_ISSUER,))
        self.gateway = build_gateway(access, server.keys, tokens, self.registry, most_connections)
        self._task = asyncio.create_task(self.gateway.run())

    async def serving(self) -> None:
        await serving(self.gateway)

    def count(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(f"atoll_event_gateway_{name}_total", labels) or 0.0

    async def stop(self) -> None:
        await stop(self._task)


async def serving(gateway: Gateway) -> None:
    async def ready() -> bool:
        return gateway.check_connection() is None and gateway.check_account() is None

    await until(ready, "the gateway serves")


async def enter(server: TenantServer, token: str) -> RawClient:
    """A client that was let in: until the gateway listens, the server turns it away after a while."""

    async def let_in() -> RawClient | None:
        try:
            return await RawClient.open(server.address, auth_token=token)
        except ConnectionError:
            return None

    client: RawClient = await until(let_in, "the client is let in")
    return client


def token_of(keys: KeySet, user: str, cluster: str = "") -> str:
    return event_tokens.issue(keys, user, cluster, time.time()).text


async def ended(client: RawClient) -> None:
    with pytest.raises(ConnectionError):
        await client.until(1)


async def kick(server: TenantServer, whose: str) -> None:
    await server.owners["root"].publish(KICK_SUBJECT, msgspec.json.encode({"identity": whose}))


async def test_an_identity_has_a_bounded_number_of_connections_and_takes_those_of_nobody_else(
    server: TenantServer, keys: KeySet
) -> None:
    running, ann = Running(server, keys, most_connections=3), token_of(keys, "ann")
    try:
        await running.serving()
        first = await enter(server, ann)
        more = [RawClient.open(server.address, auth_token=ann) for _ in range(6)]
        found = await asyncio.gather(*more, return_exceptions=True)
        held = [each for each in found if isinstance(each, RawClient)]
        assert (len(held), running.count("connects", result="crowded")) == (2, 4)
        other = await enter(server, token_of(keys, "bob"))
        first.close()
        for client in (*held, other, await enter(server, ann)):
            client.close()
    finally:
        await running.stop()


async def test_a_token_of_the_api_lets_nobody_in_and_one_for_events_does(server: TenantServer, keys: KeySet) -> None:
    running = Running(server, keys)
    try:
        await running.serving()
        issuer, account = TokenIssuer(keys, ServiceAccountIssuers()), Account("2web", "ns", "builder", "uid-1")
        for good in (token_of(keys, "ann"), issuer.issue(account, ("events",), 600).text):
            (await enter(server, good)).close()
        admitted = running.count("connects", result="admitted")
        old = event_tokens.issue(keys, "ann", "", time.time() - 901).text
        for bad in (
            issuer.issue(account, (DEFAULT_ISSUER,), 600).text,
            old,
            token_of(load_keys(make_rsa_key()), "ann"),
        ):
            with pytest.raises(ConnectionError):
                await RawClient.open(server.address, auth_token=bad)
        assert running.count("connects", result="refused") >= 3
        assert running.count("connects", result="admitted") == admitted
    finally:
        await running.stop()


async def test_a_kick_ends_all_connections_of_an_identity_and_no_other_even_by_a_gateway_that_let_none_in(
    server: TenantServer, keys: KeySet
) -> None:
    first = Running(server, keys)
    await first.serving()
    ann, bob = token_of(keys, "ann"), token_of(keys, "bob")
    of_the_cluster = await enter(server, token_of(keys, "ann", "2web"))
    anns, bobs = [await enter(server, ann) for _ in range(3)], await enter(server, bob)
    await first.stop()
    second = Running(server, keys, OTHER_GATEWAY)
    try:
        await second.serving()
        # The kick is heard: an identity without connections is answered for as well.
        (await enter(server, ann)).close()
        await server.owners["root"].publish(KICK_SUBJECT, b"not a kick")
        await kick(server, ANN)
        for client in anns:
            await ended(client)
        for client in (bobs, of_the_cluster):
            await client.barrier()
            client.close()
        assert second.count("kicks") >= 3
        (await enter(server, ann)).close()
    finally:
        await second.stop()


async def test_while_one_of_two_gateways_works_clients_are_let_in_and_their_connections_ended(
    server: TenantServer, keys: KeySet
) -> None:
    first, second = Running(server, keys), Running(server, keys, OTHER_GATEWAY)
    try:
        for running in (first, second):
            await running.serving()
        clients = [await enter(server, token_of(keys, "ann")) for _ in range(8)]
        await first.stop()
        clients += [await enter(server, token_of(keys, "ann")) for _ in range(4)]
        await kick(server, ANN)
        for client in clients:
            await ended(client)
    finally:
        await second.stop()
        await first.stop()


async def test_what_a_shard_tells_a_subscriber_arrives_at_that_ones_inbox_alone(
    server: TenantServer, keys: KeySet
) -> None:
    async with AsyncExitStack() as stack:
        await server.answer()
        clients: dict[str, RawClient] = {}
        for user in ("ann", "bob"):
            clients[user] = client = await RawClient.open(server.address, auth_token=f"user:{user}")
            stack.callback(client.close)
            await client.send([f"SUB {server.names(user).inbox}.> 1\r\n".encode()])
        anns = server.names("ann")
        for shard, owner in server.owners.items():
            await owner.publish(control_address(anns.inbox), shard.encode())
            # Only below `control` of an inbox: what else a shard says stays in its account.
            await owner.publish(f"events.control.{anns.inbox}.x", b"wrong")
            await owner.publish(f"{anns.inbox}.control", b"wrong")
        await clients["ann"].until(2)
        assert sorted(clients["ann"].received) == [
            (f"{anns.inbox}.control", shard.encode()) for shard in sorted(server.owners)
        ]
        await clients["bob"].barrier()
        assert clients["bob"].received == []


async def test_a_gateway_at_a_server_without_the_account_of_subscribers_serves_nothing_and_says_so(
    tmp_path: Path, keys: KeySet
) -> None:
    user = NatsUser(GATEWAY, "secret", gateway_permissions(GATEWAY), account=GATEWAYS)
    async with NatsServer(tmp_path, "root", users=(user,)) as nats:
        access, tokens = user.access(nats.server.address), EventTokens(keys.verifying, (DEFAULT_ISSUER,))
        gateway = build_gateway(access, make_keys(), tokens, CollectorRegistry(), 64)
        task = asyncio.create_task(gateway.run())
        try:

            async def is_named() -> bool:
                return "no account of tenants" in (gateway.check_account() or "")

            await until(is_named, "the gateway says what is missing")
        finally:
            await stop(task)
