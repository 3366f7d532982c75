"""A shard's own object in `root`: registered at start, then a sign of life with what the shard holds.

The root shard writes its own through the loopback, any other through the root shard's API with the operator's
kubeconfig; what is written is `machinery.kcp.shards`' affair. Nobody asks a shard for it, and nothing of the shard
waits for it: while the root shard is away it is tried again, later each time, and others go by what they heard last.
Invariant: a Shard object of another store is never touched.
"""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path
from typing import Protocol

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
from atoll.machinery.storage.contract import Store
from atoll.machinery.storage.environment.filesystem import free_bytes
from atoll.machinery.wire.pending_response import ClientError
from atoll.shard.membership.root_shard import SHARDS

log = structlog.get_logger()

#: A sign of life comes so often; sooner where the load changed much, which is looked at so often.
HEARTBEAT_S, LOOK_EVERY_S = 10.0, 2.0
BASE_DELAY_S, MAX_DELAY_S = 0.2, 30.0
_EXPECTED = (ApiError, ClientError, TimeoutError, OtherStore)
_SYSTEM = (SYSTEM_CRDS, SYSTEM_BOUND_CRDS, SYSTEM_ADMIN, SYSTEM_SHARD)
#: How often a write is planned anew because somebody else wrote the object meanwhile.
_CONFLICTS = 5


class Registry(Protocol):
    """Where Shard objects are. All raise ApiError; the client's also ClientError and TimeoutError."""

    async def get(self, name: str) -> Object | None: ...

    async def create(self, obj: Object) -> Object: ...

    async def update(self, obj: Object, subresource: str = "") -> Object: ...

    async def close(self) -> None: ...


class OwnRegistry:
    """On the root shard itself."""

    def __init__(self, loopback: Loopback, type: ResourceType) -> None:
        self._loopback, self._type = loopback, type

    async def get(self, name: str) -> Object | None:
        return self._loopback.get(self._type, ROOT, "", name)

    async def create(self, obj: Object) -> Object:
        return await self._loopback.create(self._target(obj), obj)

    async def update(self, obj: Object, subresource: str = "") -> Object:
        return await self._loopback.update(self._target(obj, subresource), obj)

    async def close(self) -> None:
        """Nothing is held."""

    def _target(self, obj: Object, subresource: str = "") -> Target:
        with self._loopback.store.snapshot() as snapshot:
            kind = self._loopback.core.catalogs.of(snapshot, ROOT).of_type(self._type)
        if kind is None:
            raise NotFound("root does not serve Shards")
        return Target(kind, ROOT, "", obj["metadata"]["name"], subresource)


class RootsRegistry:
    """On another shard. `client` looks at `root`."""

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
    """Keeps one Shard object true. `refused` says why it may not, and is empty otherwise."""

    def __init__(self, store: Store, registry: Registry, said: Registration, directory: Path) -> None:
        self._store, self._registry, self._said, self._directory = store, registry, said, directory
        self._sent = Load()
        self.refused = ""

    async def run(self) -> None:
        """Register and give signs of life until cancelled."""
        try:
            await self._keep()
        finally:
            await self._registry.close()

    async def _keep(self) -> None:
        delay_s = 0.0
        while True:
            try:
                await self._beat()
            except Exception as error:
                # Whatever keeps the object from being written: no shard ends for it.
                delay_s = min(max(delay_s * 2, BASE_DELAY_S), MAX_DELAY_S)
                self._failed(error, delay_s)
                await asyncio.sleep(delay_s * random.uniform(0.75, 1.0))
                continue
            if delay_s:
                log.info("shard object written again", shard=self._said.name)
            delay_s, self.refused = 0.0, ""
            await self._until_due()

    async def register(self) -> Object:
        """Make the Shard object say what the shard says; gives it as it is then. Raises as the registry, OtherStore."""
        for _ in range(_CONFLICTS):
            stored = await self._registry.get(self._said.name)
            if stored is None:
                return await self._registry.create(shards.new_shard(self._said))
            wanted = shards.registered(stored, self._said)
            if wanted is None:
                return stored
            try:
                return await self._registry.update(wanted)
            except Conflict:
                continue
        raise Conflict(f"Shard {self._said.name} changes all the time")

    async def _beat(self) -> None:
        load = self.load()
        for _ in range(_CONFLICTS):
            stored = await self.register()
            try:
                await self._registry.update({**stored, "status": shards.status_of(stored, load)}, "status")
            except Conflict:
                continue
            self._sent = load
            return
        raise Conflict(f"the status of Shard {self._said.name} changes all the time")

    async def _until_due(self) -> None:
        """Return when the next sign of life is due, or when the load changed much."""
        due_s = time.monotonic() + HEARTBEAT_S * random.uniform(0.9, 1.0)
        while (left_s := due_s - time.monotonic()) > 0:
            await asyncio.sleep(min(left_s, LOOK_EVERY_S))
            if shards.is_news(self._sent, self.load()):
                return

    def load(self) -> Load:
        """What the counters of the store say now."""
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

    def _failed(self, error: Exception, again_s: float) -> None:
        self.refused = str(error) if isinstance(error, OtherStore) else ""
        reason = str(error) or type(error).__name__
        trace = None if isinstance(error, _EXPECTED) else error
        log.warning(
            "shard object not written", shard=self._said.name, reason=reason, again_s=round(again_s, 1), exc_info=trace
        )

    def check(self) -> str | None:
        """Health check: what keeps this shard from being one of its site. That the root shard is away does not."""
        return self.refused or None
