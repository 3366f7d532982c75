"""`atoll edge-controllers`: serves health, starts the controllers with an account each, stops on SIGTERM.

Invariants: of several processes the holder of the service's Lease works, and the others wait; a controller reconciles
nothing before it has seen everything that its decisions need.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import secrets
import socket
import ssl
import sys
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Protocol

import structlog
from prometheus_client import CollectorRegistry, ProcessCollector

from atoll.edge.changes import ChangeSource
from atoll.edge.config import EdgeControllersConfig
from atoll.edge.heartbeats import Heartbeats
from atoll.edge.initializer import Initializer
from atoll.edge.mailboxes import Mailboxes
from atoll.edge.objects import service
from atoll.edge.placement_translator.translator import PlacementTranslator
from atoll.edge.store import EdgeStore
from atoll.edge.summarizer.summarizer import StatusSummarizer
from atoll.edge.target_metrics import TargetMetrics
from atoll.edge.where_resolver import WhereResolver
from atoll.machinery.apiserver.serving.health import Check, Notice
from atoll.machinery.apiserver.serving.health_server import HealthServer
from atoll.machinery.client.client import Client
from atoll.machinery.client.kubeconfig import Kubeconfig
from atoll.machinery.client.lease import Lease, Timing
from atoll.machinery.control.manager import ControllerMetrics
from atoll.machinery.control.queue import Requeue, WorkQueue
from atoll.machinery.control.reconcile_log import logged
from atoll.machinery.control.worker import work
from atoll.machinery.meta.status import ApiError
from atoll.machinery.process.file_watch import renew_server
from atoll.machinery.process.freed_memory import return_freed_memory
from atoll.machinery.process.lifetime import Lifetime
from atoll.machinery.process.listen_address import take_port
from atoll.machinery.process.private_files import write_private
from atoll.machinery.process.serving_pair import serving_pair
from atoll.machinery.process.tls import server_context
from atoll.machinery.storage.environment.filesystem import require_local
from atoll.machinery.stream.credential_file import read_access
from atoll.machinery.wire.limits import Limits
from atoll.machinery.wire.pending_response import ClientError
from atoll.machinery.wire.server import Server

log = structlog.get_logger()

SERVING = "edge-controllers"
DRAIN_S = 10.0
WORKERS = 4
#: In the workspace of the service.
LEASE, LEASE_TIMING = "edge-controllers", Timing(30.0, 10.0)


class Controller(Protocol):
    """One controller of the process."""

    name: str
    queue: WorkQueue[Any]

    async def synced(self) -> None:
        """Wait until everything that a decision needs was seen."""

    async def reconcile(self, key: Any) -> Requeue:
        """Reconcile a key; return when to do it again."""


async def start(config: EdgeControllersConfig) -> None:
    """Run until SIGTERM or SIGINT. Raises KubeconfigError, PkiError, OSError, BackgroundWorkFailed."""
    root = Path(config.directory)
    if not config.allow_any_filesystem:
        require_local(root)
    await asyncio.to_thread(root.mkdir, mode=0o700, parents=True, exist_ok=True)
    kubeconfig, export = Kubeconfig.load(config.kubeconfig), service().export
    async with AsyncExitStack() as stack:
        store = EdgeStore(root / "store", allow_any_filesystem=config.allow_any_filesystem)
        stack.callback(store.close)
        first, second, third, fourth = [
            await stack.enter_async_context(Client(kubeconfig.target(name), manager=name))
            for name in (Mailboxes.name, WhereResolver.name, PlacementTranslator.name, StatusSummarizer.name)
        ]
        home = first.target.workspace
        parent = config.mailbox_parent or home
        mailboxes = Mailboxes(first, parent, home, export, config.built_ins.mailbox_exports)
        resolver = WhereResolver(second, export)
        translator = PlacementTranslator(third, parent, export, config.built_ins, store)
        summarizer = StatusSummarizer(fourth, export, translator.placed)
        translator.observer = summarizer
        initializers = [Initializer(first, kind) for kind in service().grants]
        process = _Process(config, root, first)
        translator.register(process.registry)
        TargetMetrics(lambda: mailboxes.targets, process.registry)
        source = process.changes(store)
        if source is not None:
            mailboxes.start(source.follow)

        def watches() -> list[Coroutine[Any, Any, None]]:
            return [
                mailboxes.view.run(),
                mailboxes.workspaces.run(),
                resolver.view.run(),
                *translator.watches(),
                *summarizer.watches(),
                translator.start(source.follow if source is not None else None),
                *([source.run()] if source is not None else []),
                *(each.run() for each in initializers),
            ]

        controllers: list[Controller] = [
            mailboxes,
            mailboxes.heartbeats,
            resolver,
            *translator.controllers,
            *summarizer.controllers,
            *initializers,
        ]
        await process.run(controllers, watches)


class LeaseLost(Exception):
    """Another process took the Lease over, as this one had not renewed it for too long."""


class _Process:
    def __init__(self, config: EdgeControllersConfig, root: Path, client: Client) -> None:
        self._config, self._root = config, root
        self._life = Lifetime()
        self._taken = asyncio.Event()
        self._lease = Lease(client, LEASE, _identity(root), LEASE_TIMING, self._taken.set)
        self._lease.lost = self._lost
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._metrics = ControllerMetrics(self.registry)
        self._waiting: set[str] = set()
        self._checks: dict[str, Check] = {"controllers": self._check}

    def changes(self, store: EdgeStore) -> ChangeSource | None:
        """Return the changes of all shards, if the process has a NATS server."""
        config = self._config
        if not config.nats_url:
            return None
        access = read_access(config.nats_url, config.nats_credentials_file)
        source = ChangeSource(access, store, self.registry)
        self._checks["changes"] = Notice(source.check)
        return source

    async def run(self, controllers: list[Controller], watches: Callable[[], list[Coroutine[Any, Any, None]]]) -> None:
        """Serve and work until stopped."""
        self._life.stop_on_signals()
        config = self._config
        self._waiting.update(each.name for each in controllers)
        server = Server(HealthServer(self.registry, self._checks), Limits(), self._tls())
        listen = functools.partial(server.start, config.bind_address)
        port = await take_port(listen, config.bind_address, config.secure_port, self._root)
        self._life.run_in_background(
            self._lease.run(),
            self._work(controllers, watches),
            renew_server(config.tls_cert_file, config.tls_private_key_file, config.client_ca_file, server.use),
            return_freed_memory(),
        )
        log.info("serving", url=f"https://{config.host}:{port}")
        sys.stdout.write(f"atoll edge-controllers serves https://{config.host}:{port}\n")
        sys.stdout.flush()
        await self._life.stopped()
        await server.drain(DRAIN_S)
        await self._life.close()
        with contextlib.suppress(ApiError, ClientError, TimeoutError, OSError):
            await self._lease.release()
        self._life.check()

    async def _work(
        self, controllers: list[Controller], watches: Callable[[], list[Coroutine[Any, Any, None]]]
    ) -> None:
        """Begin once no other process works."""
        await self._taken.wait()
        self._life.run_in_background(*watches(), *(self._control(each) for each in controllers))

    def _lost(self) -> None:
        raise LeaseLost(f"{self._lease.holder} took the Lease {LEASE}")

    async def _control(self, controller: Controller) -> None:
        """Run the workers of a controller, once it has seen everything."""
        await controller.synced()
        self._waiting.discard(controller.name)
        observer = self._metrics.observer(controller.name, controller.queue)
        # Most heartbeats find nothing to do, and what they change they log.
        is_quiet = controller.name == Heartbeats.name
        reconcile = controller.reconcile if is_quiet else logged(controller.name, controller.reconcile)
        for _ in range(WORKERS):
            self._life.run_in_background(work(controller.name, controller.queue, reconcile, observer))

    def _check(self) -> str | None:
        if not self._taken.is_set():
            return self._lease.failure or f"{self._lease.holder} has the Lease {LEASE} and works"
        return f"waiting for the objects of {', '.join(sorted(self._waiting))}" if self._waiting else None

    def _tls(self) -> ssl.SSLContext:
        config = self._config
        clients = Path(config.client_ca_file).read_bytes() if config.client_ca_file else b""
        return server_context(serving_pair(config, self._root, SERVING), clients)


def _identity(root: Path) -> str:
    """Return the name of the process, which a killed one has again."""
    file = root / "identity"
    if not file.is_file():
        write_private(file, f"{socket.gethostname()}_{secrets.token_hex(4)}".encode())
    return file.read_text()
