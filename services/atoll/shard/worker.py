"""An API worker process: TLS, authentication, authorization, admission and all reads, beside the shard's writer.

`standalone.worker_pool` starts it with one line of JSON on standard input (`WorkerSettings`), keeps that pipe open, and
reads one line back when the worker serves. Later lines are results of the main process's checks (`parent_health`).
Accepted connections come from the main process over the descriptor that is the first argument; the second is the
worker's number.
Reads go to the LMDB file; mutations go to the writer over its Unix socket. Invariant: a worker has no state of its own;
any worker may answer any request, and any may crash.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import signal
import socket
import sys
from pathlib import Path

import msgspec
import structlog

from atoll.machinery.apiserver.authentication.admin_tokens import AdminTokens
from atoll.machinery.process import logging
from atoll.machinery.process.freed_memory import return_freed_memory
from atoll.machinery.storage.options import StoreOptions
from atoll.machinery.storage.workers.worker_store import connect_store
from atoll.machinery.wire.connection_spread import PassedConnections
from atoll.machinery.wire.limits import Limits
from atoll.machinery.wire.metrics import ServerMetrics
from atoll.machinery.wire.proxy.streaming import StreamingConnection
from atoll.machinery.wire.server import Server
from atoll.shard.app import ShardApp
from atoll.shard.authentication import load
from atoll.shard.config import ShardConfig
from atoll.shard.credential_reload import reload_credentials
from atoll.shard.parent_health import ParentHealth

log = structlog.get_logger()

DRAIN_S = 10.0
READY = "ready"
#: Seconds between two reports of the number of connections.
REPORT_S = 0.5


class WorkerSettings(msgspec.Struct, frozen=True):
    """The input of a worker. Tokens are sent on the pipe only, never in arguments or the environment."""

    config: ShardConfig
    store: StoreOptions
    socket: str
    url: str
    names: list[str]
    tokens: AdminTokens | None


async def serve(settings: WorkerSettings, channel: socket.socket, number: int) -> None:
    """Serve as the worker of a number, from 1, until SIGTERM, or the end of the pipe or of the connection."""
    stop, parent = asyncio.Event(), ParentHealth()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    _watch_parent(parent, stop)
    store = await connect_store(settings.store, Path(settings.socket))
    try:
        credentials = load(settings.config, settings.names, tokens=settings.tokens)
        app = ShardApp(settings.config, store, credentials, settings.url)
        app.seeker, app.asker = store.seek, store.call
        await app.metrics.join(Path(settings.socket).parent, number)
        parent.add_to(app.health)
        pipeline = app.pipeline()
        connection = functools.partial(StreamingConnection, policy=pipeline)
        server = Server(pipeline, Limits(), credentials.context, connection)
        server.accept_streams(app.identity.certificates.is_proxy)
        ServerMetrics(server, app.registry)
        passed = PassedConnections(channel)
        server.accept_from(passed)
        # Objects made at start-up live as long as the process: exclude them from garbage collection.
        gc.freeze()
        sys.stdout.write(READY + "\n")
        sys.stdout.flush()
        follow = asyncio.create_task(app.watches.open.follow())
        reload = asyncio.create_task(reload_credentials(settings.config, credentials, app.identity, server))
        renewing = asyncio.create_task(app.renew())
        report = asyncio.create_task(_report(passed, server))
        returning = asyncio.create_task(return_freed_memory())
        ends = {
            asyncio.create_task(store.disconnected.wait()),
            asyncio.create_task(stop.wait()),
            follow,
            reload,
            renewing,
        }
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        app.health.add("shutdown", lambda: "process is shutting down")
        await server.drain(DRAIN_S)
        follow.cancel()
        reload.cancel()
        renewing.cancel()
        report.cancel()
        returning.cancel()
        await app.close()
    finally:
        await store.close()


async def _report(passed: PassedConnections, server: Server) -> None:
    """Report the number of connections, by which the parent spreads new ones."""
    while True:
        passed.report(server.connections)
        await asyncio.sleep(REPORT_S)


def _watch_parent(parent: ParentHealth, closed: asyncio.Event) -> None:
    """Pass on what the parent sends, and set `closed` when it closes the pipe."""
    loop, pipe = asyncio.get_running_loop(), sys.stdin.fileno()

    def readable() -> None:
        if data := os.read(pipe, 4096):
            parent.receive(data)
        else:
            loop.remove_reader(pipe)
            closed.set()

    loop.add_reader(pipe, readable)


def main() -> None:
    """Entry point of the process."""
    import uvloop

    settings = msgspec.json.decode(sys.stdin.buffer.readline(), type=WorkerSettings)
    logging.configure(settings.config.log_level, settings.config.log_format)
    uvloop.run(serve(settings, socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])))


if __name__ == "__main__":
    main()
