"""The HTTPS listener of a shard: in this process, or in API workers, for which it accepts.

`runner` calls this. `listen` binds the port before the shard is built, so that a second server fails early and URLs are
known; `open` serves requests once the shard is built. Until then every request is answered with 503.
"""

from __future__ import annotations

import asyncio
import functools
import socket
from pathlib import Path

from prometheus_client import Counter

from atoll.machinery.apiserver.serving.pipeline import RequestPipeline
from atoll.machinery.meta.objects import encode_json
from atoll.machinery.meta.status import Details, ServiceUnavailable
from atoll.machinery.storage.lmdb_store import LmdbStore
from atoll.machinery.storage.options import StoreOptions
from atoll.machinery.wire.exchange import Exchange, HttpRequest
from atoll.machinery.wire.limits import Limits
from atoll.machinery.wire.metrics import ServerMetrics
from atoll.machinery.wire.proxy.streaming import StreamingConnection
from atoll.machinery.wire.server import Server
from atoll.shard.app import ShardApp
from atoll.shard.authentication import Credentials
from atoll.shard.config import ShardConfig
from atoll.shard.credential_reload import reload_credentials
from atoll.shard.worker import WorkerSettings
from atoll.standalone.worker_pool import Does, WorkerPlace, WorkerPool, reserve

DRAIN_S = 10.0


class StartupHandler:
    """The handler of the listener: 503 until `pipeline` is set, then the pipeline."""

    def __init__(self) -> None:
        self.pipeline: RequestPipeline | None = None
        self.reason = "the shard is starting"

    # BodyPolicy

    min_bytes = RequestPipeline.min_bytes

    def streams(self, request: HttpRequest) -> bool:
        """Whether the body is relayed as it arrives."""
        return self.pipeline is not None and self.pipeline.streams(request)

    def unlimited(self, request: HttpRequest) -> bool:
        """Whether the body may exceed the limit of objects."""
        return self.pipeline is not None and self.pipeline.unlimited(request)

    def __call__(self, exchange: Exchange) -> None:
        if self.pipeline is not None:
            self.pipeline(exchange)
            return
        error = ServiceUnavailable(self.reason, Details(retry_after_s=1))
        headers = (("content-type", "application/json"), ("retry-after", "1"))
        exchange.reply(503, headers, encode_json(error.status()) + b"\n")


class Listener:
    """The listener of a shard, in one process or in several."""

    def __init__(self, config: ShardConfig, store: LmdbStore, credentials: Credentials, workers: int) -> None:
        self._config, self._store, self._credentials, self._count = config, store, credentials, workers
        self._handler = StartupHandler()
        self._server: Server | None = None
        self._reserved: socket.socket | None = None
        self._workers: WorkerPool | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def listen(self, port: int) -> int:
        """Bind a port (0 picks one) and return it. Raises OSError if it is in use."""
        host = self._config.bind_address
        if self._count:
            self._reserved = reserve(host, port)
            return int(self._reserved.getsockname()[1])
        connection = functools.partial(StreamingConnection, policy=self._handler)
        self._server = Server(self._handler, Limits(), self._credentials.context, connection)
        return await self._server.start(host, port)

    def wait_for_root(self, reason: str) -> None:
        """Answer that the root shard is awaited. Clients, not yet authenticated, do not see `reason`."""
        self._handler.reason = "the shard is starting: its root shard cannot be reached, or does not let it join"

    async def open(self, app: ShardApp, names: list[str], store: StoreOptions) -> None:
        """Serve requests: with the pipeline of this process, or by starting the workers."""
        if self._reserved is None:
            assert self._server is not None
            ServerMetrics(self._server, app.registry)
            self._server.accept_streams(app.identity.certificates.is_proxy)
            self._server.handler = self._handler.pipeline = app.pipeline()
            reloading = reload_credentials(self._config, self._credentials, app.identity, self._server)
            self._tasks = [asyncio.create_task(work) for work in (app.watches.open.follow(), reloading, app.renew())]
            return
        place = WorkerPlace(Path(self._config.root_directory), self._reserved)
        self._workers = WorkerPool(self._store, self._count, place, app.health.results, Does(app.seek, app.ask))
        self._workers.restarted = Counter(
            "atoll_shard_worker_restarts_total", "API workers that exited.", registry=app.registry
        ).inc
        # The workers follow what decides about their watches; this process that about subscriptions.
        self._tasks = [asyncio.create_task(work) for work in (app.watches.open.follow(), app.renew())]
        await app.metrics.join(self._workers.socket.parent, 0)
        brief = WorkerSettings(self._config, store, str(self._workers.socket), app.url, names, self._credentials.tokens)
        await self._workers.start(brief)

    async def close(self) -> None:
        """Finish the requests in progress and stop listening."""
        if self._server is not None:
            await self._server.drain(DRAIN_S)
        for task in self._tasks:
            task.cancel()
        if self._workers is not None:
            await self._workers.stop()
        if self._reserved is not None:
            self._reserved.close()
