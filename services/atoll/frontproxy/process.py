"""`atoll front-proxy`: open the store, serve, follow the shards' streams; drain on SIGTERM.

Start order: configuration files, store (refuses a second process), port. From then on requests are routed by the rows
on disk, whatever else is reachable; the streams connect in the background. Standard output gets one line once requests
can be routed.
"""

from __future__ import annotations

import functools
import gc
import sys
import time
from pathlib import Path

import msgspec
import structlog
from prometheus_client import CollectorRegistry, ProcessCollector

from atoll.frontproxy import cluster_map, mapping, renewal
from atoll.frontproxy.account_check import account_check
from atoll.frontproxy.authentication import ProxyAuthentication
from atoll.frontproxy.config import GATES, FrontProxyConfig
from atoll.frontproxy.credentials import build_authentication, client_ca_files
from atoll.frontproxy.endpoints import LIVEZ, READYZ, Endpoints
from atoll.frontproxy.handler import ProxyHandler, ProxyParts
from atoll.frontproxy.mapping import SHARDS, MappingTable
from atoll.frontproxy.metrics import ProxyMetrics
from atoll.frontproxy.route_table import RouteTable
from atoll.frontproxy.shard_client import ShardClient
from atoll.machinery.apiserver.authentication.dynamic_client_ca import ClientCAs, ReloadTarget, reload_on_change
from atoll.machinery.apiserver.authentication.service_account_keys import read_public_keys, reload_public_keys
from atoll.machinery.apiserver.authentication.token_reload import reload_token_file
from atoll.machinery.apiserver.serving.health import Check, Notice, ping, store_check
from atoll.machinery.egress import Egress, policy
from atoll.machinery.egress.forward import Forwarder
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.meta.wellknown import TENANCY_GROUP
from atoll.machinery.process.certificate_expiry import CertificateExpiry
from atoll.machinery.process.feature_gates import warn_without_effect
from atoll.machinery.process.file_watch import renew_clients
from atoll.machinery.process.freed_memory import return_freed_memory
from atoll.machinery.process.lifetime import Lifetime
from atoll.machinery.process.listen_address import take_port
from atoll.machinery.process.private_files import InvalidCredentials, Pair, PkiError, load_pair
from atoll.machinery.process.serving_pair import serving_pair
from atoll.machinery.process.tls import client_context, public_context
from atoll.machinery.storage.environment.filesystem import DATA_FILE, require_local
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from atoll.machinery.storage.options import StoreOptions
from atoll.machinery.stream.credential_file import read_access
from atoll.machinery.wire.host import Host
from atoll.machinery.wire.limits import Limits
from atoll.machinery.wire.metrics import ServerMetrics
from atoll.machinery.wire.proxy.backend import BackendLimits, Backends
from atoll.machinery.wire.proxy.streaming import StreamingConnection
from atoll.machinery.wire.server import Server
from atoll.replication.follower import Follower, FollowerOptions
from atoll.replication.root_types import learn_root_types

log = structlog.get_logger()

STORE, SERVING = "store", "front-proxy"
DRAIN_S = 10.0
#: One record of TLS: clients keep their connections here, most of them quiet.
PIECE_BYTES = 16 * 1024
#: The owner's name in the store, which no shard can have.
STORE_NAME = "front-proxy"


class ProxyFiles(msgspec.Struct, frozen=True):
    """Contents of the files that the configuration names."""

    serving: Pair
    #: The client certificate for shards, and the authorities of shards.
    client: Pair
    shards_ca: bytes
    trusted: ClientCAs
    mappings: MappingTable
    #: Authorities of mounts; empty: the system's.
    mounts_ca: bytes = b""


def load_files(config: FrontProxyConfig) -> ProxyFiles:
    """Read all files. Raises InvalidCredentials, MappingError, OSError."""
    root = Path(config.root_directory)
    mappings = mapping.read(Path(config.mapping_file)) if config.mapping_file else mapping.DEFAULT
    try:
        client, shards_ca = _shard_credentials(config, mappings)
        serving = serving_pair(config, root, SERVING)
    except PkiError as error:
        raise InvalidCredentials(str(error)) from error
    mounts_ca = Path(config.mount_proxy_ca_file).read_bytes() if config.mount_proxy_ca_file else b""
    return ProxyFiles(serving, client, shards_ca, client_ca_files(config).read(), mappings, mounts_ca)


def _shard_credentials(config: FrontProxyConfig, mappings: MappingTable) -> tuple[Pair, bytes]:
    """The client certificate for shards and their authorities, from flags or the mapping of `/clusters/`.

    Shards accept assertions signed with the key of the connection's own certificate, so there can be only one.
    """
    entry = next((entry for entry in mappings.mappings if entry.is_shards), None)
    mapped, authorities = (entry.client_pair, entry.server_ca) if entry is not None else (None, b"")
    client = mapped
    if config.proxy_client_cert_file:
        client = load_pair(Path(config.proxy_client_cert_file), Path(config.proxy_client_key_file))
    if config.root_ca_file:
        authorities = authorities or Path(config.root_ca_file).read_bytes()
    if client is None or not authorities:
        missing = "proxy-client-cert-file, proxy-client-key-file and root-ca-file must say how shards are spoken to"
        raise InvalidCredentials(missing)
    if mapped is not None and mapped.certificate.strip() != client.certificate.strip():
        raise InvalidCredentials(f"the mapping of {SHARDS} and proxy-client-cert-file name different certificates")
    return client, authorities


def prepare(config: FrontProxyConfig) -> LmdbStore:
    """Make the root directory and open its store. Raises StoreInUse, FileSystemRefused, UnknownFormat, OSError."""
    root = Path(config.root_directory)
    if not (root / STORE / DATA_FILE).exists():
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
    store = open_store(
        StoreOptions(
            directory=str(root / STORE),
            shard=STORE_NAME,
            allow_any_filesystem=config.allow_any_filesystem,
            replica=True,
        )
    )
    root.chmod(0o700)
    return store


async def start(config: FrontProxyConfig) -> None:
    """Run until SIGTERM or SIGINT. Raises what `prepare` and `load_files` do, before serving."""
    began_s = time.monotonic()
    warn_without_effect(config.feature_gates, GATES, "front-proxy")
    if not config.allow_any_filesystem:
        require_local(Path(config.root_directory))
    files = load_files(config)
    store = prepare(config)
    try:
        await FrontProxy(config, store, files).run(began_s)
    finally:
        await store.close()


class FrontProxy:
    """One proxy over an open store; `handler` is for its server. Close it when done."""

    def __init__(
        self, config: FrontProxyConfig, store: LmdbStore, files: ProxyFiles, limits: BackendLimits | None = None
    ) -> None:
        self._config, self._store, self._files = config, store, files
        self._life = Lifetime()
        self._draining = False
        registry = CollectorRegistry()
        self.registry = registry
        ProcessCollector(registry=registry)
        CertificateExpiry(config, registry, {"tls-cert-file": Path(config.root_directory) / f"{SERVING}.crt"})
        self._egress = Egress(policy(config.egress_allow_cidr), registry)
        shards = client_context(files.shards_ca, files.client)
        self.backends = Backends(limits, streams=shards)
        self._client_files = [
            renewal.shard_files(config, files.mappings, shards, files.client.key),
            *renewal.backend_files(files.mappings),
        ]
        self._account_keys = read_public_keys(config.service_account_key_file)
        shard_client = ShardClient(shards)
        self.authentication: ProxyAuthentication = build_authentication(
            config,
            files.client,
            lambda view: learn_root_types(view.replicas),
            self._egress,
            self._account_keys,
            account_check(store, lambda: self.route_table, shard_client.get),
        )
        self.route_table = RouteTable(store, shard_client.get, self.authentication.identity_headers)
        self._follower: Follower | None = None
        metrics = ProxyMetrics(registry, self.backends)
        live = {"ping": ping, "store": store_check(store)}
        ready: dict[str, Check] = {
            **live,
            "routes": self.route_table.ready,
            "stream-readers": Notice(self._contention),
            "shutdown": lambda: "draining" if self._draining else None,
        }
        endpoints = Endpoints(
            store, self.authentication, self.route_table, shard_client, metrics, {LIVEZ: live, READYZ: ready}
        )
        self.handler = ProxyHandler(
            ProxyParts(
                store=store,
                route_table=self.route_table,
                authentication=self.authentication,
                mappings=files.mappings,
                backends=self.backends,
                shards=shards,
                forwarder=functools.cache(self._forwarder),
                endpoints=endpoints,
                metrics=metrics,
                region=config.region,
            )
        )

    def connection(self, server: Host) -> StreamingConnection:
        """A connection of the proxy's server."""
        return StreamingConnection(server, self.handler)

    def _forwarder(self) -> Forwarder:
        """Made for the first mount: reading the system's authorities takes as long as the rest of a start."""
        ca = self._files.mounts_ca
        return Forwarder(self._egress, client_context(ca) if ca else public_context())

    async def run(self, began_s: float) -> None:
        """Serve until SIGTERM or SIGINT. Raises OSError if the port is taken, BackgroundWorkFailed."""
        self._life.stop_on_signals()
        trusted = self._files.trusted
        server = Server(
            self.handler, Limits(piece_bytes=PIECE_BYTES), trusted.context(self._files.serving), self.connection
        )
        ServerMetrics(server, self.registry)
        config = self._config
        listen = functools.partial(server.start, config.bind_address)
        port = await take_port(listen, config.bind_address, config.secure_port, Path(config.root_directory))
        follower = self._follower = self._new_follower()
        target = ReloadTarget(self._files.serving, self.authentication.certificates, server)
        files = client_ca_files(config)
        self._life.run_in_background(
            reload_on_change(files, trusted, target),
            reload_token_file(config.token_auth_file, self.authentication.listed, server.cut_requests),
            renew_clients(self._client_files),
            reload_public_keys(config.service_account_key_file, self._account_keys),
            self._store.run_maintenance(),
            return_freed_memory(),
            self._announce(f"https://{config.host}:{port}", began_s),
        )
        if config.cluster_map_file:
            self._life.run_in_background(cluster_map.keep(self._store, Path(config.cluster_map_file)))
        if follower is not None:
            self._life.run_in_background(follower.run())
        gc.freeze()
        await self._life.stopped()
        await self._shut_down(server)
        self._life.check()

    def _contention(self) -> str | None:
        return self._follower.contention() if self._follower is not None else None

    def _new_follower(self) -> Follower | None:
        config = self._config
        if not config.nats_url:
            return None
        access = read_access(config.nats_url, config.nats_credentials_file)
        return Follower(self._store, FollowerOptions(access, wanted=_is_wanted), self.registry)

    async def _announce(self, url: str, began_s: float) -> None:
        """Print the URL once requests can be routed."""
        while True:
            with self._store.snapshot() as snapshot:
                count = snapshot.replicas.count
                if self.route_table.at(snapshot) is not None:
                    break
            await self._store.replicated(count)
        took_s = time.monotonic() - began_s
        sys.stdout.write(f"atoll front-proxy serves {url} (ready after {took_s:.2f} s)\n")
        sys.stdout.flush()

    async def _shut_down(self, server: Server) -> None:
        """Fail readiness, finish requests, end watches, then stop the rest."""
        log.info("draining")
        self._draining = True
        await server.drain(DRAIN_S)
        await self._life.close()
        await self.close()

    async def close(self) -> None:
        """Close all connections to other servers."""
        self.backends.close()
        await self._egress.close()


def _is_wanted(type: ResourceType) -> bool:
    """Whether a type is kept in addition to those of routes: the types that define workspaces' own issuers."""
    return (type.group, type.resource) in _WANTED


_WANTED = {(TENANCY_GROUP, "workspacetypes"), (TENANCY_GROUP, "workspaceauthenticationconfigurations")}
