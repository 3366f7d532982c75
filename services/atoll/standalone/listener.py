"""Where requests come in: this process's own listener, or workers that share a port.

`listen` takes the port early, so that a second server is refused and URLs are known; `open` lets requests in once the
shard is built.
"""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from atoll.machinery.apiserver.serving.pipeline import Pipeline
from atoll.machinery.meta.objects import encode_json
from atoll.machinery.meta.status import Details, ServiceUnavailable
from atoll.machinery.storage.lmdb_store import LmdbStore
from atoll.machinery.storage.options import StoreOptions
from atoll.machinery.wire.exchange import Exchange
from atoll.machinery.wire.limits import Limits
from atoll.machinery.wire.server import Server
from atoll.shard.app import ShardApp
from atoll.shard.authentication import Credentials
from atoll.shard.client_ca_reload import renew
from atoll.shard.config import ShardConfig
from atoll.shard.worker import Brief
from atoll.standalone.worker_pool import Workers, reserve_patiently

DRAIN_S = 10.0


class Door:
    """The handler of the listener: closed with 503 until the pipeline is there."""

    def __init__(self) -> None:
        self.pipeline: Pipeline | None = None
        self.why = "the shard is starting"

    def __call__(self, exchange: Exchange) -> None:
        if self.pipeline is not None:
            self.pipeline(exchange)
            return
        error = ServiceUnavailable(self.why, Details(retry_after_s=1))
        headers = (("content-type", "application/json"), ("retry-after", "1"))
        exchange.reply(503, headers, encode_json(error.status()) + b"\n")


class Front:
    """The listener of a shard, in one process or in several."""

    def __init__(self, config: ShardConfig, store: LmdbStore, credentials: Credentials) -> None:
        self._config, self._store, self._credentials = config, store, credentials
        self._door = Door()
        self._server: Server | None = None
        self._reserved: socket.socket | None = None
        self._workers: Workers | None = None
        self._following: list[asyncio.Task[None]] = []

    async def listen(self, port: int) -> int:
        """Take a port (0 picks one) and give it. Raises OSError if it is taken (with workers: and stays so)."""
        host = self._config.bind_address
        if self._config.workers:
            self._reserved = await reserve_patiently(host, port)
            return int(self._reserved.getsockname()[1])
        self._server = Server(self._door, Limits(), self._credentials.context)
        return await self._server.start(host, port)

    def waits(self, reason: str) -> None:
        """Tell who asks that the root shard is waited for. The reason is for the log: anybody may ask."""
        self._door.why = "the shard is starting: its root shard cannot be reached, or does not let it join"

    async def open(self, app: ShardApp, names: list[str], store: StoreOptions) -> None:
        """Let requests in: through the pipeline of this process, or by starting the workers."""
        if self._reserved is None:
            self._door.pipeline = app.pipeline()
            assert self._server is not None
            renewing = renew(self._config, self._credentials, app.identity.certificates, self._server.use)
            self._following = [asyncio.create_task(work) for work in (app.resources.watches.follow(), renewing)]
            return
        self._workers = Workers(self._store, self._config.workers, Path(self._config.root_directory))
        port = int(self._reserved.getsockname()[1])
        brief = Brief(self._config, store, str(self._workers.socket), app.url, port, names, self._credentials.tokens)
        await self._workers.start(brief)

    async def close(self) -> None:
        """Finish what is under way and stop listening."""
        if self._server is not None:
            await self._server.drain(DRAIN_S)
        for task in self._following:
            task.cancel()
        if self._workers is not None:
            await self._workers.stop()
        if self._reserved is not None:
            self._reserved.close()
