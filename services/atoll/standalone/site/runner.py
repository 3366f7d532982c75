"""`atoll start --shards N`: a site on one machine.

`atoll.cli` calls `check` and `start`. Ports are reserved and credentials written first; then NATS starts, and all other
processes at once: shards wait for each other by themselves. On SIGTERM the proxy stops first, then the shards, the root
shard after the others, then NATS, so that committed changes still reach the streams.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from urllib.parse import urlsplit

import msgspec
import structlog

from atoll.machinery.kcp.bootstrap.batteries import ADMIN
from atoll.machinery.meta.names import ROOT
from atoll.machinery.process import pki
from atoll.machinery.process.lifetime import Lifetime
from atoll.machinery.process.listen_address import serving_names
from atoll.machinery.process.tls import client_context
from atoll.machinery.storage.environment.filesystem import require_local
from atoll.machinery.stream.credential_file import Reach
from atoll.machinery.stream.permissions import OPERATOR
from atoll.machinery.stream.server.config import STREAMS_BYTES, NatsUser
from atoll.machinery.stream.server.embedded import EmbeddedServer, ServerOptions
from atoll.machinery.wire.client import Origin
from atoll.shard import kubeconfig
from atoll.shard.config import ShardConfig
from atoll.standalone import nats_listener, worker_count
from atoll.standalone.change_stream import CREDENTIALS_FILE
from atoll.standalone.edge_service import CONTROLLERS, EdgeFiles, EdgeService, edge_users, passed_on
from atoll.standalone.site import credentials, layout, processes
from atoll.standalone.site.gateways import gateway_users, tenant_options, write_for_shards
from atoll.standalone.site.layout import GATEWAY, NATS, PROXY, Layout, Ports, Site, SiteError
from atoll.standalone.site.processes import SET_BY_SITE, ProcessSpec, StartConfig
from atoll.standalone.site.restart_requests import RestartRequests
from atoll.standalone.site.subscribers import subscriber, write_stream_files
from atoll.standalone.site.supervisor import ProcessSupervisor, until_ready

log = structlog.get_logger()

MAX_EDGE_REPLICAS = 16


def check(config: StartConfig) -> None:
    """Raise SiteError for settings that cannot be combined with `--shards`."""
    if not 0 <= config.shards <= layout.MAX_SHARDS:
        raise SiteError(f"shards {config.shards} is not between 0 and {layout.MAX_SHARDS}")
    if not 1 <= config.edge_replicas <= MAX_EDGE_REPLICAS:
        raise SiteError(f"edge-replicas {config.edge_replicas} is not between 1 and {MAX_EDGE_REPLICAS}")
    if config.edge and ADMIN not in config.batteries:
        raise SiteError("--edge needs the administrators of the battery admin, who write the edge service")
    if config.edge and config.nats_url:
        raise SiteError("--edge with a NATS server of its own: run atoll edge-init and atoll edge-controllers")
    defaults = ShardConfig()
    conflicting = [name for name in SET_BY_SITE if getattr(config, name) != getattr(defaults, name)]
    if config.shards and conflicting:
        raise SiteError(
            f"--{conflicting[0].replace('_', '-')} is what --shards decides; start the processes one by one"
        )


async def start(config: StartConfig) -> None:
    """Run until SIGTERM or SIGINT. Raises SiteError, ProcessStartFailure, ServerFailed, PkiError, OSError."""
    began = time.monotonic()
    files = layout.of(config.root_directory)
    if not config.allow_any_filesystem:
        require_local(files.root)
    with layout.locked(files):
        ports = Ports(config.bind_address)
        try:
            site = plan(files, config, ports)
            shard = msgspec.structs.replace(config.shard, workers=worker_count.resolve(config.workers, config.shards))
            users = prepare(files, site, shard, edge_users(config.edge_processes))
            edge = _edge_files(files, site, shard, config.edge_processes) if config.edge else None
            await SiteRunner(files, site, shard, began).run(users, edge)
        finally:
            ports.close()


def plan(files: Layout, config: StartConfig, ports: Ports) -> Site:
    """The site with a reserved and stored port for each process. Raises SiteError, OSError."""
    site = layout.prepare(files, config.shards)
    earlier = site.ports
    flag = "secure-port" if config.secure_port else ""
    current = {PROXY: ports.reserve(config.secure_port or earlier.get(PROXY, 0), flag)}
    flag = "events-port" if config.events_port else ""
    current[NATS] = ports.reserve(config.events_port or earlier.get(NATS, 0), flag, config.events_bind_address)
    for name in (GATEWAY, *site.shards):
        current[name] = ports.reserve(earlier.get(name, 0))
    site = Site(site.shards, current)
    layout.write(files, site)
    return site


def prepare(files: Layout, site: Site, config: ShardConfig, edge: Sequence[str] = ()) -> list[NatsUser]:
    """Write the files of all processes; return the users of the NATS server. Raises PkiError, OSError."""
    urls = processes.urls_of(site, config)
    processes.write_mapping(files, urls)
    tls, port = nats_listener.tls_files(config, files.pki), site.ports[NATS]
    reach = Reach(str(tls.ca_file) if tls else "")
    users = credentials.write_all(files, site.shards, config, urls, edge, reach)
    operator = subscriber(files.pki, site.shards, OPERATOR, reach)
    streams = {shard: files.shard(shard) / CREDENTIALS_FILE for shard in site.shards}
    keys = credentials.public_keys(files.pki, site.shards)
    write_stream_files(operator, [nats_listener.nats_url(config, port)], streams, keys, reach.ca_file)
    names, serving = serving_names(config.bind_address), credentials.authorities(files).serving
    for process in (GATEWAY, *((CONTROLLERS,) if edge else ())):
        pki.load_or_make_serving(files.pki, f"serving-{process}", serving, names)
    tenants = tenant_options(files.pki, site.shards)
    for shard in site.shards:
        write_for_shards(files.shard(shard), tenants, [nats_listener.subscribers_url(config, port)], tls)
    return [*users, operator, *gateway_users(files.pki, [GATEWAY], reach)]


def _edge_files(files: Layout, site: Site, config: ShardConfig, count: int) -> EdgeFiles:
    async def nats_url() -> str:
        return nats_listener.nats_url(config, site.ports[NATS])

    serving = files.certificate(f"serving-{CONTROLLERS}"), files.key(f"serving-{CONTROLLERS}")
    return EdgeFiles(
        files.root / kubeconfig.FILE_NAME,
        files.root / "edge",
        nats_url,
        tuple(map(files.credential, edge_users(count))),
        passed_on(config, serving, str(files.certificate(credentials.CLIENT_CA))),
    )


def nats_options(files: Layout, site: Site, config: ShardConfig, users: Sequence[NatsUser]) -> ServerOptions:
    """The NATS server of a site. Streams reserve their maximum size, so the limit has room for those of every shard.
    Raises InvalidCredentialFile, PkiError, OSError."""
    return ServerOptions(
        directory=files.nats,
        host=config.events_bind_address,
        port=site.ports[NATS],
        users=tuple(users),
        tenants=tenant_options(files.pki, site.shards),
        tls=nats_listener.tls_files(config, files.pki),
        store_limit_bytes=len(site.shards) * STREAMS_BYTES,
    )


class SiteRunner:
    """One running site."""

    def __init__(self, files: Layout, site: Site, config: ShardConfig, began: float) -> None:
        self._files, self._site, self._config, self._began = files, site, config, began
        self._life = Lifetime()

    async def run(self, users: Sequence[NatsUser], edge: EdgeFiles | None = None) -> None:
        """Run until stopped, with the edge service if there are files for it."""
        self._life.stop_on_signals()
        service = EdgeService(len(edge.nats_credentials) if edge is not None else 0)
        specs = processes.process_specs(self._files, self._site, self._config)
        gateway = processes.gateway_spec(self._files, self._site, self._config)
        async with EmbeddedServer(nats_options(self._files, self._site, self._config, users)) as nats:
            self._life.run_in_background(RestartRequests(self._files.nats).follow(nats.restart))
            supervisors = [ProcessSupervisor(spec) for spec in (*specs, gateway)]
            for supervisor in supervisors:
                supervisor.start()
            if edge is not None:
                service.load()
            try:
                if await self._until_ready(supervisors):
                    self._greet(specs)
                    if edge is not None:
                        service.start(edge)
                    await self._life.stopped()
            finally:
                log.info("draining")
                await service.stop()
                await self._drain(supervisors)
                await self._life.close()

    async def _until_ready(self, supervisors: Sequence[ProcessSupervisor]) -> bool:
        """Wait until all are ready; False if this process is stopped before. Raises ProcessStartFailure."""
        ready = until_ready(supervisors, [self._origin(supervisor.process) for supervisor in supervisors])
        if not await self._life.run_until_stopped(ready):
            return False
        for supervisor in supervisors:
            supervisor.mark_ready()
        return True

    def _origin(self, process: ProcessSpec) -> Origin:
        parts = urlsplit(process.url)
        authority = credentials.authorities(self._files).serving.certificate
        return Origin(parts.hostname or "", parts.port or 0, client_context(authority))

    async def _drain(self, supervisors: Sequence[ProcessSupervisor]) -> None:
        by_name = {supervisor.process.name: supervisor for supervisor in supervisors}
        others = [supervisor for name, supervisor in by_name.items() if name not in {PROXY, ROOT}]
        await by_name[PROXY].stop()
        await asyncio.gather(*(supervisor.stop() for supervisor in others))
        await by_name[ROOT].stop()

    def _greet(self, specs: Sequence[ProcessSpec]) -> None:
        took = time.monotonic() - self._began
        urls = {spec.name: spec.url for spec in specs}
        lines = [
            f"atoll serves {urls[PROXY]} (ready after {took:.2f} s)",
            *(f"  shard {name} at {urls[name]}" for name in self._site.shards),
        ]
        if ADMIN in self._config.batteries:
            lines += [
                "In another terminal:",
                f"  export KUBECONFIG={self._files.root / kubeconfig.FILE_NAME}",
                "  kubectl create workspace acme --enter",
            ]
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()
