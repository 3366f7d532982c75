"""The process of views: opens the stored rows, starts the listener, then keeps the rows current.

An author's program calls `run`, `atoll virtual-workspaces` calls `serve`. It prints the URLs on standard output once it
listens, and stops on SIGTERM. Invariant: stored rows are served before any shard answers, but every request is still
authorized by a shard.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
from collections.abc import Sequence
from pathlib import Path

import uvloop
from prometheus_client import CollectorRegistry

from atoll.machinery.apiserver.authentication.certificates import Certificates
from atoll.machinery.apiserver.authentication.dynamic_client_ca import ClientCAFiles, ReloadTarget, reload_on_change
from atoll.machinery.client.client import WILDCARD, Client
from atoll.machinery.client.kubeconfig import KubeconfigError
from atoll.machinery.client.renewal import renewable
from atoll.machinery.kinds.custom import kinds_of_resource_schema
from atoll.machinery.meta.names import LOCAL
from atoll.machinery.process import config as settings
from atoll.machinery.process import logging
from atoll.machinery.process.file_watch import ClientFiles, renew_clients
from atoll.machinery.process.freed_memory import return_freed_memory
from atoll.machinery.process.lifetime import BackgroundWorkFailed, Lifetime
from atoll.machinery.process.listen_address import url_host
from atoll.machinery.process.private_files import InvalidCredentials, PkiError, load_pair
from atoll.machinery.storage.lmdb_store import LmdbStore
from atoll.machinery.wire.limits import Limits
from atoll.machinery.wire.server import Server
from atoll.virtualworkspace_sdk import endpoints, server
from atoll.virtualworkspace_sdk.config import ViewConfig
from atoll.virtualworkspace_sdk.content import Content
from atoll.virtualworkspace_sdk.permissions import Permissions
from atoll.virtualworkspace_sdk.projection import Projection
from atoll.virtualworkspace_sdk.reviews import Reviews
from atoll.virtualworkspace_sdk.rows import Rows, open_rows
from atoll.virtualworkspace_sdk.view import View
from atoll.virtualworkspace_sdk.writer import Writer

DRAIN_S = 10.0


def run(*views: View, arguments: Sequence[str] | None = None) -> None:
    """Serve views until SIGTERM or SIGINT; settings from the command line and the environment. Exits the process."""
    argv = sys.argv[1:] if arguments is None else arguments
    name = views[0].name
    try:
        config, only_print = settings.load(ViewConfig, argv, os.environ, f"The virtual workspace {name}.")
    except settings.ConfigError as error:
        sys.exit(f"{name}: {error}")
    if only_print:
        sys.stdout.write(settings.printed(config))
        return
    logging.configure(config.log_level, config.log_format)
    try:
        uvloop.run(serve(views, config))
    except (OSError, PkiError, InvalidCredentials, KubeconfigError, BackgroundWorkFailed) as error:
        sys.exit(f"{name}: {error}")


async def serve(views: Sequence[View], config: ViewConfig) -> None:
    """Serve views of one export with loaded settings, on a running loop.

    Raises OSError, PkiError, InvalidCredentials, KubeconfigError, BackgroundWorkFailed, ValueError for views that
    cannot be served together, and what opening the store raises.
    """
    store = open_rows(config.directory, anywhere=config.allow_any_filesystem)
    try:
        renewed: list[ClientFiles] = []
        target = renewable(config.kubeconfig, config.context, renewed)
        async with Client(target, manager=views[0].name) as client:
            await _Serving(views, config, store, client).run(renewed)
    finally:
        await store.close()


class _Serving:
    """The running views."""

    def __init__(self, views: Sequence[View], config: ViewConfig, store: LmdbStore, client: Client) -> None:
        self._config, self._store, self._client = config, store, client
        self._kinds = {view.name: kinds_of_resource_schema(view.definition, LOCAL) for view in views}
        types = {kinds[0].type for kinds in self._kinds.values() if kinds}
        if len(types) != len(views):
            raise ValueError("each view needs a name and a kind of its own, with a served version")
        self._views = [(view, Rows(store, self._kinds[view.name][0])) for view in views]
        self._projection = Projection(self._views, lambda url: client.view(url, WILDCARD))
        self._reviews = Reviews(client, config.export, self._projection.clients)
        self._life = Lifetime()

    async def run(self, renewed: Sequence[ClientFiles]) -> None:
        """Run until stopped, and renew clients. Raises BackgroundWorkFailed when a background task ended."""
        self._life.stop_on_signals()
        files = _client_ca_files(self._config)
        cas, serving = await asyncio.to_thread(lambda: (files.read(), load_pair(*map(Path, files.serving))))
        names = settings.comma_separated(self._config.requestheader_allowed_names)
        certificates = Certificates(cas.clients, cas.proxies, names, revoked=cas.revoked)
        listener = await self._listen(certificates, cas.context(serving))
        permissions = Permissions(self._client, self._projection, self._reviews, self._watches, self._store)
        self._life.run_in_background(
            endpoints.follow(self._client, self._config.export, self._projection),
            self._projection.run(),
            self._store.run_maintenance(),
            permissions.run(),
            reload_on_change(files, cas, ReloadTarget(serving, certificates, listener)),
            renew_clients(renewed),
            return_freed_memory(),
        )
        await self._life.stopped()
        await listener.drain(DRAIN_S)
        await self._life.close()
        await self._projection.close()
        self._life.check()

    async def _listen(self, certificates: Certificates, context: ssl.SSLContext) -> Server:
        config = self._config
        serving = server.Serving(
            self._contents(), Writer(self._views, self._projection), certificates, CollectorRegistry(), self._ready
        )
        pipeline, self._watches = server.handler(self._store, serving)
        listener = Server(pipeline, Limits(), context)
        port = await listener.start(config.bind_address, config.secure_port)
        for view, _ in self._views:
            address = f"https://{url_host(config.bind_address)}:{port}/services/{view.name}"
            sys.stdout.write(f"{view.name} serves {address}\n")
        sys.stdout.flush()
        return listener

    def _contents(self) -> dict[str, Content]:
        return {
            view.name: Content(self._kinds[view.name], rows, self._reviews, writes=view.write is not None)
            for view, rows in self._views
        }

    def _ready(self) -> str | None:
        return None if all(rows.complete for _, rows in self._views) else "rows are not complete"


def _client_ca_files(config: ViewConfig) -> ClientCAFiles:
    clients = (config.client_ca_file,) if config.client_ca_file else ()
    serving = config.tls_cert_file, config.tls_private_key_file
    return ClientCAFiles(clients, config.requestheader_client_ca_file, serving, config.client_crl_file)
