"""`atoll front-proxy`: open the routes on disk, serve, follow the shards beside; drain on SIGTERM.

Start order: files of the configuration, store (refuses a second process), port. From then on requests are routed by
what is on disk, whoever else is there; the streams come up beside and are kept up. Standard output gets one line once
requests can be routed.
"""

from __future__ import annotations

import functools
import gc
import sys
import time
from pathlib import Path

import msgspec
import structlog
from prometheus_client import CollectorRegistry

from atoll.frontproxy import cluster_map, mapping
from atoll.frontproxy.authentication import ProxyAuthentication
from atoll.frontproxy.config import FrontProxyConfig
from atoll.frontproxy.credentials import assemble, trusted_authorities
from atoll.frontproxy.endpoints import LIVE, READY, Endpoints
from atoll.frontproxy.handler import ProxyHandler, ProxyParts
from atoll.frontproxy.mapping import SHARDS, MappingTable
from atoll.frontproxy.metrics import ProxyMetrics
from atoll.frontproxy.route_table import RouteTable
from atoll.frontproxy.shard_client import ShardClient
from atoll.machinery.apiserver.authentication.authorities import Authorities, CredentialsRefused, Renewed, renew
from atoll.machinery.apiserver.egress import Egress, policy
from atoll.machinery.apiserver.egress.forward import Forwarder
from atoll.machinery.apiserver.health import ping, store_check
from atoll.machinery.kcp.shapes import TENANCY_GROUP
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.process import pki
from atoll.machinery.process.lifetime import Lifetime
from atoll.machinery.process.listening import serving_names, take_port
from atoll.machinery.process.pki import Pair
from atoll.machinery.process.tls import client_context, public_context
from atoll.machinery.storage.files import DATA_FILE, require_local
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from atoll.machinery.storage.options import StoreOptions
from atoll.machinery.stream.credentials import access_of
from atoll.machinery.wire.limits import Limits
from atoll.machinery.wire.proxy.backend import BackendLimits, Backends
from atoll.machinery.wire.proxy.streaming import StreamingConnection
from atoll.machinery.wire.server import Server
from atoll.replication.follower import Follower, FollowerOptions
from atoll.replication.rows import learned

log = structlog.get_logger()

STORE, SERVING_CA, SERVING = "store", "serving-ca", "front-proxy"
DRAIN_S = 10.0
#: What this process is as the owner of a store; no shard can have the name, as it is none of a shard's.
STORE_NAME = "front-proxy"


class ProxyFiles(msgspec.Struct, frozen=True):
    """What the configuration's files hold: the serving pair, the pair shown to shards, their authorities, mappings."""

    serving: Pair
    own: Pair
    shards_ca: bytes
    trusted: Authorities
    table: MappingTable
    #: Authorities of mounts; empty: the system's.
    mounts_ca: bytes = b""


def read(config: FrontProxyConfig) -> ProxyFiles:
    """Read every file that is named. Raises CredentialsRefused, MappingError, OSError."""
    root = Path(config.root_directory)
    table = mapping.read(Path(config.mapping_file)) if config.mapping_file else mapping.DEFAULT
    try:
        own, shards_ca = _towards_shards(config, table)
        if config.tls_cert_file:
            serving = pki.pair_of(Path(config.tls_cert_file), Path(config.tls_private_key_file))
        else:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            ca = pki.ca_in(root, SERVING_CA, "atoll front proxy CA")
            serving = pki.serving_in(root, SERVING, ca, serving_names(config.bind_address))
    except pki.PkiError as error:
        raise CredentialsRefused(str(error)) from error
    mounts_ca = Path(config.mount_proxy_ca_file).read_bytes() if config.mount_proxy_ca_file else b""
    return ProxyFiles(serving, own, shards_ca, trusted_authorities(config), table, mounts_ca)


def _towards_shards(config: FrontProxyConfig, table: MappingTable) -> tuple[Pair, bytes]:
    """What shards are shown, and by what they are known: flags, or the mapping of `/clusters/`.

    Shards believe what is signed with the key of the very certificate that they are shown, so there is one.
    """
    entry = next((entry for entry in table.mappings if entry.is_shards), None)
    shown, authorities = (entry.shown, entry.authorities) if entry is not None else (None, b"")
    own = shown
    if config.proxy_client_cert_file:
        own = pki.pair_of(Path(config.proxy_client_cert_file), Path(config.proxy_client_key_file))
    if config.root_ca_file:
        authorities = authorities or Path(config.root_ca_file).read_bytes()
    if own is None or not authorities:
        missing = "proxy-client-cert-file, proxy-client-key-file and root-ca-file must say how shards are spoken to"
        raise CredentialsRefused(missing)
    if shown is not None and shown.certificate.strip() != own.certificate.strip():
        raise CredentialsRefused(f"the mapping of {SHARDS} and proxy-client-cert-file name different certificates")
    return own, authorities


def prepare(config: FrontProxyConfig) -> LmdbStore:
    """Make the root directory and open its store. Raises StoreInUse, FileSystemRefused, UnknownFormat, OSError."""
    root = Path(config.root_directory)
    if not (root / STORE / DATA_FILE).exists():
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
    store = open_store(
        StoreOptions(directory=str(root / STORE), shard=STORE_NAME, allow_any_filesystem=config.allow_any_filesystem)
    )
    root.chmod(0o700)
    return store


async def start(config: FrontProxyConfig) -> None:
    """Run until SIGTERM or SIGINT. Raises what `prepare` and `read` do, before serving."""
    began_s = time.monotonic()
    if not config.allow_any_filesystem:
        require_local(Path(config.root_directory))
    given = read(config)
    store = prepare(config)
    try:
        await FrontProxy(config, store, given).run(began_s)
    finally:
        await store.close()


class FrontProxy:
    """One proxy over an open store; `doors` is what its server serves. Close it when done."""

    def __init__(
        self, config: FrontProxyConfig, store: LmdbStore, given: ProxyFiles, timing: BackendLimits | None = None
    ) -> None:
        self._config, self._store, self._given = config, store, given
        self._life = Lifetime()
        self._draining = False
        registry = CollectorRegistry()
        self.registry = registry
        self.backends = Backends(timing)
        self._egress = Egress(policy(config.egress_allow_cidr), registry)
        shards = client_context(given.shards_ca, given.own)
        asking = ShardClient(shards)
        self.identity: ProxyAuthentication = assemble(config, given.own, lambda view: learned(view.there), self._egress)
        self.ways = RouteTable(store, asking.get, self.identity.says)
        metrics = ProxyMetrics(registry, self.backends)
        live = {"ping": ping, "store": store_check(store)}
        ready = {**live, "routes": self.ways.ready, "shutdown": lambda: "draining" if self._draining else None}
        own = Endpoints(store, self.identity, self.ways, asking, metrics, {LIVE: live, READY: ready})
        self.doors = ProxyHandler(
            ProxyParts(
                store=store,
                ways=self.ways,
                identity=self.identity,
                table=given.table,
                backends=self.backends,
                shards=shards,
                forwarder=functools.cache(self._forwarder),
                own=own,
                metrics=metrics,
            )
        )

    def _forwarder(self) -> Forwarder:
        """For mounts, once there is one: reading the system's authorities takes as long as all the rest of a start."""
        ca = self._given.mounts_ca
        return Forwarder(self._egress, client_context(ca) if ca else public_context())

    async def run(self, began_s: float) -> None:
        """Serve until told to stop. Raises OSError if the port is taken, WorkFailed."""
        self._life.heed_signals()
        trusted = self._given.trusted
        server = Server(self.doors, Limits(), trusted.context(self._given.serving), StreamingConnection)
        config = self._config
        listen = functools.partial(server.start, config.bind_address)
        port = await take_port(listen, config.bind_address, config.secure_port, Path(config.root_directory))
        follower = self._follower()
        renewed = Renewed(self._given.serving, self.identity.certificates, server.use)
        files = (config.client_ca_file, config.requestheader_client_ca_file)
        self._life.beside(
            renew(files, trusted, renewed),
            self._store.run_maintenance(),
            self._tell(f"https://{config.host}:{port}", began_s),
        )
        if config.cluster_map_file:
            self._life.beside(cluster_map.keep(self._store, Path(config.cluster_map_file)))
        if follower is not None:
            self._life.beside(follower.run())
        gc.freeze()
        await self._life.over()
        await self._leave(server)
        self._life.check()

    def _follower(self) -> Follower | None:
        config = self._config
        if not config.nats_url:
            return None
        access = access_of(config.nats_url, config.nats_credentials_file)
        return Follower(self._store, FollowerOptions(access, wanted=_is_wanted), self.registry)

    async def _tell(self, url: str, began_s: float) -> None:
        """Say where it serves, once anything can be routed."""
        while True:
            with self._store.snapshot() as snapshot:
                count = snapshot.there.count
                if self.ways.of(snapshot) is not None:
                    break
            await self._store.replicated(count)
        took_s = time.monotonic() - began_s
        sys.stdout.write(f"atoll front-proxy serves {url} (ready after {took_s:.2f} s)\n")
        sys.stdout.flush()

    async def _leave(self, server: Server) -> None:
        """Readiness off, requests finished, watches ended, and then the rest."""
        log.info("draining")
        self._draining = True
        await server.drain(DRAIN_S)
        await self._life.close()
        await self.close()

    async def close(self) -> None:
        """Close what is open towards others."""
        self.backends.close()
        await self._egress.close()


def _is_wanted(type: ResourceType) -> bool:
    """Beside what routes rest on, which is always kept: what workspaces' own issuers are found by."""
    return (type.group, type.resource) in _WANTED


_WANTED = {(TENANCY_GROUP, "workspacetypes"), (TENANCY_GROUP, "workspaceauthenticationconfigurations")}
