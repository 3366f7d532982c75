"""The change stream of a shard: an embedded or external nats-server, and the publisher of committed changes.

`runner` enters it. It starts in the background and reconnects; the API never waits for it. When the shard stops,
committed changes have `DRAIN_S` to reach the stream; the rest is published after the next start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import msgspec
import structlog
from prometheus_client import CollectorRegistry

from atoll.machinery.kcp.sharding.stream_policy import KcpStreamPolicy
from atoll.machinery.process.backoff import Backoff
from atoll.machinery.process.tasks import stop
from atoll.machinery.storage.lmdb_store import LmdbStore
from atoll.machinery.storage.published_log import PublishedLog
from atoll.machinery.stream.connection import Access, TooOld
from atoll.machinery.stream.credential_file import Reach, read_access
from atoll.machinery.stream.definitions import RetentionLimits
from atoll.machinery.stream.event_keys import KEYS_FILE, EventKeys, InvalidKeysFile, load_keys
from atoll.machinery.stream.permissions import Permissions
from atoll.machinery.stream.publisher.publisher import Publisher, PublisherOptions
from atoll.machinery.stream.server.config import TlsFiles
from atoll.machinery.stream.server.embedded import EmbeddedServer, ServerFailed, ServerOptions
from atoll.shard.config import ShardConfig
from atoll.standalone.event_gateway import EmbeddedGateway
from atoll.standalone.site.credentials import reading_user
from atoll.standalone.site.restart_requests import RestartRequests
from atoll.standalone.stream_metrics import StreamMetrics
from atoll.standalone.stream_quota import StreamQuota

log = structlog.get_logger()

DRAIN_S = 3.0
BACKOFF = Backoff(0.1, 30.0, least=1.0)
CREDENTIALS_FILE = "stream.json"
SERVER_DIRECTORY = "nats"


class EmbeddedUsers(NamedTuple):
    """Users of the embedded server beside the shard and the operator: readers, each with a credential file in the root
    directory, and the gateway of subscribers. `tls` for a server outside of loopback."""

    readers: Mapping[str, Permissions]
    gateway: EmbeddedGateway
    tls: TlsFiles | None


class ChangeStream:
    """An async context manager that publishes while it is open. `deposed` is called if another writer took over.

    Raises InvalidCredentialFile, InvalidKeysFile, OSError for credentials and keys that cannot be read.
    """

    def __init__(
        self,
        config: ShardConfig,
        store: LmdbStore,
        registry: CollectorRegistry,
        deposed: Callable[[], None],
        users: EmbeddedUsers | None,
    ) -> None:
        """`users` None: the settings name an external server."""
        self._config, self._store, self._deposed, self._users = config, store, deposed, users
        self._registry = registry
        #: Access to the external server; None for the embedded one, whose access is known once it runs.
        self.access = read_access(config.nats_url, config.nats_credentials_file) if config.nats_url else None
        #: Access to the streams of other shards; None without an external server.
        self.follow_access = _follow_access(config, self.access)
        given = self.access.signing_keys if self.access is not None else ()
        #: The keys that sign this shard's events: of its credential file, or of its root directory.
        self.signing_keys = given or tuple(load_keys(Path(config.root_directory) / KEYS_FILE))
        #: The share of the disk of a server on this disk; another one has its own.
        self._quota = _quota(config, store)
        self._resizing: asyncio.Task[None] | None = None
        self._server: EmbeddedServer | None = None
        self._address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._publisher: Publisher | None = None
        self._task: asyncio.Task[None] | None = None
        self._gateway: asyncio.Task[None] | None = None

    async def __aenter__(self) -> ChangeStream:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._publisher is not None and self._publisher.lag().connected:
            await self._publisher.drain(DRAIN_S)
        for task in (self._task, self._resizing, self._gateway):
            if task is not None:
                await stop(task)
        if self._server is not None:
            await self._server.stop()

    async def _run(self) -> None:
        options = PublisherOptions(bounds=self._bounds())
        access = self.access
        if access is None:
            assert self._users is not None, "given for an embedded server"
            server = await self._embedded(self._users)
            self._address.set_result(server.address)
            self._gateway = asyncio.create_task(self._users.gateway.run(server.address))
            access, options = server.access, msgspec.structs.replace(options, restart_server=server.restart)
        elif self._config.nats_directory:
            sender = RestartRequests(Path(self._config.nats_directory))
            options = msgspec.structs.replace(options, restart_server=sender.send)
        access = msgspec.structs.replace(access, signing_keys=self.signing_keys)
        publisher = Publisher(PublishedLog(self._store), KcpStreamPolicy(), access, lambda _: self._deposed(), options)
        StreamMetrics(publisher, self._registry)
        self._publisher = publisher
        if self._quota is not None:
            self._resizing = asyncio.create_task(self._quota.run(publisher.changes.resize))
        await publisher.run()

    async def address(self) -> str:
        """Return the address of the embedded server, once it runs."""
        return await asyncio.shield(self._address)

    async def own_access(self) -> Access:
        """Return the shard's own access to its streams, once the embedded server runs if it is that."""
        if self.access is not None:
            return self.access
        await self.address()
        assert self._server is not None, "its address is known"
        return self._server.access

    def _bounds(self) -> RetentionLimits:
        max_bytes = self._quota.max_bytes if self._quota is not None else None
        return RetentionLimits(max_bytes=max_bytes, replicas=self._config.stream_replicas or None)

    async def _embedded(self, users: EmbeddedUsers) -> EmbeddedServer:
        """Return the embedded server once it runs; retry with growing delays while it does not start."""
        root, failures = Path(self._config.root_directory), 0
        announced = EventKeys(self.signing_keys).announced
        keys, reach = {self._config.shard_name: announced}, Reach(str(users.tls.ca_file) if users.tls else "")
        readers = [reading_user(root, each, name, keys, reach) for name, each in users.readers.items()]
        options = ServerOptions(
            directory=root / SERVER_DIRECTORY,
            shard=self._config.shard_name,
            host=self._config.events_bind_address,
            port=self._config.events_port,
            credentials_file=root / CREDENTIALS_FILE,
            event_keys=announced,
            users=(users.gateway.user, *readers),
            tenants=users.gateway.tenants,
            tls=users.tls,
        )
        while True:
            try:
                self._server = EmbeddedServer(options)
                await self._server.start()
                return self._server
            except (ServerFailed, TooOld, OSError) as error:
                delay_s = BACKOFF.delay_s(failures)
                log.error("nats server did not start", error=str(error), again_s=delay_s)
            await asyncio.sleep(delay_s)
            failures += 1


def _follow_access(config: ShardConfig, publishing: Access | None) -> Access | None:
    """Access to the server with the streams of other shards: the one that is published to, unless another is named."""
    if not config.follow_nats_url or publishing is None:
        return publishing
    file = config.follow_nats_credentials_file or config.nats_credentials_file
    access = read_access(config.follow_nats_url, file)
    if access.event_keys is None:
        access = msgspec.structs.replace(access, event_keys=publishing.event_keys)
    return access


def _quota(config: ShardConfig, store: LmdbStore) -> StreamQuota | None:
    """The quota of the embedded server, or of an external one on this machine; None for one elsewhere."""
    if config.nats_url and not config.nats_directory:
        return None
    return StreamQuota(Path(config.nats_directory or Path(config.root_directory) / SERVER_DIRECTORY), store)


def require_keys(config: ShardConfig) -> None:
    """Raise InvalidKeysFile if the keys of events are missing that the credential file for consumers names."""
    path, credential = (Path(config.root_directory) / name for name in (KEYS_FILE, CREDENTIALS_FILE))
    if not config.nats_url and credential.exists() and not path.exists():
        raise InvalidKeysFile(
            f"{path} is missing: consumers with a copy of {credential} drop what another key signs; restore it, or"
            f" delete {credential} too and give consumers the new one"
        )
