"""A shard without doors, in this process: the store, loopback writes without admission, and controllers that a test
drives itself, turn by turn.

    async with cell(tmp_path) as here:
        await here.cluster("consumer")
        await here.put(SCHEMAS, "provider", schema)
        await here.settle()                      # every key of the log, until there is none

Keys come from the log as in the manager, in an order that the test may choose; several may be reconciled at a time.
Only code that reads the clock depends on time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Hashable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from atoll.controllers.bindings.apibinding_deletion import BindingDeletion
from atoll.controllers.bindings.apibindings import ApiBindings
from atoll.controllers.bindings.locks import Locks
from atoll.controllers.kubernetes.customresourcedefinitions import CustomResourceDefinitionController
from atoll.machinery.apiserver.admission.chain import Admission, Plugin
from atoll.machinery.apiserver.call.options import DeleteOptions
from atoll.machinery.apiserver.catalog.catalog import Catalog
from atoll.machinery.apiserver.catalog.catalogs import Catalogs
from atoll.machinery.apiserver.conversion import Conversions
from atoll.machinery.apiserver.federation.pathindex import PathIndex
from atoll.machinery.apiserver.writing.commit import WriteService
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.control.manager import Controller, ReplicaController
from atoll.machinery.egress import Egress, policy
from atoll.machinery.kcp.kinds.system_kinds import system_kinds
from atoll.machinery.kcp.manifest import ObjectStamp
from atoll.machinery.kcp.workspaces.logicalcluster import ClusterFacts, logical_cluster
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import hashes, wellknown
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.status import Conflict, NotFound
from atoll.machinery.meta.types import API_BINDINGS, API_EXPORTS, API_RESOURCE_SCHEMAS, CRDS, LOGICAL_CLUSTERS
from atoll.machinery.meta.uids import new_uid
from atoll.machinery.meta.wellknown import BINDING_FINALIZER
from atoll.machinery.process.backoff import Backoff
from atoll.machinery.storage.contract import Delete, LogEntry, StoreError
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from atoll.tenancy.lookups import Lookups, SystemIdentities
from harness.clients.exports import binding, export, schema_of
from harness.data.stores import store_options

NOW = "2026-01-01T00:00:00Z"
#: More turns than any converging test takes.
MAX_TURNS = 2000
_KINDS = system_kinds()


class Cell:
    """One store and its controllers. `random` selects the next keys."""

    def __init__(self, store: LmdbStore, chance: random.Random | None = None) -> None:
        self.store, self._chance = store, chance
        identities = SystemIdentities("t" * 64, "p" * 64, "s" * 64)
        self.facts = Lookups(PathIndex(identities.workspaces), identities)
        self.core = WriteService(store, Catalogs(_KINDS), Admission([]), Conversions(Egress(policy())))
        self.loopback = Loopback(self.core, "test")
        bindings, clusters = self.kind(API_BINDINGS), self.kind(LOGICAL_CLUSTERS)
        self.controllers: list[Controller] = [
            ApiBindings(self.loopback, self.facts, bindings, clusters),
            BindingDeletion(self.loopback, self.facts, bindings, clusters),
            Locks(self.loopback, clusters),
            CustomResourceDefinitionController(self.loopback, self.kind(CRDS), clusters),
        ]
        self.position = 0
        self._waiting: dict[tuple[int, Hashable], None] = {}
        #: Keys with a requeue delay of a second or more.
        self._later: dict[tuple[int, Hashable], None] = {}

    def admit(self, *plugins: Plugin) -> None:
        """Enable admission; there is none before."""
        self.core = replace(self.core, admission=Admission(plugins))
        self.loopback.core = self.core

    # --- rows ---

    def kind(self, type: ResourceType) -> Kind:
        found = self.core.catalogs.base.of_type(type)
        assert found is not None
        return found

    def get(self, type: ResourceType, cluster: str, name: str) -> Object | None:
        return self.loopback.get(type, cluster, "", name)

    def found(self, type: ResourceType, cluster: str, name: str) -> Object:
        """Return an object that must exist."""
        obj = self.get(type, cluster, name)
        assert obj is not None, (type, cluster, name)
        return obj

    def catalog(self, cluster: str) -> Catalog:
        with self.store.snapshot() as snapshot:
            return self.core.catalogs.of(snapshot, cluster)

    async def put(self, type: ResourceType, cluster: str, obj: Object) -> Object:
        """Create an object, with its status."""
        target = Target(self.kind(type), cluster, "", obj["metadata"]["name"])
        return await self.loopback.create(target, obj, whole=True)

    async def change(self, type: ResourceType, cluster: str, name: str, **fields: Any) -> None:
        """Replace top-level fields."""
        obj = {**self.found(type, cluster, name), **fields}
        await self.loopback.update(Target(self.kind(type), cluster, "", name), obj, whole=True)

    async def delete(self, type: ResourceType, cluster: str, name: str) -> None:
        await self.loopback.delete(Target(self.kind(type), cluster, "", name), DeleteOptions())

    async def delete_row(self, type: ResourceType, cluster: str, name: str) -> None:
        """Delete a row at once, despite finalizers."""
        with self.store.snapshot() as snapshot:
            key = ObjectKey(type, cluster, "", name)
            revision = snapshot.revision_of(key)
        await self.store.submit([Delete(key, revision)])

    async def cluster(self, name: str) -> None:
        """A logical cluster, Ready."""
        stamp = ObjectStamp(name, name, NOW, lambda _: new_uid())
        await self.put(LOGICAL_CLUSTERS, name, logical_cluster(stamp, ClusterFacts("here", "https://here")).object)

    async def export(self, cluster: str, name: str, *definitions: Object, prefix: str = "today") -> Object:
        """Schemas of CustomResourceDefinitions, and an export of them whose identity follows from its name."""
        made = [schema_of(each, prefix) for each in definitions]
        for each in made:
            if self.get(API_RESOURCE_SCHEMAS, cluster, each["metadata"]["name"]) is None:
                await self.put(API_RESOURCE_SCHEMAS, cluster, each)
        status = {"identityHash": hashes.identity_hash(name.encode())}
        return await self.put(API_EXPORTS, cluster, {**export(name, *made), "status": status})

    async def bind(
        self, cluster: str, path: str, name: str, called: str = "", annotations: Object | None = None
    ) -> None:
        """An APIBinding as admission leaves it."""
        obj = binding(path, name, called=called)
        labels = {hashes.EXPORT_LABEL: hashes.export_hash(path, name)}
        obj["metadata"] |= {"finalizers": [BINDING_FINALIZER], "labels": labels, "annotations": annotations or {}}
        await self.put(API_BINDINGS, cluster, obj)

    # --- turns ---

    def take_log(self) -> None:
        """Queue the keys of new log entries at the controllers."""
        while entries := self.store.tail(self.position, 500):
            for entry in entries:
                self.position = entry.revision
                for number, controller in enumerate(self.controllers):
                    if controller.watches(entry.key.type):
                        self._waiting.update(((number, key), None) for key in controller.keys(entry))

    def deliver_replica(self, entry: LogEntry) -> None:
        """Queue the keys of delivered replicas at the controllers."""
        for number, controller in enumerate(self.controllers):
            if isinstance(controller, ReplicaController) and controller.watches_replicas(entry.key.type):
                self._waiting.update(((number, key), None) for key in controller.keys_of_replica(entry))

    async def turn(self, at_once: int = 1) -> bool:
        """Reconcile some keys together; return whether there were any. A key with a conflict is queued again."""
        self.take_log()
        keys = list(self._waiting)
        if self._chance is not None:
            self._chance.shuffle(keys)
        taken = keys[:at_once]
        for each in taken:
            del self._waiting[each]
        again = await asyncio.gather(*(self._reconcile(*each) for each in taken))
        self._waiting.update((each, None) for each, more in zip(taken, again, strict=True) if more)
        return bool(taken)

    async def settle(self, at_once: int = 1) -> None:
        """Run turns until all controllers are idle."""
        for _ in range(MAX_TURNS):
            if not await self.turn(at_once):
                return
        raise AssertionError(f"never settles: {self._waiting}")

    async def _reconcile(self, number: int, key: Hashable) -> bool:
        """Whether the key is queued again now; long delays and waits for foreign finalizers do not count."""
        try:
            again_s = await self.controllers[number].reconcile(key)
        except (StoreError, Conflict, NotFound):
            return True
        if isinstance(again_s, Backoff):
            again_s = again_s.first_s
        if again_s is not None and again_s >= 1:
            self._later[number, key] = None
        return again_s is not None and again_s < 1

    def restart(self, *controllers: Controller, from_state: bool) -> None:
        """Continue with new controllers, from the log with the unfinished keys, or with all keys of the state."""
        self.controllers = list(controllers)
        if from_state:
            with self.store.snapshot() as snapshot:
                self.position = snapshot.revision
            listed = [(at, key) for at, each in enumerate(controllers) for key in each.all_keys() if key is not None]
            self._waiting = dict.fromkeys(listed)
        else:
            self._waiting |= self._later
        self._later = {}


@asynccontextmanager
async def cell(directory: Path, chance: random.Random | None = None) -> AsyncIterator[Cell]:
    """A cell over a fresh store, closed at the end."""
    store = open_store(store_options(directory))
    try:
        yield Cell(store, chance)
    finally:
        await store.close()


def locks_of(cluster: Object) -> Object:
    """The lock annotation of a LogicalCluster."""
    found: Object = decode(cluster["metadata"]["annotations"][wellknown.LOCKS].encode())
    return found


def bound(obj: Object) -> Sequence[str]:
    """Resources that a binding has bound."""
    return [each["resource"] for each in (obj.get("status") or {}).get("boundResources") or ()]
