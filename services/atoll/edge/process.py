"""`atoll edge-controllers`: serves health, starts the controllers with an account each, stops on SIGTERM.

Invariants: of several processes the holder of the service's Lease works, and the others wait, or all share the work as
its members; a controller reconciles nothing before it has seen everything that its decisions need.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import secrets
import socket
import ssl
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import structlog
from msgspec.structs import replace
from prometheus_client import CollectorRegistry, ProcessCollector

from atoll.edge.changes import ChangeSource
from atoll.edge.config import EdgeControllersConfig
from atoll.edge.duty import Duty, LoneDuty, SharedDuty
from atoll.edge.heartbeats import Heartbeats
from atoll.edge.initializer import Initializer
from atoll.edge.mailbox_bindings import MailboxBindings
from atoll.edge.mailboxes import Mailboxes
from atoll.edge.objects import service
from atoll.edge.placement_translator.projection import MAX_REQUESTS, Projection
from atoll.edge.placement_translator.translator import PlacementTranslator
from atoll.edge.store import EdgeStore
from atoll.edge.summarizer.summarizer import StatusSummarizer
from atoll.edge.target_metrics import TargetMetrics
from atoll.edge.where_resolver import WhereResolver
from atoll.machinery.apiserver.serving.health import Check, Notice
from atoll.machinery.apiserver.serving.health_server import HealthServer
from atoll.machinery.client.client import Client
from atoll.machinery.client.renewal import renewable
from atoll.machinery.client.target import Fence
from atoll.machinery.control.manager import ControllerMetrics
from atoll.machinery.control.queue import Requeue, WorkQueue
from atoll.machinery.control.reconcile_log import logged
from atoll.machinery.control.worker import Reconcile, work
from atoll.machinery.meta.status import ApiError
from atoll.machinery.process.file_watch import ClientFiles, renew_clients, renew_server
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
#: Keys in work at a time; of mailboxes more, as each waits for its shard and for the disk most of the time.
WORKERS, MAILBOX_WORKERS = 4, MAX_REQUESTS


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
    accounts, export = _Accounts(config.kubeconfig), service().export
    async with AsyncExitStack() as stack:
        store = EdgeStore(root / "store", allow_any_filesystem=config.allow_any_filesystem)
        stack.callback(store.close)
        own = await stack.enter_async_context(accounts.client(Mailboxes.name))
        duty: Duty = (SharedDuty if config.shared else LoneDuty)(own, _identity(root), store)
        process = _Process(config, root, accounts)
        first, second, third, fourth = [
            await stack.enter_async_context(each) for each in accounts.clients(*duty.fences)
        ]
        home = first.target.workspace
        parent = config.mailbox_parent or home
        bindings = MailboxBindings(first, config.built_ins.mailbox_exports, store)
        mailboxes = Mailboxes(first, parent, home, export, bindings)
        resolver = WhereResolver(second, export)
        translator = PlacementTranslator(third, parent, export, config.built_ins, store)
        summarizer = StatusSummarizer(fourth, export, translator.placed)
        translator.observer = summarizer
        initializers = [Initializer(first, kind) for kind in service().grants]
        translator.register(process.registry)
        duty.measure(process.registry)
        TargetMetrics(lambda: duty.own(mailboxes.name, mailboxes.targets), process.registry)
        source = process.changes(store)
        if source is not None:
            mailboxes.start(source.follow)

        def watches() -> list[Coroutine[Any, Any, None]]:
            if source is not None and duty.is_resumed:
                translator.resume(source)
            return [
                mailboxes.view.run(),
                mailboxes.workspaces.run(),
                resolver.view.run(),
                store.keep_small(),
                *([source.run()] if source is not None else []),
                *(each.run() for each in initializers),
            ]

        def watches_of_whole() -> list[Coroutine[Any, Any, None]]:
            follow = source.follow if source is not None else None
            return [*translator.watches(), *summarizer.watches(), translator.start(follow)]

        duty.needs((mailboxes.view, resolver.view, mailboxes.workspaces, *([source] if source is not None else [])))
        await process.run(
            duty,
            _Part(duty.split_begun, (mailboxes, mailboxes.heartbeats, resolver, *initializers), watches, duty.share),
            _Part(
                duty.whole_begun,
                (*translator.controllers, *summarizer.controllers),
                watches_of_whole,
                lambda controller, reconcile: reconcile,
            ),
        )


class _Accounts:
    """The accounts in the kubeconfig. Their credentials are read again when it changes (`files`)."""

    def __init__(self, kubeconfig: str) -> None:
        self._kubeconfig = kubeconfig
        self.files: list[ClientFiles] = []

    def client(self, name: str, fence: Fence | None = None) -> Client:
        """Return a client of one account."""
        target = renewable(self._kubeconfig, name, self.files)
        return Client(replace(target, fence=fence), manager=name)

    def clients(self, split: Fence | None, whole: Fence | None) -> list[Client]:
        """Return a client for each account: of two controllers whose keys are split, and of two whose are not."""
        return [
            self.client(Mailboxes.name, split),
            self.client(WhereResolver.name, split),
            self.client(PlacementTranslator.name, whole),
            self.client(StatusSummarizer.name, whole),
        ]


class _Part(NamedTuple):
    """Controllers, and what they watch; both begin with an event. `share` restricts their reconciles."""

    begun: asyncio.Event
    controllers: Sequence[Controller]
    watches: Callable[[], list[Coroutine[Any, Any, None]]]
    share: Callable[[Any, Reconcile[Any]], Reconcile[Any]]


class _Process:
    def __init__(self, config: EdgeControllersConfig, root: Path, accounts: _Accounts) -> None:
        self._config, self._root, self._accounts = config, root, accounts
        self._life = Lifetime()
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._metrics = ControllerMetrics(self.registry)
        self._parts: Sequence[_Part] = ()
        self._failure: Callable[[], str] = lambda: ""
        self._synced: set[str] = set()
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

    async def run(self, duty: Duty, *parts: _Part) -> None:
        """Serve and work until stopped."""
        self._parts, self._failure = parts, duty.failure
        self._life.stop_on_signals()
        config = self._config
        server = Server(HealthServer(self.registry, self._checks), Limits(), self._tls())
        listen = functools.partial(server.start, config.bind_address)
        port = await take_port(listen, config.bind_address, config.secure_port, self._root)
        self._life.run_in_background(
            duty.run(),
            *map(self._work, parts),
            renew_server(config.tls_cert_file, config.tls_private_key_file, config.client_ca_file, server.use),
            renew_clients(self._accounts.files),
            return_freed_memory(),
        )
        log.info("serving", url=f"https://{config.host}:{port}")
        sys.stdout.write(f"atoll edge-controllers serves https://{config.host}:{port}\n")
        sys.stdout.flush()
        await self._life.stopped()
        await server.drain(DRAIN_S)
        await self._life.close()
        with contextlib.suppress(ApiError, ClientError, TimeoutError, OSError):
            await duty.release()
        self._life.check()

    async def _work(self, part: _Part) -> None:
        """Begin a part once this process has it."""
        await part.begun.wait()
        self._life.run_in_background(*part.watches(), *(self._control(each, part) for each in part.controllers))

    async def _control(self, controller: Controller, part: _Part) -> None:
        """Run the workers of a controller, once it has seen everything."""
        await controller.synced()
        # What was read stays: garbage is not looked for in it again and again while more is read.
        gc.freeze()
        self._synced.add(controller.name)
        observer = self._metrics.observer(controller.name, controller.queue)
        # Most heartbeats find nothing to do, and what they change they log.
        is_quiet = controller.name == Heartbeats.name
        own = controller.reconcile if is_quiet else logged(controller.name, controller.reconcile)
        reconcile = part.share(controller, own)
        for _ in range(MAILBOX_WORKERS if controller.name == Projection.name else WORKERS):
            self._life.run_in_background(work(controller.name, controller.queue, reconcile, observer))

    def _check(self) -> str | None:
        if failure := self._failure():
            return failure
        begun = (each.name for part in self._parts if part.begun.is_set() for each in part.controllers)
        waiting = sorted({*begun} - self._synced)
        return f"waiting for the objects of {', '.join(waiting)}" if waiting else None

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
