"""The process of a cache server: opens the stored rows, starts the listener, then keeps the rows current.

`cli` calls `serve`. It prints its URL on standard output once it listens, and stops on SIGTERM. Invariant: rows that
were complete once are served without NATS and without any shard.
"""

from __future__ import annotations

import asyncio
import functools
import sys
from pathlib import Path

import msgspec
import structlog
from prometheus_client import CollectorRegistry, ProcessCollector

from atoll.cacheserver import server
from atoll.cacheserver.config import CacheServerConfig
from atoll.cacheserver.readiness import Readiness
from atoll.cacheserver.rows import Rows
from atoll.machinery.apiserver.authentication.certificates import Certificates
from atoll.machinery.apiserver.authentication.dynamic_client_ca import (
    ClientCAFiles,
    ClientCAs,
    ReloadTarget,
    reload_on_change,
)
from atoll.machinery.apiserver.serving.version import version
from atoll.machinery.control.manager import ControllerMetrics, Manager
from atoll.machinery.egress import Egress, policy
from atoll.machinery.egress.forward import Forwarder
from atoll.machinery.kcp.sharding.stream_policy import INTERNAL
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.process.certificate_expiry import CertificateExpiry
from atoll.machinery.process.file_watch import ClientFiles, client_files, renew_clients
from atoll.machinery.process.freed_memory import return_freed_memory
from atoll.machinery.process.lifetime import Lifetime
from atoll.machinery.process.private_files import Pair, load_pair
from atoll.machinery.storage.environment.filesystem import DATA_FILE, require_local
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from atoll.machinery.storage.options import StoreOptions
from atoll.machinery.stream.credential_file import read_access
from atoll.machinery.wire.limits import Limits
from atoll.machinery.wire.metrics import ServerMetrics
from atoll.machinery.wire.proxy.streaming import StreamingConnection
from atoll.machinery.wire.server import Server
from atoll.replication.follower import Follower, FollowerOptions

log = structlog.get_logger()

STORE, DRAIN_S = "store", 10.0
_MAINTENANCE_S = 30.0
#: Owner of the store; no shard has this name, so a store of a shard is not opened by mistake.
_OWNER = "cache-server"


async def serve(config: CacheServerConfig) -> None:
    """Run until SIGTERM or SIGINT.

    Raises OSError, PkiError, InvalidCredentialFile, InvalidCredentials, BackgroundWorkFailed, and what opening a store
    raises.
    """
    store = _open(config)
    try:
        await _Serving(config, store).run()
    finally:
        await store.close()


def _open(config: CacheServerConfig) -> LmdbStore:
    root = Path(config.root_directory)
    if not config.allow_any_filesystem:
        require_local(root)
    if not (root / STORE / DATA_FILE).exists():
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
    return open_store(
        StoreOptions(
            directory=str(root / STORE),
            shard=_OWNER,
            allow_any_filesystem=config.allow_any_filesystem,
            replica=True,
            list_window_s=config.list_window,
            log_retention_s=config.log_retention,
            maintenance_interval_s=min(_MAINTENANCE_S, config.log_retention / 2),
            expiring=(),
        )
    )


class _Serving:
    """One running cache server."""

    def __init__(self, config: CacheServerConfig, store: LmdbStore) -> None:
        self._config, self._store = config, store
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        CertificateExpiry(config, self._registry)
        access = read_access(config.nats_url, config.nats_credentials_file)
        self._follower = Follower(
            store, FollowerOptions(access, region=config.region, wanted=_is_wanted), self._registry
        )
        self._manager = Manager(store, store, [Rows(store)], ControllerMetrics(self._registry))
        self._follower.set_listener(self._manager)
        self._whole = Readiness(store, self._follower, self._manager)
        #: Addresses of shards come from Shard objects, not from tenants.
        self._egress = Egress(policy("0.0.0.0/0,::/0"))
        self._life = Lifetime()

    async def run(self) -> None:
        """Run until stopped. Raises BackgroundWorkFailed when a background task ended."""
        self._life.stop_on_signals()
        files = await asyncio.to_thread(_read, self._config)
        certificates = Certificates(files.clients.clients, revoked=files.clients.revoked)
        listener = await self._listen(files, certificates)
        renewing = reload_on_change(
            _client_ca_files(self._config), files.clients, ReloadTarget(files.serving, certificates, listener)
        )
        self._life.run_in_background(
            *(self._manager.run(), self._follower.run(), self._store.run_maintenance(), renewing),
            *(renew_clients([files.shards] if files.shards is not None else []), return_freed_memory()),
        )
        await self._life.stopped()
        log.info("draining")
        await listener.drain(DRAIN_S)
        await self._life.close()
        await self._egress.close()
        self._life.check()

    async def _listen(self, files: _Files, certificates: Certificates) -> Server:
        config = self._config
        forwarder = Forwarder(self._egress, files.shards.context) if files.shards is not None else None
        serving = server.Serving(version(), self._registry, self._whole.check, self._follower.contention, forwarder)
        handler = server.handler(self._store, certificates, serving)
        connection = functools.partial(StreamingConnection, policy=handler)
        listener = Server(handler, Limits(), files.clients.context(files.serving), connection)
        ServerMetrics(listener, self._registry)
        port = await listener.start(config.bind_address, config.secure_port)
        sys.stdout.write(f"atoll cache-server serves https://{config.host}:{port}/services/cache\n")
        sys.stdout.flush()
        return listener


def _is_wanted(type: ResourceType) -> bool:
    """Whether a type is kept: not what only shards read."""
    return type not in INTERNAL


class _Files(msgspec.Struct, frozen=True):
    """The contents of the files in the settings."""

    serving: Pair
    clients: ClientCAs
    #: For requests to shards; None without a client certificate.
    shards: ClientFiles | None


def _read(config: CacheServerConfig) -> _Files:
    serving = load_pair(Path(config.tls_cert_file), Path(config.tls_private_key_file))
    shards = None
    if config.shard_client_cert_file:
        pair = config.shard_client_cert_file, config.shard_client_key_file
        shards = client_files(*pair, config.shard_virtual_workspace_ca_file)
    return _Files(serving, _client_ca_files(config).read(), shards)


def _client_ca_files(config: CacheServerConfig) -> ClientCAFiles:
    serving = config.tls_cert_file, config.tls_private_key_file
    return ClientCAFiles((config.client_ca_file,), "", serving, config.client_crl_file)
