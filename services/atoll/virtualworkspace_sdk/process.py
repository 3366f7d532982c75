"""The process of a view: opens the stored rows, starts the listener, then keeps the rows current.

An author's program calls `run`. It prints its URL on standard output once it listens, and stops on SIGTERM. Invariant:
stored rows are served before any shard answers, but every read is still authorized by a shard.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import uvloop

from atoll.machinery.client.client import WILDCARD, Client
from atoll.machinery.client.kubeconfig import KubeconfigError
from atoll.machinery.kinds.custom import kinds_of_resource_schema
from atoll.machinery.meta.names import LOCAL
from atoll.machinery.process import config as settings
from atoll.machinery.process import logging
from atoll.machinery.process.freed_memory import return_freed_memory
from atoll.machinery.process.lifetime import BackgroundWorkFailed, Lifetime
from atoll.machinery.process.listen_address import url_host
from atoll.machinery.process.pki import Pair
from atoll.machinery.process.tls import server_context
from atoll.machinery.storage.lmdb_store import LmdbStore
from atoll.machinery.wire.limits import Limits
from atoll.machinery.wire.server import Server
from atoll.virtualworkspace_sdk import endpoints, server
from atoll.virtualworkspace_sdk.config import ViewConfig
from atoll.virtualworkspace_sdk.content import Content, reauthorize_watches
from atoll.virtualworkspace_sdk.projection import Projection
from atoll.virtualworkspace_sdk.reviews import Reviews
from atoll.virtualworkspace_sdk.rows import Rows, open_rows
from atoll.virtualworkspace_sdk.view import View

DRAIN_S = 10.0


def run(view: View, arguments: Sequence[str] | None = None) -> None:
    """Serve a view until SIGTERM or SIGINT; settings from the command line and the environment. Exits the process."""
    argv = sys.argv[1:] if arguments is None else arguments
    try:
        config, only_print = settings.load(ViewConfig, argv, os.environ, f"The virtual workspace {view.name}.")
    except settings.ConfigError as error:
        sys.exit(f"{view.name}: {error}")
    if only_print:
        sys.stdout.write(settings.printed(config))
        return
    logging.configure(config.log_level, config.log_format)
    try:
        uvloop.run(serve(view, config))
    except (OSError, KubeconfigError, BackgroundWorkFailed) as error:
        sys.exit(f"{view.name}: {error}")


async def serve(view: View, config: ViewConfig) -> None:
    """Serve a view with loaded settings, on a running loop.

    Raises OSError, KubeconfigError, BackgroundWorkFailed, and what opening the store raises.
    """
    store = open_rows(config.directory, anywhere=config.allow_any_filesystem)
    try:
        async with Client.from_kubeconfig(config.kubeconfig, config.context, manager=view.name) as client:
            await _Serving(view, config, store, client).run()
    finally:
        await store.close()


class _Serving:
    """One running view."""

    def __init__(self, view: View, config: ViewConfig, store: LmdbStore, client: Client) -> None:
        self._view, self._config, self._store, self._client = view, config, store, client
        self._kinds = kinds_of_resource_schema(view.definition, LOCAL)
        if not self._kinds:
            raise ValueError("the definition serves no version")
        self._rows = Rows(store, self._kinds[0])
        self._projection = Projection(view, self._rows, lambda url: client.view(url, WILDCARD))
        self._life = Lifetime()

    async def run(self) -> None:
        """Run until stopped. Raises BackgroundWorkFailed when a background task ended."""
        self._life.stop_on_signals()
        listener = await self._listen()
        self._life.run_in_background(
            endpoints.follow(self._client, self._config.export, self._projection),
            self._projection.run(),
            self._store.run_maintenance(),
            reauthorize_watches(self._watches, self._store),
            return_freed_memory(),
        )
        await self._life.stopped()
        await listener.drain(DRAIN_S)
        await self._life.close()
        await self._projection.close()
        self._life.check()

    async def _listen(self) -> Server:
        config = self._config
        certificate, key, authority = await asyncio.to_thread(
            _read, config.tls_cert_file, config.tls_private_key_file, config.requestheader_client_ca_file
        )
        reviews = Reviews(self._client, self._config.export, self._projection.clients)
        content = Content(self._kinds, self._rows, reviews)
        names = settings.comma_separated(config.requestheader_allowed_names)
        pipeline, self._watches = server.handler(self._store, self._view.name, content, (authority, names), self._ready)
        listener = Server(pipeline, Limits(), server_context(Pair(certificate, key), authority))
        port = await listener.start(config.bind_address, config.secure_port)
        name, host = self._view.name, url_host(config.bind_address)
        sys.stdout.write(f"{name} serves https://{host}:{port}/services/{name}\n")
        sys.stdout.flush()
        return listener

    def _ready(self) -> str | None:
        return None if self._rows.complete else "rows are not complete"


def _read(*files: str) -> list[bytes]:
    return [Path(file).read_bytes() for file in files]
