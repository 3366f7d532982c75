"""`atoll start` and `atoll shard`: open the store, bootstrap, serve, publish; on SIGTERM drain and stop in order.

`atoll.cli` calls `start`. Start order: store (refuses a second process), port, bootstrap, HTTPS, controllers, stream.
NATS starts in the background: a write waits for the disk alone. The stop order is the reverse, and acknowledged writes
are on disk.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import structlog
from prometheus_client import CollectorRegistry

from atoll.machinery.apiserver.authentication.event_tokens import EventTokens
from atoll.machinery.apiserver.serving.health import Notice
from atoll.machinery.kcp.bootstrap.batteries import ADMIN
from atoll.machinery.meta.status import InsufficientStorage
from atoll.machinery.meta.types import SECRETS
from atoll.machinery.process.certificate_expiry import CertificateExpiry
from atoll.machinery.process.feature_gates import warn_without_effect
from atoll.machinery.process.freed_memory import return_freed_memory
from atoll.machinery.process.lifetime import Lifetime
from atoll.machinery.process.listen_address import serving_names, take_port
from atoll.machinery.storage.contract import StoreFull
from atoll.machinery.storage.environment.filesystem import DATA_FILE, NO_ROOM, require_local
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from atoll.machinery.storage.maintenance.upgrade import upgrade
from atoll.machinery.storage.options import StoreOptions
from atoll.machinery.storage.sealing import Sealer, ensure_key_file
from atoll.machinery.stream.event_keys import EventKeys
from atoll.machinery.stream.permissions import changes_permissions
from atoll.shard import kubeconfig, service_account_keys
from atoll.shard.app import ShardApp
from atoll.shard.authentication import SERVING, Credentials, load, serving_files
from atoll.shard.config import GATES, ShardConfig
from atoll.shard.membership.root_shard import RootShard, require_not_forgotten, wait_for_root_shard
from atoll.shard.object_counts import ObjectCounts
from atoll.shard.store_metrics import StoreMetrics
from atoll.shard.subscriptions.other_parts import OtherParts
from atoll.standalone import nats_listener, worker_count
from atoll.standalone.change_stream import CREDENTIALS_FILE, ChangeStream, EmbeddedUsers, require_keys
from atoll.standalone.edge_service import EdgeFiles, EdgeService, edge_users, passed_on
from atoll.standalone.event_gateway import EmbeddedGateway
from atoll.standalone.key_rotation import reseal_on_change
from atoll.standalone.listener import Listener
from atoll.standalone.site.credentials import credential_path

log = structlog.get_logger()

KEYS_FILE, STORE = "sealing-keys.json", "store"

#: Seconds between rounds of compaction; there are at least two rounds within the log retention.
_MAINTENANCE_S = 30.0


def store_options(config: ShardConfig) -> StoreOptions:
    """The store of a root directory: Secrets are sealed, with the keys in a file outside of the store."""
    root = Path(config.root_directory)
    return StoreOptions(
        directory=str(root / STORE),
        shard=config.shard_name,
        sealed_types=(SECRETS,),
        key_file=str(root / KEYS_FILE),
        allow_any_filesystem=config.allow_any_filesystem,
        total_object_limit=config.logical_cluster_total_object_limit,
        list_window_s=config.list_window,
        log_retention_s=config.log_retention,
        maintenance_interval_s=min(_MAINTENANCE_S, config.log_retention / 2),
    )


def prepare(config: ShardConfig) -> LmdbStore:
    """Make the root directory and open its store.

    Raises StoreInUse, FileSystemRefused, UnknownFormat, WrongShard, KeyFileRefused, InvalidKeysFile, OSError; an
    existing directory is unchanged then. Sealing keys are made for a new store alone: new ones read no existing one.
    """
    root = Path(config.root_directory)
    if not config.allow_any_filesystem:
        require_local(root)
    if (root / STORE / DATA_FILE).exists():
        Sealer(root / KEYS_FILE)
        require_keys(config)
        _upgrade(config)
    else:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        ensure_key_file(root / KEYS_FILE)
    store = open_store(store_options(config))
    root.chmod(0o700)
    return store


def _upgrade(config: ShardConfig) -> None:
    """Upgrade the store, where that is needed and allowed. Raises as `upgrade`."""
    if done := upgrade(store_options(config), allowed=config.allow_format_upgrade):
        back = f"stop, and run `atoll restore --from {done.backup} --in-place` of the earlier version"
        log.warning("store upgraded", earlier_format=done.format, backup=str(done.backup), way_back=back)


async def start(config: ShardConfig, *, edge: int = 0) -> None:
    """Run until SIGTERM or SIGINT, with the edge service if `edge` processes of its controllers are asked for.

    Raises the errors of `prepare` before serving; KubeconfigError, OtherRoot and CredentialFileRefused for the settings
    of a shard that joins; BackgroundWorkFailed.
    """
    began = time.monotonic()
    warn_without_effect(config.feature_gates, GATES, config.shard_name)
    if config.external_hostname:
        log.warning("setting has no effect", setting="external-hostname", instead="shard-external-url")
    store = prepare(config)
    service = EdgeService(edge) if edge else None
    try:
        if service is not None:
            service.load()
        runner = ShardRunner(config, store, began, service)
        try:
            await runner.run()
        except (StoreFull, InsufficientStorage, OSError) as error:
            if isinstance(error, OSError) and error.errno not in NO_ROOM:
                raise
            raise StoreFull(runner.no_room()) from error
    finally:
        if service is not None:
            await service.stop()
        await store.close()


class ShardRunner:
    """One running shard."""

    def __init__(self, config: ShardConfig, store: LmdbStore, began: float, edge: EdgeService | None = None) -> None:
        self._config, self._store, self._began, self._edge = config, store, began, edge
        self._root = Path(config.root_directory)
        self._life = Lifetime()

    async def run(self) -> None:
        self._life.stop_on_signals()
        names = _names(self._config)
        service_account_keys.require(self._config, self._store)
        credentials = load(self._config, names)
        listener = Listener(self._config, self._store, credentials, worker_count.resolve(self._config.workers))
        port = await take_port(listener.listen, self._config.bind_address, self._config.secure_port, self._root)
        stream = None
        try:
            app = await self._app(listener, credentials, port)
            if app is not None:
                users = self._embedded_users(credentials, app.registry)
                stream = ChangeStream(self._config, self._store, app.registry, self._life.stop, users)
        finally:
            if stream is None:
                await listener.close()
        if app is None or stream is None:
            return
        async with stream:
            self._life.run_in_background(*self._background(app, stream))
            if await self._life.run_until_stopped(listener.open(app, names, store_options(self._config))):
                self._write_kubeconfig(app.url, credentials)
                self._greet(app.url)
                if self._edge is not None:
                    self._edge.start(self._edge_files(stream))
                # Objects made at start-up stay: exempt them from garbage collection.
                gc.freeze()
                await self._life.stopped()
            if self._edge is not None:
                await self._edge.stop()
            await self._drain(app, listener)
        self._life.check()

    async def _app(self, listener: Listener, credentials: Credentials, port: int) -> ShardApp | None:
        """Return the bootstrapped shard; None if the process is stopped before."""
        origin = await self._origin(listener)
        if origin is None:
            return None
        app = ShardApp(self._config, self._store, credentials, f"https://{self._config.host}:{port}", origin)
        await app.bootstrap()
        app.health.add("store-space", Notice(self._check_space))
        return app

    def no_room(self) -> str:
        """Return the sentence of a store that has no room."""
        return no_room(self._root, self._store.space.room_bytes, self._store.options.reserve_bytes)

    def _check_space(self) -> str | None:
        """Return whether the store is full. It stays ready then: a load balancer must let deletions through."""
        return self.no_room() if self._store.space.check() else None

    async def _origin(self, listener: Listener) -> RootShard | None:
        """Return the identities of the root shard, awaited at the first start; None if stopped before."""
        origins: list[RootShard] = []

        async def wait() -> None:
            origins.append(await wait_for_root_shard(self._config, self._store, listener.wait_for_root))
            await require_not_forgotten(self._config, self._store)

        return origins[0] if await self._life.run_until_stopped(wait()) else None

    def _background(self, app: ShardApp, stream: ChangeStream) -> list[Coroutine[Any, Any, None]]:
        """The background work of the shard. A shard without a site follows no other shard."""
        follower = None
        if self._config.in_site and stream.follow_access is not None:
            follower = app.follower(self._store, stream.follow_access)
        work = [app.manager(self._store, follower).run(), self._store.run_maintenance(), return_freed_memory()]
        CertificateExpiry(self._config, app.registry, {"tls-cert-file": self._root / f"{SERVING}.crt"})
        StoreMetrics(self._store, app.registry)
        work.append(reseal_on_change(self._store, self._root / KEYS_FILE))
        work.append(ObjectCounts(self._store, app.registry, self._config.object_count_interval_s).run())
        subscriptions = app.subscriptions(EventKeys(stream.signing_keys))
        work.append(subscriptions.run(stream.own_access))
        if self._config.in_site:
            work.append(OtherParts(subscriptions).run())
            work.append(self._registration(app, stream))
        if follower is not None:
            work.append(follower.run())
        return work

    def _registration(self, app: ShardApp, stream: ChangeStream) -> Coroutine[Any, Any, None]:
        registrar = app.registrar(EventKeys(stream.signing_keys))
        app.health.add("registration", registrar.check)
        return registrar.run()

    def _embedded_users(self, credentials: Credentials, registry: CollectorRegistry) -> EmbeddedUsers | None:
        """The users of the embedded server; None with an external one."""
        if self._config.nats_url:
            return None
        shard = self._config.shard_name
        readers = {each: changes_permissions(each, [shard], shard) for each in self._edge_users}
        tokens = EventTokens(credentials.keys.verifying, service_account_keys.issuers(self._config).names)
        tls = nats_listener.tls_files(self._config, self._root)
        return EmbeddedUsers(readers, EmbeddedGateway(self._config, tls, tokens, registry), tls)

    @property
    def _edge_users(self) -> tuple[str, ...]:
        return edge_users(self._edge.processes) if self._edge is not None else ()

    def _edge_files(self, stream: ChangeStream) -> EdgeFiles:
        root = self._root.absolute()
        return EdgeFiles(
            self._config.kubeconfig_file.absolute(),
            root / "edge",
            stream.address,
            tuple(credential_path(root, each) for each in self._edge_users),
            passed_on(self._config, serving_files(self._config)),
        )

    def _write_kubeconfig(self, url: str, credentials: Credentials) -> None:
        if credentials.tokens is not None:
            kubeconfig.write(self._config.kubeconfig_file, url, credentials.ca_pem, credentials.tokens)

    def _greet(self, url: str) -> None:
        took = time.monotonic() - self._began
        lines = [f"atoll serves {url} (ready after {took:.2f} s)"]
        if ADMIN in self._config.batteries:
            lines += [
                "In another terminal:",
                f"  export KUBECONFIG={self._config.kubeconfig_file}",
                "  kubectl create workspace acme --enter",
                "  kubectl create configmap hello --from-literal=who=world",
            ]
        if not self._config.nats_url:
            file = self._root / CREDENTIALS_FILE
            lines.append(f"Every change is published on NATS: {file} holds the address and a read-only credential.")
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()

    async def _drain(self, app: ShardApp, listener: Listener) -> None:
        """Turn readiness off, finish requests, end streams, stop controllers."""
        log.info("draining")
        app.health.add("shutdown", lambda: "process is shutting down")
        await listener.close()
        await self._life.close()
        await app.close()


def no_room(root: Path, room_bytes: int, needed_bytes: int) -> str:
    """Return the sentence of a disk that has, or takes for a quota on it, less than is needed."""
    room, needed = (size_bytes >> 20 for size_bytes in (max(0, room_bytes), needed_bytes))
    if room < needed:
        return f"the disk of {root} has room for {room} MB and at least {needed} MB are needed: free some space"
    return f"the disk of {root} takes nothing more, though it has room for {room} MB: raise the quota on it"


def _names(config: ShardConfig) -> list[str]:
    """Names in the serving certificate: the hosts of the URL flags, and the machine's names if it listens on all
    addresses."""
    urls = config.shard_base_url, config.shard_external_url, config.shard_virtual_workspace_url
    return serving_names(config.bind_address, [urlsplit(url).hostname or "" for url in urls if url])
