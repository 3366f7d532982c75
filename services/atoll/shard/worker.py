"""An API worker: TLS, authentication, authorization, admission and all reads, beside the shard's writer.

`standalone.worker_pool` starts it with one line of JSON on standard input (`WorkerSettings`), keeps that pipe open for
as long as it lives, and reads one line back when the worker serves. The worker calls itself ready only after a second
line, which says that all of them serve. Reads go to the LMDB file; mutations go to the writer over its Unix socket. A
worker holds nothing that another does not: any of them may answer any request, and any may die.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import signal
import sys
from pathlib import Path

import msgspec
import structlog

from atoll.machinery.apiserver.authentication.admin_tokens import AdminTokens
from atoll.machinery.process import logging
from atoll.machinery.storage.options import StoreOptions
from atoll.machinery.storage.workers.worker_store import connect_store
from atoll.machinery.wire.limits import Limits
from atoll.machinery.wire.proxy.streaming import StreamingConnection
from atoll.machinery.wire.server import Server
from atoll.shard.app import ShardApp
from atoll.shard.authentication import load
from atoll.shard.client_ca_reload import renew
from atoll.shard.config import ShardConfig

log = structlog.get_logger()

DRAIN_S = 10.0
READY, ALL_SERVE = "ready", b"all serve\n"


class WorkerSettings(msgspec.Struct, frozen=True):
    """What a worker is told. Tokens travel on the pipe alone, never in arguments or the environment."""

    config: ShardConfig
    store: StoreOptions
    socket: str
    url: str
    port: int
    names: list[str]
    tokens: AdminTokens | None


async def serve(brief: WorkerSettings) -> None:
    """Serve until SIGTERM, until the writer is gone, or until the pipe to the parent closes."""
    stop, all_serve = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    _listen_to_parent(all_serve, stop)
    store = await connect_store(brief.store, Path(brief.socket))
    try:
        credentials = load(brief.config, brief.names, tokens=brief.tokens)
        app = ShardApp(brief.config, store, credentials, brief.url)
        app.health.add("workers", lambda: None if all_serve.is_set() else "not all workers serve")
        pipeline = app.pipeline()
        connection = functools.partial(StreamingConnection, policy=pipeline)
        server = Server(pipeline, Limits(), credentials.context, connection)
        await server.start(brief.config.bind_address, brief.port, reuse_port=True)
        # What start-up made stays: the collector need not go through it again and again.
        gc.freeze()
        sys.stdout.write(READY + "\n")
        sys.stdout.flush()
        following = asyncio.create_task(app.watches.open.follow())
        renewing = asyncio.create_task(renew(brief.config, credentials, app.identity.certificates, server.use))
        ends = {asyncio.create_task(store.disconnected.wait()), asyncio.create_task(stop.wait()), following, renewing}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        app.health.add("shutdown", lambda: "process is shutting down")
        await server.drain(DRAIN_S)
        following.cancel()
        renewing.cancel()
        await app.close()
    finally:
        await store.close()


def _listen_to_parent(all_serve: asyncio.Event, gone: asyncio.Event) -> None:
    """Set `all_serve` when the parent says so, and `gone` when its end of the pipe is."""
    loop, pipe = asyncio.get_running_loop(), sys.stdin.fileno()

    def heard() -> None:
        if os.read(pipe, 64):
            all_serve.set()
        else:
            loop.remove_reader(pipe)
            gone.set()

    loop.add_reader(pipe, heard)


def main() -> None:
    """Entry point of the process."""
    import uvloop

    brief = msgspec.json.decode(sys.stdin.buffer.readline(), type=WorkerSettings)
    logging.configure(brief.config.log_level, brief.config.log_format)
    uvloop.run(serve(brief))


if __name__ == "__main__":
    main()
