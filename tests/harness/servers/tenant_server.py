"""A nats-server with two shards' streams, a gateway that answers for it, and tenants that connect by their token."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import msgspec

from atoll.machinery.meta.names import ROOT
from atoll.machinery.meta.objects import Object
from atoll.machinery.stream.connection import Connection
from atoll.machinery.stream.definitions import definition
from atoll.machinery.stream.permissions import shard_permissions, shard_user
from atoll.machinery.stream.server.config import NatsUser, TenantOptions
from atoll.machinery.stream.subjects import CHANGES, KINDS, stream_name
from atoll.machinery.stream.tenants.auth_callout import Admission, Answerer, ConnectRequest, make_keys
from atoll.machinery.stream.tenants.callout_service import CalloutService
from atoll.machinery.stream.tenants.connection_kicks import probe
from atoll.machinery.stream.tenants.subscriber_permissions import (
    GATEWAYS,
    SubscriberNames,
    gateway_permissions,
    subscriber_names,
    subscriber_permissions,
)
from atoll.machinery.stream.tenants.subscription_consumer import (
    SubscriptionLimits,
    consumer_config,
    subscription_filters,
)
from harness.models.shard_log import CONFIGMAPS
from harness.servers.nats import NatsServer

SHARDS = (ROOT, "east")
GATEWAY, OTHER_GATEWAY = "gateway-0", "gateway-1"
_REFUSED = re.compile(r"Permissions Violation for (Publish|Subscription) to \"(.*?)\"( using queue)?")


class TenantServer:
    """An async context manager. A token `user:<name>` is that user's; any other one admits nobody."""

    def __init__(self, directory: Path) -> None:
        self.keys = make_keys()
        self.names_key = b"a secret of the gateways"
        self.lifetime_s = 60
        self.limits = SubscriptionLimits()
        self.requests: list[ConnectRequest] = []
        users = [NatsUser(shard_user(shard), "secret", shard_permissions(shard)) for shard in SHARDS]
        for name in (GATEWAY, OTHER_GATEWAY):
            users.append(NatsUser(name, "secret", gateway_permissions(name), account=GATEWAYS))
        self.users = {user.name: user for user in users}
        self.nats = NatsServer(directory, "", users=tuple(users), tenants=TenantOptions(SHARDS, self.keys))
        self._open: list[Connection] = []
        self._service: CalloutService | None = None

    async def __aenter__(self) -> Self:
        await self.nats.start()
        for shard in SHARDS:
            owner = await self.connect(shard_user(shard))
            for kind in KINDS:
                await owner.api(f"STREAM.CREATE.{stream_name(kind, shard)}", definition(kind, shard))
        self.owners = dict(zip(SHARDS, self._open, strict=True))
        self.gateway = await self.connect(GATEWAY)
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._service is not None:
            await self._service.close()
        for connection in self._open:
            await connection.close()
        await self.nats.stop()

    @property
    def address(self) -> str:
        return self.nats.server.address

    async def connect(self, user: str) -> Connection:
        connection = await Connection.open(self.users[user].access(self.address), user)
        self._open.append(connection)
        return connection

    async def answer(self) -> None:
        """Have the gateway answer the server from now on."""
        self._service = CalloutService(self.gateway, Answerer(self.keys), self._authenticate)
        await self._service.listen()
        await self.settle()

    async def settle(self) -> None:
        """Return when the server has handled what the gateway sent."""
        await probe(self.gateway)

    async def _authenticate(self, request: ConnectRequest) -> Admission | None:
        self.requests.append(request)
        kind, _, name = request.token.partition(":")
        if kind != "user":
            return None
        names = self.names(name)
        return Admission(subscriber_permissions(names), int(time.time()) + self.lifetime_s, names.connection)

    def names(self, user: str) -> SubscriberNames:
        return subscriber_names(self.names_key, user)

    async def publish(self, shard: str, cluster: str, count: int = 1) -> None:
        """Store changes of a cluster's ConfigMaps."""
        for _ in range(count):
            subject = f"atoll.changes.{shard}.core.core.configmaps.{cluster}"
            await self.owners[shard].publish(subject, b'{"batch":10}', headers={"Atoll-Revision": "1"})
        await self.owners[shard].api(f"STREAM.INFO.{stream_name(CHANGES, shard)}")

    async def make_consumer(self, shard: str, user: str, slot: int, cluster: str) -> str:
        """A consumer of a user on one cluster's ConfigMaps, made by the shard; its name."""
        stream, name = stream_name(CHANGES, shard), self.names(user).consumers[slot]
        filters = subscription_filters(shard, [CONFIGMAPS], cluster)
        config = consumer_config(name, filters, self.limits, {"deliver_policy": "all"})
        body = {"stream_name": stream, "config": config}
        await self.owners[shard].api(f"CONSUMER.CREATE.{stream}.{name}", body)
        return name

    async def consumer(self, shard: str, name: str) -> Object:
        """How far a consumer is."""
        info = await self.owners[shard].api(f"CONSUMER.INFO.{stream_name(CHANGES, shard)}.{name}")
        return {key: info[key] for key in ("delivered", "ack_floor", "num_pending", "num_ack_pending", "num_waiting")}


class RawClient:
    """A client that sends what it likes: it checks nothing of what it may do."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.errors: list[str] = []
        #: Subject and content of what arrived.
        self.received: list[tuple[str, bytes]] = []

    @classmethod
    async def open(cls, address: str, **options: object) -> RawClient:
        """Connect with these options of the protocol, such as `auth_token`."""
        host, port = address.removeprefix("nats://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        client = cls(reader, writer)
        connect = {"verbose": False, "headers": True, "no_responders": True, "protocol": 1, **options}
        client._writer.write(b"CONNECT " + msgspec.json.encode(connect) + b"\r\n")
        await client.barrier()
        return client

    async def send(self, lines: Sequence[bytes]) -> None:
        """Send protocol lines; return when the server has handled them."""
        for number, line in enumerate(lines):
            self._writer.write(line)
            if number % 500 == 0:
                await self._writer.drain()
        await self.barrier()

    async def barrier(self) -> None:
        """Read until the server has answered a PING. Raises ConnectionError once it has hung up."""
        self._writer.write(b"PING\r\n")
        async with asyncio.timeout(60):
            while (line := await self._line()) != b"PONG":
                await self._take(line)

    async def until(self, count: int) -> None:
        """Read until so many messages arrived."""
        async with asyncio.timeout(30):
            while len(self.received) < count:
                await self._take(await self._line())

    def refused(self) -> set[tuple[str, str]]:
        """What the server refused: `Publish`, `Subscription` or `Queue`, and the subject."""
        found = (_REFUSED.search(text) for text in self.errors)
        return {("Queue" if each[3] else each[1], each[2]) for each in found if each is not None}

    def close(self) -> None:
        self._writer.close()

    async def _line(self) -> bytes:
        try:
            line = await self._reader.readline()
            if not line:
                raise ConnectionError(f"the server hung up: {self.errors}")
        except ConnectionError:
            self.close()
            raise
        return line.rstrip(b"\r\n")

    async def _take(self, line: bytes) -> None:
        verb, _, rest = line.partition(b" ")
        if verb == b"PING":
            self._writer.write(b"PONG\r\n")
        elif verb == b"-ERR":
            self.errors.append(rest.decode())
        elif verb in (b"MSG", b"HMSG"):
            fields = rest.split()
            body = await self._reader.readexactly(int(fields[-1]) + 2)
            self.received.append((fields[0].decode(), body[:-2]))
