"""A site whose NATS server is a hub, a region that sources from it, and a second proxy that follows the region.

with RegionSite(tmp_path, shards=3) as site:
    site.source("root")                        # a stream of the region, as an operator makes it
    site.second.api("root").get(...)           # by the proxy in the region
"""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

from atoll.machinery.stream.connection import Access, ApiError, Connection
from atoll.machinery.stream.permissions import inbox_prefix, reader_permissions, region_permissions, source_permissions
from atoll.machinery.stream.server.config import NatsUser
from atoll.machinery.stream.server.embedded import find_binary
from atoll.standalone.site.credentials import PROXY_USER
from atoll.standalone.site.gateways import tenant_options
from atoll.standalone.site.layout import PROXY
from atoll.standalone.site.processes import ProcessSpec
from harness.servers.nats_regions import ADMIN, INFRA, PASSWORD, REGION, included
from harness.servers.site import NatsProcess, ServingProcess, Site, SiteProcess

LEAF = "region-eu"
#: The region of the second proxy.
REGION_LABEL = "eu"


class RegionNats(NatsProcess):
    """The NATS server of the region, by `infra/nats/region.conf`."""

    def __init__(self, site: Site, directory: Path, port: int, leaf: int, users: list[NatsUser]) -> None:
        directory.mkdir(parents=True)
        shutil.copy(INFRA / "region.conf", directory)
        (directory / "region-accounts.conf").write_text(included(*users))
        SiteProcess.__init__(self, "nats-region", [str(find_binary()), "-c", str(directory / "region.conf")], site.logs)
        self.url, self.users, self._directory, self._port = f"nats://127.0.0.1:{port}", users, directory, port
        self.environment = {
            "REGION": REGION,
            "REGION_LISTEN": f"127.0.0.1:{port}",
            "REGION_STORE": str(directory / "store"),
            "HUB_LEAF_URL": f"nats://{LEAF}:{PASSWORD}@127.0.0.1:{leaf}",
        }


class RegionSite(Site):
    """The site, the region and its proxy."""

    def __init__(self, directory: Path, shards: int = 3) -> None:
        super().__init__(directory, shards)
        names = list(self.shards)
        port, leaf, second = (self._ports.reserve(0) for _ in range(3))
        self._open_hub(leaf, [*self.nats.users, NatsUser(LEAF, PASSWORD, source_permissions(LEAF, names))])
        credential = self.layout.credential(PROXY_USER)
        password = json.loads(Path(credential).read_bytes())["password"]
        reader = NatsUser(PROXY_USER, password, reader_permissions(PROXY_USER, names, "REGION"))
        admin = NatsUser(ADMIN, PASSWORD, region_permissions(names), "REGION")
        self.region = RegionNats(self, directory / "region", port, leaf, [reader, admin])
        changed = {
            "--nats-url": self.region.url,
            "--secure-port": str(second),
            "--root-directory": str(directory / "second-proxy"),
            "--region": REGION_LABEL,
        }
        arguments = [each for each in self.proxy.command[3:] if each.partition("=")[0] not in changed]
        arguments += [f"{name}={value}" for name, value in changed.items()]
        self.second = ServingProcess(self, ProcessSpec(f"{PROXY}-2", tuple(arguments), f"https://127.0.0.1:{second}"))

    @property
    def processes(self) -> list[SiteProcess]:
        """All of them; the second proxy is started by the test, once the region has streams."""
        return [self.second, *super().processes[:-1], self.region, self.nats]

    def start(self) -> None:
        """Start everything but the second proxy."""
        for process in reversed(self.processes[1:]):
            if not process.running:
                process.spawn()
        for process in reversed(self.processes[1:]):
            process.wait_ready()

    def _open_hub(self, leaf: int, users: list[NatsUser]) -> None:
        """Let a region join the site's NATS server, beside subscribers of events."""
        self.nats.configure(users, tenant_options(self.layout.pki, self.plan.shards, [LEAF]), f"127.0.0.1:{leaf}")

    def source(self, shard: str) -> None:
        """Make the stream of a shard in the region; returns once it is made."""
        config = json.loads((INFRA / "streams/region.json").read_text().replace("{shard}", shard))

        async def make() -> None:
            access = Access([self.region.url], ADMIN, PASSWORD, inbox_prefix(ADMIN))
            connection = await Connection.open(access, "operator")
            try:
                await connection.api(f"STREAM.CREATE.{config['name']}", config)
            finally:
                await connection.close()

        async def until_made() -> None:
            async with asyncio.timeout(60.0):
                while True:
                    try:
                        return await make()
                    except (ApiError, OSError):
                        await asyncio.sleep(0.1)

        asyncio.run(until_made())
