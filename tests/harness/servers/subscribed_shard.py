"""A shard that publishes to a nats-server with tenants, whose gateway admits by the name in the token.

async with SubscribedShard(directory) as shard:
    events = Subscriber(shard, shard.user("alice"), cluster)
"""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any, Self

from nats.aio.client import Client
from nats.aio.msg import Msg

from atoll.machinery.meta.names import ROOT
from atoll.machinery.stream.credential_file import NatsCredential, write_credential
from atoll.machinery.stream.permissions import inbox_prefix, shard_user
from atoll.machinery.stream.subjects import CHANGES, stream_name
from atoll.machinery.stream.tenants.key_files import SubscriptionKeys, write_subscription_keys
from harness.clients.api import Api, Object
from harness.servers.mutant_shard import MutantShard
from harness.servers.tenant_server import TenantServer

STREAM = stream_name(CHANGES, ROOT)
#: The ConfigMap that each namespace gets after a while.
_SYSTEMS = "/kube-root-ca.crt"
USERS = ("alice", "bob", "carol")


class SubscribedShard:
    """An async context manager. Its users have no rights."""

    def __init__(self, directory: Path, *flags: str) -> None:
        self.server = TenantServer(directory)
        tokens = directory / "tokens.csv"
        tokens.write_text("".join(f"{name}-token,{name},u-{name}\n" for name in USERS))
        self._credential = directory / "shard.json"
        self._keys = directory / "event-subscriptions.json"
        self._directory = directory
        self._flags = (*flags, "--token-auth-file", str(tokens), "--event-subscriptions-file", str(self._keys))

    async def __aenter__(self) -> Self:
        await self.server.__aenter__()
        await self.server.answer()
        user = shard_user(ROOT)
        write_credential(self._credential, NatsCredential(user, "secret", inbox_prefix(user)))
        names = base64.b64encode(self.server.names_key).decode()
        write_subscription_keys(self._keys, SubscriptionKeys(names, (self.server.address,)))
        nats = ("--nats-url", self.server.address, "--nats-credentials-file", str(self._credential))
        self.process = MutantShard(self._directory, *self._flags, *nats)
        await self.process.__aenter__()
        self.admin = Api(self.process, ROOT)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.process.__aexit__()
        await self.server.__aexit__()

    def user(self, name: str) -> Api:
        """Requests of a user, of paths as they are."""
        return Api(self.process, "", "", f"{name}-token")

    async def consumers(self) -> dict[str, Object]:
        """The consumers of tenants on the changes of the shard, by name."""
        page = await self.server.owners[ROOT].api(f"CONSUMER.LIST.{STREAM}", {"offset": 0})
        return {each["name"]: each for each in page["consumers"] or [] if "-" in each["name"]}

    async def lose(self, consumer: str) -> None:
        """Have the server lose a consumer, as it does when it restarts."""
        await self.server.owners[ROOT].api(f"CONSUMER.DELETE.{STREAM}.{consumer}")

    async def until_present(self, consumer: str) -> None:
        """Return when the server has a consumer."""
        async with asyncio.timeout(60):
            while consumer not in await self.consumers():  # noqa: ASYNC110  # the server announces nothing
                await asyncio.sleep(0.05)

    async def until_absent(self, consumer: str) -> None:
        """Return when the server has no such consumer."""
        async with asyncio.timeout(60):
            while consumer in await self.consumers():  # noqa: ASYNC110  # the server announces nothing
                await asyncio.sleep(0.05)

    async def reader(self, subscription: Object, identity: str) -> Reader:
        """A plain client that reads a subscription as an identity."""
        client = Client()
        await client.connect(
            self.server.address,
            token=f"user:{identity}",
            inbox_prefix=subscription["inboxPrefix"],
            allow_reconnect=False,
        )
        return Reader(client, subscription)


class Reader:
    """A client of a subscription, with what it hears at its control subject."""

    def __init__(self, client: Client, subscription: Object) -> None:
        self.client, self.subscription = client, subscription
        self._pull: Any = None

    async def next(self, count: int = 1) -> list[Msg]:
        """Take and acknowledge so many events, without RESYNC and FENCE and what the system writes into a workspace."""
        if self._pull is None:
            context = self.client.jetstream(prefix=self.subscription["apiPrefix"])
            self._pull = await context.pull_subscribe_bind(self.subscription["consumer"], stream=STREAM)
        found: list[Msg] = []
        while len(found) < count:
            for message in await self._pull.fetch(count - len(found), timeout=30):
                await message.ack_sync(timeout=30)
                about = (message.headers or {}).get("ce-subject", _SYSTEMS)
                if not about.endswith(_SYSTEMS):
                    found.append(message)
        return found

    async def close(self) -> None:
        await self.client.close()


def path(cluster: str, name: str = "") -> str:
    """The path of the subscriptions of a workspace, or of one."""
    base = f"/services/events/clusters/{cluster}/subscriptions"
    return f"{base}/{name}" if name else base
