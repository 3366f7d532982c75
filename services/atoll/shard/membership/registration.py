"""The Shard object of this shard in `root`: registration at start, then a heartbeat with the shard's load.

The root shard writes its own object through the loopback, any other through the root shard's API with the operator's
kubeconfig; `machinery.kcp.sharding.shards` computes the object. Failed writes are retried with backoff, and nothing
else in the shard waits for them. Invariant: a Shard object of another store is never changed.
"""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path
from typing import Protocol

import msgspec
import structlog

from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.client.client import Client
from atoll.machinery.kcp.sharding import shards
from atoll.machinery.kcp.sharding.shards import Load, OtherStore, Registration
from atoll.machinery.meta.names import (
    ROOT,
    SYSTEM_ADMIN,
    SYSTEM_BOUND_CRDS,
    SYSTEM_CRDS,
    SYSTEM_SHARD,
    ObjectKey,
    ResourceType,
)
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import ApiError, Conflict, NotFound
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.meta.wellknown import SINGLETON
from atoll.machinery.process.backoff import Backoff
from atoll.machinery.process.retry import retry_on_conflict
from atoll.machinery.storage.contract import Store
from atoll.machinery.storage.environment.filesystem import free_bytes
from atoll.machinery.stream.event_keys import EventKeys
from atoll.machinery.wire.pending_response import ClientError
from atoll.shard.membership.root_shard import SHARDS

log = structlog.get_logger()

#: Interval of heartbeats, and of the look at the load: a large change triggers a heartbeat early.
HEARTBEAT_S, LOOK_EVERY_S = 10.0, 2.0
BACKOFF = Backoff(0.2, 30.0, least=0.75)
_EXPECTED = (ApiError, ClientError, TimeoutError, OtherStore)
_SYSTEM = (SYSTEM_CRDS, SYSTEM_BOUND_CRDS, SYSTEM_ADMIN, SYSTEM_SHARD)


class Registry(Protocol):
    """Access to Shard objects. All methods raise ApiError; the client's also ClientError and TimeoutError."""

    async def get(self, name: str) -> Object | None: ...

    async def create(self, obj: Object) -> Object: ...

    async def update(self, obj: Object, subresource: str = "") -> Object: ...

    async def close(self) -> None: ...


class LoopbackRegistry:
    """The registry on the root shard itself."""

    def __init__(self, loopback: Loopback, type: ResourceType) -> None:
        self._loopback, self._type = loopback, type

    async def get(self, name: str) -> Object | None:
        return self._loopback.get(self._type, ROOT, "", name)

    async def create(self, obj: Object) -> Object:
        return await self._loopback.create(self._target(obj), obj)

    async def update(self, obj: Object, subresource: str = "") -> Object:
        return await self._loopback.update(self._target(obj, subresource), obj)

    async def close(self) -> None:
        """Do nothing: there are no connections."""

    def _target(self, obj: Object, subresource: str = "") -> Target:
        with self._loopback.store.snapshot() as snapshot:
            kind = self._loopback.core.catalogs.of(snapshot, ROOT).of_type(self._type)
        if kind is None:
            raise NotFound("root does not serve Shards")
        return Target(kind, ROOT, "", obj["metadata"]["name"], subresource)


class ClientRegistry:
    """The registry on any other shard. `client` is bound to the cluster `root` of the root shard."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def get(self, name: str) -> Object | None:
        try:
            return await self._client.get(SHARDS, name)
        except NotFound:
            return None

    async def create(self, obj: Object) -> Object:
        return await self._client.create(SHARDS, obj)

    async def update(self, obj: Object, subresource: str = "") -> Object:
        return await self._client.update(SHARDS, obj, subresource)

    async def close(self) -> None:
        await self._client.close()


class Registrar:
    """Registers one Shard object and sends its heartbeats."""

    def __init__(
        self, store: Store, registry: Registry, registration: Registration, directory: Path, keys: EventKeys | None
    ) -> None:
        self._store, self._registry, self._registration, self._directory = store, registry, registration, directory
        self._keys = keys
        self._sent = Load()
        #: Why the name belongs to another store; empty otherwise.
        self._rejection = ""

    async def run(self) -> None:
        """Register and send heartbeats until cancelled."""
        try:
            await self._send_heartbeats()
        finally:
            await self._registry.close()

    async def _send_heartbeats(self) -> None:
        failures = 0
        while True:
            try:
                await self._heartbeat()
            except Exception as error:
                # No failure to write the object ends the shard.
                delay_s = BACKOFF.delay_s(failures)
                failures += 1
                self._log_failure(error, delay_s)
                await asyncio.sleep(delay_s)
                continue
            if failures:
                log.info("shard heartbeat recovered", shard=self._registration.name)
            failures, self._rejection = 0, ""
            await self._wait_until_due()

    async def register(self) -> Object:
        """Create or update the Shard object and return it. Raises the registry's errors, OtherStore."""
        return await retry_on_conflict(self._register, Conflict)

    async def _register(self) -> Object:
        announced = self._keys.announced if self._keys is not None else ()
        said = msgspec.structs.replace(self._registration, event_keys=announced)
        stored = await self._registry.get(said.name)
        if stored is None:
            return await self._registry.create(shards.new_shard(said))
        wanted = shards.registered(stored, said)
        return stored if wanted is None else await self._registry.update(wanted)

    async def _heartbeat(self) -> None:
        load = self.load()

        async def write() -> None:
            stored = await self._register()
            await self._registry.update({**stored, "status": shards.heartbeat_status(stored, load)}, "status")

        await retry_on_conflict(write, Conflict)
        self._sent = load

    async def _wait_until_due(self) -> None:
        """Return when the next heartbeat is due, or after a large change of the load."""
        due_s = time.monotonic() + HEARTBEAT_S * random.uniform(0.9, 1.0)
        while (left_s := due_s - time.monotonic()) > 0:
            await asyncio.sleep(min(left_s, LOOK_EVERY_S))
            if shards.is_news(self._sent, self.load()):
                return

    def load(self) -> Load:
        """Return the current load from the counters of the store."""
        with self._store.snapshot() as snapshot:
            rows = snapshot.usage("")
            systems = sum(
                bool(snapshot.revision_of(ObjectKey(LOGICAL_CLUSTERS, cluster, "", SINGLETON))) for cluster in _SYSTEM
            )
        clusters = sum(row.count for row in rows if row.type == LOGICAL_CLUSTERS)
        used_bytes = sum(row.size_bytes for row in rows)
        return Load(
            clusters - systems,
            sum(row.count for row in rows),
            used_bytes,
            used_bytes + free_bytes(self._directory),
            time.time(),
        )

    def _log_failure(self, error: Exception, again_s: float) -> None:
        self._rejection = str(error) if isinstance(error, OtherStore) else ""
        reason = str(error) or type(error).__name__
        trace = None if isinstance(error, _EXPECTED) else error
        log.warning(
            "shard heartbeat failed",
            shard=self._registration.name,
            reason=reason,
            again_s=round(again_s, 1),
            exc_info=trace,
        )

    def check(self) -> str | None:
        """Health check: fails if the shard's name belongs to another store, not if the root shard is unreachable."""
        return self._rejection or None
