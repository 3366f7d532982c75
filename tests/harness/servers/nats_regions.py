"""The hierarchy of `infra/nats`, started: a hub where shards publish, a region that sources from it.

async with hierarchy(tmp_path, ["root", "amber"]) as site:
    publishing: site.shard("root"); reading in the region: site.reader; faults: site.hub.stop(), …
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from atoll.machinery.stream.connection import Access, ApiError, Connection, Unavailable
from atoll.machinery.stream.permissions import (
    follower_consumer,
    inbox_prefix,
    reader_permissions,
    region_permissions,
    shard_permissions,
    shard_user,
    source_permissions,
)
from atoll.machinery.stream.server.config import NatsUser, accounts
from atoll.machinery.stream.server.embedded import find_binary
from atoll.standalone.site.layout import Ports
from harness.environment import ROOT

INFRA = ROOT / "infra/nats"
READER, ADMIN, REGION = "cache-eu", "admin", "eu"
PASSWORD = "made-for-a-test"
START_TIMEOUT_S = 120.0


def included(*users: NatsUser) -> str:
    """The included file: the accounts of these users."""
    return "\n".join(f"{json.dumps(name)}: {json.dumps(account)}" for name, account in accounts(users).items())


class Nats:
    """One nats-server on a configuration of `infra/nats`."""

    def __init__(self, directory: Path, name: str, include: str, port: int, environment: dict[str, str]) -> None:
        directory.mkdir(parents=True)
        shutil.copy(INFRA / f"{name}.conf", directory)
        (directory / f"{name}-accounts.conf").write_text(include)
        self.directory, self._config, self._environment = directory, directory / f"{name}.conf", environment
        self.port = port
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, **environment: str) -> None:
        self._environment.update(environment)
        with (self.directory / "log").open("ab") as out:
            self._process = await asyncio.create_subprocess_exec(
                str(find_binary()),
                "-c",
                str(self._config),
                stdout=out,
                stderr=out,
                stdin=asyncio.subprocess.DEVNULL,
                env={**os.environ, **self._environment},
                start_new_session=True,
            )
        async with asyncio.timeout(START_TIMEOUT_S):
            while not await self._answers():
                assert self._process.returncode is None, (self.directory / "log").read_text()
                await asyncio.sleep(0.02)

    async def _answers(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.close()
        return True

    async def stop(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(self._process.wait(), 20.0)

    def access(self, user: str) -> Access:
        return Access([f"nats://127.0.0.1:{self.port}"], user, PASSWORD, inbox_prefix(user))


class Hierarchy:
    """Both servers. Streams of the region are made once their shards publish, by `source`."""

    def __init__(self, directory: Path, shards: Sequence[str]) -> None:
        self._ports = Ports("127.0.0.1")
        leaf, at_hub_port, in_region = (self._ports.reserve(0) for _ in range(3))
        at_hub = [NatsUser(shard_user(shard), PASSWORD, shard_permissions(shard)) for shard in shards]
        leaf_user = NatsUser("region-eu", PASSWORD, source_permissions("region-eu", shards))
        self.hub = Nats(
            directory / "hub",
            "hub",
            included(*at_hub, leaf_user),
            at_hub_port,
            {"HUB_STORE": str(directory / "hub/store"), "HUB_LEAF_LISTEN": f"127.0.0.1:{leaf}"},
        )
        self._reader = NatsUser(READER, PASSWORD, reader_permissions(READER, shards, "REGION"))
        local = included(self._reader, NatsUser(ADMIN, PASSWORD, region_permissions(shards), "REGION"))
        self.region = Nats(
            directory / "eu",
            "region",
            local,
            in_region,
            {
                "REGION": REGION,
                "REGION_STORE": str(directory / "eu/store"),
                "HUB_LEAF_URL": f"nats://region-eu:{PASSWORD}@127.0.0.1:{leaf}",
            },
        )

    async def start(self) -> None:
        await self.hub.start(HUB_LISTEN=f"127.0.0.1:{self.hub.port}")
        await self.region.start(REGION_LISTEN=f"127.0.0.1:{self.region.port}")

    async def stop(self) -> None:
        await self.region.stop()
        await self.hub.stop()
        self._ports.close()

    def shard(self, shard: str) -> Access:
        """A shard's own access to the hub."""
        return self.hub.access(shard_user(shard))

    @property
    def reader(self) -> Access:
        """A reader's access to the region."""
        return self._reader.access(f"nats://127.0.0.1:{self.region.port}")

    consumer = follower_consumer(READER)

    async def source(self, shard: str, file: str = "region", **words: str) -> None:
        """Make a stream of the region by its file, as an operator does."""
        text = (INFRA / f"streams/{file}.json").read_text()
        for name, value in {"shard": shard, **words}.items():
            text = text.replace(f"{{{name}}}", value)
        config = json.loads(text)
        async with asyncio.timeout(START_TIMEOUT_S):
            while True:
                try:
                    connection = await Connection.open(self.region.access(ADMIN), "operator")
                    try:
                        await connection.api(f"STREAM.CREATE.{config['name']}", config)
                        return
                    finally:
                        await connection.close()
                except (Unavailable, ApiError):
                    await asyncio.sleep(0.1)


@asynccontextmanager
async def hierarchy(directory: Path, shards: Sequence[str]) -> AsyncIterator[Hierarchy]:
    site = Hierarchy(directory, shards)
    try:
        await site.start()
        yield site
    finally:
        await site.stop()
