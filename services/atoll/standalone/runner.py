"""`atoll start` and `atoll shard`: open the store, bootstrap, serve, publish; drain on SIGTERM and leave in order.

Start order: store (refuses a second process), port, bootstrap, HTTPS, controllers, stream. NATS comes up beside,
never before: a writer waits for the disk alone. End order is the reverse, and what was acknowledged is on disk.
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

from atoll.machinery.meta.types import SECRETS
from atoll.machinery.process.feature_gates import warn_without_effect
from atoll.machinery.process.lifetime import Lifetime
from atoll.machinery.process.listening import serving_names, take_port
from atoll.machinery.storage.environment.filesystem import DATA_FILE, require_local
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from atoll.machinery.storage.options import StoreOptions
from atoll.machinery.storage.sealing import ensure_key_file
from atoll.shard import kubeconfig
from atoll.shard.app import ShardApp
from atoll.shard.authentication import Credentials, load
from atoll.shard.config import GATES, ShardConfig
from atoll.shard.membership.root_shard import Origin, wait_for_origin
from atoll.standalone.listener import Front
from atoll.standalone.change_stream import CREDENTIALS_FILE, Streaming

log = structlog.get_logger()

KEYS_FILE, STORE = "sealing-keys.json", "store"

#: A round of compaction comes so often, and at least twice in the time that the log is kept.
_MAINTENANCE_S = 30.0


def store_options(config: ShardConfig) -> StoreOptions:
    """The store of a root directory: Secrets sealed, keys beside the file they do not lie in."""
    root = Path(config.root_directory)
    return StoreOptions(
        directory=str(root / STORE),
        shard=config.shard_name,
        sealed_types=(SECRETS,),
        key_file=str(root / KEYS_FILE),
        allow_any_filesystem=config.allow_any_filesystem,
        list_window_s=config.list_window,
        log_retention_s=config.log_retention,
        maintenance_interval_s=min(_MAINTENANCE_S, config.log_retention / 2),
    )


def prepare(config: ShardConfig) -> LmdbStore:
    """Make the root directory and open its store.

    Raises StoreInUse, FileSystemRefused, UnknownFormat, WrongShard, KeyFileRefused, OSError; then nothing of an
    existing directory was changed. Sealing keys are made for a new store only: without them an existing one cannot be
    read, and new ones would not help.
    """
    root = Path(config.root_directory)
    if not config.allow_any_filesystem:
        require_local(root)
    if not (root / STORE / DATA_FILE).exists():
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        ensure_key_file(root / KEYS_FILE)
    store = open_store(store_options(config))
    root.chmod(0o700)
    return store


async def start(config: ShardConfig) -> None:
    """Run until SIGTERM or SIGINT. Raises what `prepare` does, before serving; KubeconfigError, OtherRoot and
    CredentialFileRefused for what a shard that joins was given; WorkFailed."""
    began = time.monotonic()
    warn_without_effect(config.feature_gates, GATES, config.shard_name)
    store = prepare(config)
    try:
        await Standalone(config, store, began).run()
    finally:
        await store.close()


class Standalone:
    """One running shard."""

    def __init__(self, config: ShardConfig, store: LmdbStore, began: float) -> None:
        self._config, self._store, self._began = config, store, began
        self._root = Path(config.root_directory)
        self._life = Lifetime()

    async def run(self) -> None:
        self._life.heed_signals()
        names = _names(self._config)
        credentials = load(self._config, names)
        front = Front(self._config, self._store, credentials)
        port = await take_port(front.listen, self._config.bind_address, self._config.secure_port, self._root)
        streaming = None
        try:
            app = await self._app(front, credentials, port)
            if app is not None:
                streaming = Streaming(self._config, self._store, app.registry, self._life.end)
        finally:
            if streaming is None:
                await front.close()
        if app is None or streaming is None:
            return
        async with streaming:
            self._life.beside(*self._works(app, streaming))
            if await self._life.unless_over(front.open(app, names, store_options(self._config))):
                self._write_kubeconfig(app.url, credentials)
                self._tell(app.url)
                # What start-up made stays: the collector need not go through it again and again.
                gc.freeze()
                await self._life.over()
            await self._drain(app, front)
        self._life.check()

    async def _app(self, front: Front, credentials: Credentials, port: int) -> ShardApp | None:
        """The shard with all that must exist before the first request; None if told to leave before."""
        origin = await self._origin(front)
        if origin is None:
            return None
        app = ShardApp(self._config, self._store, credentials, f"https://{self._config.host}:{port}", origin)
        await app.bootstrap()
        return app

    async def _origin(self, front: Front) -> Origin | None:
        """What this shard has of its root shard, waited for at the very first start; None if told to leave before."""
        found: list[Origin] = []

        async def wait() -> None:
            found.append(await wait_for_origin(self._config, self._store, front.waits))

        return found[0] if await self._life.unless_over(wait()) else None

    def _works(self, app: ShardApp, streaming: Streaming) -> list[Coroutine[Any, Any, None]]:
        """What runs beside serving for as long as the shard does. A shard by itself follows nobody."""
        follower = None
        if self._config.in_site and streaming.access is not None:
            follower = app.follower(self._store, streaming.access)
        works = [app.manager(self._store, follower).run(), self._store.run_maintenance()]
        if self._config.in_site:
            works.append(self._registration(app))
        if follower is not None:
            works.append(follower.run())
        return works

    def _registration(self, app: ShardApp) -> Coroutine[Any, Any, None]:
        registrar = app.registrar()
        app.ready_checks["registration"] = registrar.check
        return registrar.run()

    def _write_kubeconfig(self, url: str, credentials: Credentials) -> None:
        if credentials.tokens is not None:
            kubeconfig.write(self._root, url, credentials.ca_pem, credentials.tokens)

    def _tell(self, url: str) -> None:
        took = time.monotonic() - self._began
        lines = [f"atoll serves {url} (ready after {took:.2f} s)"]
        if not self._config.skip_admin_user:
            lines += [
                "Go on in another terminal:",
                f"  export KUBECONFIG={self._root / kubeconfig.FILE_NAME}",
                "  kubectl create workspace acme --enter",
                "  kubectl create configmap hello --from-literal=who=world",
            ]
        if not self._config.nats_url:
            file = self._root / CREDENTIALS_FILE
            lines.append(f"Every change is on a stream: {file} says where and with which credential.")
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()

    async def _drain(self, app: ShardApp, front: Front) -> None:
        """Readiness off, requests finished, streams ended, controllers stopped."""
        log.info("draining")
        app.ready_checks["shutdown"] = lambda: "process is shutting down"
        await front.close()
        await self._life.close()
        await app.close()


def _names(config: ShardConfig) -> list[str]:
    """Names in the serving certificate: those of URLs given by flag, and those of the machine where everybody on its
    networks may come in."""
    urls = config.shard_base_url, config.shard_external_url, config.shard_virtual_workspace_url
    return serving_names(config.bind_address, [urlsplit(url).hostname or "" for url in urls if url])
