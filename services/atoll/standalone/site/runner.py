"""`atoll start --shards N`: a site on one machine, from an empty directory to its end.

Ports are held and credentials written first; then NATS, and all processes at once: shards wait for what they need of
each other by themselves. On SIGTERM the proxy goes first, then the shards, the root shard after the others, then NATS,
so that what was committed still reaches the streams.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from urllib.parse import urlsplit

import structlog

from atoll.machinery.meta.names import ROOT
from atoll.machinery.process.lifetime import Lifetime
from atoll.machinery.process.tls import client_context
from atoll.machinery.storage.environment.filesystem import require_local
from atoll.machinery.stream.server.config import NatsUser
from atoll.machinery.stream.server.embedded import EmbeddedServer, ServerOptions
from atoll.machinery.wire.client import Origin
from atoll.shard import kubeconfig
from atoll.shard.config import ShardConfig
from atoll.standalone.site import credentials, layout, processes
from atoll.standalone.site.layout import NATS, NATS_HOST, PROXY, Layout, Ports, Site, SiteRefused
from atoll.standalone.site.processes import DECIDED, Member, StartConfig
from atoll.standalone.site.supervisor import Keeper, until_ready

log = structlog.get_logger()

#: Room for the streams of one shard.
STREAMS_BYTES = 16 << 30


def check(config: StartConfig) -> None:
    """Raises SiteRefused for settings that do not go with `--shards`."""
    if not 0 <= config.shards <= layout.MAX_SHARDS:
        raise SiteRefused(f"shards {config.shards} is not between 0 and {layout.MAX_SHARDS}")
    defaults = ShardConfig()
    given = [name for name in DECIDED if getattr(config, name) != getattr(defaults, name)]
    if config.shards and given:
        raise SiteRefused(f"--{given[0].replace('_', '-')} is what --shards decides; start the processes one by one")


async def start(config: StartConfig) -> None:
    """Run until SIGTERM or SIGINT. Raises SiteRefused, MemberFailed, ServerFailed, PkiError, OSError."""
    began = time.monotonic()
    here = layout.of(config.root_directory)
    if not config.allow_any_filesystem:
        require_local(here.root)
    with layout.owned(here):
        ports = Ports(config.bind_address)
        try:
            site = planned(here, config, ports)
            users = prepare(here, site, config.shard)
            await _Running(here, site, config.shard, began).run(users)
        finally:
            ports.close()


def planned(here: Layout, config: StartConfig, ports: Ports) -> Site:
    """The site with a port for each process, held and kept. Raises SiteRefused, OSError."""
    site = layout.prepare(here, config.shards)
    kept = site.ports
    found = {PROXY: ports.hold(config.secure_port or kept.get(PROXY, 0), exactly=bool(config.secure_port))}
    for name in (NATS, *site.shards):
        found[name] = ports.hold(kept.get(name, 0))
    site = Site(site.shards, found)
    layout.keep(here, site)
    return site


def prepare(here: Layout, site: Site, config: ShardConfig) -> list[NatsUser]:
    """Write all that the processes are given; gives the users of the NATS server. Raises PkiError, OSError."""
    urls = processes.urls_of(site, config)
    processes.write_mapping(here, urls)
    return credentials.write_all(here, site.shards, config.bind_address, urls)


def nats_options(here: Layout, site: Site, users: Sequence[NatsUser]) -> ServerOptions:
    """The NATS server of a site, for this machine alone. Streams reserve what they may grow to, so there is room for
    those of every shard."""
    return ServerOptions(
        directory=here.nats,
        host=NATS_HOST,
        port=site.ports[NATS],
        users=tuple(users),
        store_limit_bytes=len(site.shards) * STREAMS_BYTES,
    )


class _Running:
    """One running site."""

    def __init__(self, here: Layout, site: Site, config: ShardConfig, began: float) -> None:
        self._here, self._site, self._config, self._began = here, site, config, began
        self._life = Lifetime()

    async def run(self, users: Sequence[NatsUser]) -> None:
        self._life.heed_signals()
        found = processes.members(self._here, self._site, self._config)
        async with EmbeddedServer(nats_options(self._here, self._site, users)):
            keepers = [Keeper(member) for member in found]
            for keeper in keepers:
                keeper.start()
            try:
                if await self._came_up(keepers):
                    self._tell(found)
                    await self._life.over()
            finally:
                log.info("draining")
                await self._drain(keepers)

    async def _came_up(self, keepers: Sequence[Keeper]) -> bool:
        """Whether all are ready; False if told to leave before. Raises MemberFailed."""
        ready = until_ready(keepers, [self._origin(keeper.member) for keeper in keepers])
        if not await self._life.unless_over(ready):
            return False
        for keeper in keepers:
            keeper.settle()
        return True

    def _origin(self, member: Member) -> Origin:
        parts = urlsplit(member.url)
        authority = credentials.authorities(self._here).serving.certificate
        return Origin(parts.hostname or "", parts.port or 0, client_context(authority))

    async def _drain(self, keepers: Sequence[Keeper]) -> None:
        by_name = {keeper.member.name: keeper for keeper in keepers}
        others = [keeper for name, keeper in by_name.items() if name not in {PROXY, ROOT}]
        await by_name[PROXY].stop()
        await asyncio.gather(*(keeper.stop() for keeper in others))
        await by_name[ROOT].stop()

    def _tell(self, found: Sequence[Member]) -> None:
        took = time.monotonic() - self._began
        urls = {member.name: member.url for member in found}
        lines = [
            f"atoll serves {urls[PROXY]} (ready after {took:.2f} s)",
            *(f"  shard {name} at {urls[name]}" for name in self._site.shards),
            "Go on in another terminal:",
            f"  export KUBECONFIG={self._here.root / kubeconfig.FILE_NAME}",
            "  kubectl create workspace acme --enter",
        ]
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()
