"""`atoll start`: open the store, bootstrap, serve, publish; drain on SIGTERM and leave in order.

Start order: store (refuses a second process), port, bootstrap, HTTPS, controllers, stream. NATS comes up beside,
never before: a writer waits for the disk alone. End order is the reverse, and what was acknowledged is on disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ipaddress
import signal
import socket
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import structlog

from atoll.machinery.meta.types import SECRETS
from atoll.machinery.process.pki import write_private
from atoll.machinery.storage.files import DATA_FILE, require_local
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from atoll.machinery.storage.options import StoreOptions
from atoll.machinery.storage.sealing import ensure_key_file
from atoll.shard import kubeconfig
from atoll.shard.app import ShardApp
from atoll.shard.config import ShardConfig, feature_gates
from atoll.shard.identity import Credentials, load
from atoll.standalone.front import Front
from atoll.standalone.stream import CREDENTIALS_FILE, Streaming

log = structlog.get_logger()

PORT_FILE, KEYS_FILE, STORE = "secure-port", "sealing-keys.json", "store"

#: A round of compaction comes so often, and at least twice in the time that the log is kept.
_MAINTENANCE_S = 30.0


def store_options(config: ShardConfig) -> StoreOptions:
    """The store of a root directory: Secrets sealed, keys beside the file they do not lie in."""
    root = Path(config.root_directory)
    return StoreOptions(
        directory=str(root / STORE), shard=config.shard_name, sealed_types=(SECRETS,),
        key_file=str(root / KEYS_FILE), allow_any_filesystem=config.allow_any_filesystem,
        list_window_s=config.list_window, log_retention_s=config.log_retention,
        maintenance_interval_s=min(_MAINTENANCE_S, config.log_retention / 2),
    )  # fmt: skip


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
    """Run until SIGTERM or SIGINT. Raises what `prepare` does, before serving."""
    began = time.monotonic()
    feature_gates(config.feature_gates)
    store = prepare(config)
    try:
        await Standalone(config, store, began).run()
    finally:
        await store.close()


class Standalone:
    """One running `atoll start`."""

    def __init__(self, config: ShardConfig, store: LmdbStore, began: float) -> None:
        self._config, self._store, self._began = config, store, began
        self._root = Path(config.root_directory)
        self._stop = asyncio.Event()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, self._stop.set)
        names = _names(self._config.bind_address)
        credentials = load(self._config, names)
        front = Front(self._config, self._store, credentials)
        port = await self._listen(front)
        app = ShardApp(self._config, self._store, credentials, f"https://{self._config.host}:{port}")
        await app.bootstrap()
        async with Streaming(self._config, self._store, app.registry, self._stop.set):
            tasks = [self._background(app.manager(self._store).run()), self._background(self._store.run_maintenance())]
            if await self._unless_stopped(front.open(app, names, store_options(self._config))):
                self._write_kubeconfig(app.url, credentials)
                self._tell(app.url)
                # What start-up made stays: the collector need not go through it again and again.
                gc.freeze()
                await self._stop.wait()
            await self._drain(app, front, tasks)

    async def _unless_stopped(self, work: Coroutine[Any, Any, None]) -> bool:
        """Do it, or give it up and return False when told to stop. Raises what it raises."""
        task, stopped = asyncio.create_task(work), asyncio.create_task(self._stop.wait())
        await asyncio.wait((task, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if task.done():
            task.result()
            return True
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return False

    async def _listen(self, front: Front) -> int:
        """Take the port asked for; 0 keeps the one of the last start if it is free."""
        asked, file = self._config.secure_port, self._root / PORT_FILE
        if not asked:
            with contextlib.suppress(OSError, ValueError):
                return await front.listen(int(file.read_text()))
        try:
            port = await front.listen(asked)
        except OSError as error:
            where = f"{self._config.bind_address}:{asked} cannot be listened on ({error.strerror})"
            raise OSError(error.errno, f"{where}; --secure-port names another port, 0 picks a free one") from error
        write_private(file, b"%d\n" % port)
        return port

    def _background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run what never ends by itself; without it the shard is not one."""
        task = asyncio.create_task(work)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            log.error("background work failed", exc_info=task.exception())
            self._stop.set()

    def _write_kubeconfig(self, url: str, credentials: Credentials) -> None:
        if credentials.tokens is not None:
            kubeconfig.write(self._root, url, credentials.ca.certificate, credentials.tokens)

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

    async def _drain(self, app: ShardApp, front: Front, tasks: list[asyncio.Task[None]]) -> None:
        """Readiness off, requests finished, streams ended, controllers stopped."""
        log.info("draining")
        app.ready_checks["shutdown"] = lambda: "process is shutting down"
        await front.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await app.close()


def _names(bind_address: str) -> list[str]:
    """Names in the serving certificate; those of the machine too where everybody on its networks may come in."""
    address = ipaddress.ip_address(bind_address)
    more = [socket.gethostname(), socket.getfqdn()] if address.is_unspecified else [str(address)]
    return list(dict.fromkeys(["localhost", "127.0.0.1", "::1", *more]))
