"""Garbage collection of bound CRDs without bindings, above a minimal age.

Watches: deletions of APIBindings and changes of APIExports, also on other shards (a last user may be deleted), bound
CRDs. Writes: first a mark on the bound CRD, then its deletion. A new binding removes the mark in its own transaction,
and both writes are conditional on the revision, so that no bound CRD in use is deleted. Converges because the users are
searched each time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Iterable

import msgspec

from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.call.options import DeleteOptions
from atoll.machinery.apiserver.federation.federated_view import federated
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.control.manager import ReplicaController
from atoll.machinery.kcp.apis import bound_crds
from atoll.machinery.meta import hashes, rawscan, times
from atoll.machinery.meta.names import SYSTEM_BOUND_CRDS, ObjectKey, ResourceType
from atoll.machinery.meta.objects import decode
from atoll.machinery.meta.status import Conflict, NotFound
from atoll.machinery.meta.types import API_BINDINGS, API_EXPORTS, CRDS
from atoll.machinery.storage.contract import LogEntry, Operation, Record, Scope
from atoll.machinery.storage.pages import each_revision, pages
from atoll.tenancy.bound_definitions import BoundCrd, BoundCrds, target_of

#: kcp's: a younger one may belong to a binding that is being created.
MIN_AGE_S = 30 * 60.0
#: Bindings read before yielding to the event loop.
LOOKED_AT_ONCE = 20
_SCOPE = Scope(CRDS, SYSTEM_BOUND_CRDS)


class CrdKey(msgspec.Struct, frozen=True, tag=True):
    """One bound CRD, by the uid of its schema."""

    uid: str


class ClusterKey(msgspec.Struct, frozen=True, tag=True):
    """The bound CRDs of a cluster's schemas."""

    cluster: str


class BoundCrdCollector(ReplicaController):
    """Key: a bound CRD, or all of one cluster. `clock` returns Unix time in seconds."""

    name = "boundcrds"
    workers = 1
    #: Not urgent, and thousands of bindings may be deleted at once.
    batch_delay_s = 0.5

    def __init__(self, loopback: Loopback, clock: Callable[[], float] = time.time) -> None:
        self._loopback, self._clock = loopback, clock
        self._bound = BoundCrds()

    def watches(self, type: ResourceType) -> bool:
        return type in {API_BINDINGS, API_EXPORTS, CRDS}

    def watches_replicas(self, type: ResourceType) -> bool:
        return type == API_EXPORTS

    def keys_of_replica(self, entry: LogEntry) -> Iterable[Hashable]:
        if entry.operation is not Operation.ADDED:
            yield ClusterKey(entry.key.cluster)

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        key, operation = entry.key, entry.operation
        if key.type == API_BINDINGS:
            if operation is Operation.DELETED:
                yield from (CrdKey(needed.uid) for needed in bound_crds.required_crds(decode(entry.value)))
        elif key.type == API_EXPORTS:
            if operation is not Operation.ADDED:
                yield ClusterKey(key.cluster)
        elif key.cluster == SYSTEM_BOUND_CRDS and operation is Operation.MODIFIED:
            yield CrdKey(key.name)

    def all_keys(self) -> Iterable[Hashable]:
        for key in self._loopback.keys(_SCOPE):
            yield CrdKey(key.name)

    async def reconcile(self, key: CrdKey | ClusterKey) -> float | None:
        if isinstance(key, CrdKey):
            return await self._reconcile_crd(key.uid)
        again = [await self._reconcile_crd(uid) for uid in self._of_cluster(key.cluster)]
        return min((each for each in again if each is not None), default=None)

    def _of_cluster(self, cluster: str) -> list[str]:
        with self._loopback.store.snapshot() as snapshot:
            known = (self._bound.get(snapshot, key.name) for key, _ in each_revision(snapshot, _SCOPE))
            return [crd.uid for crd in known if crd is not None and crd.cluster == cluster]

    async def _reconcile_crd(self, uid: str) -> float | None:
        with self._loopback.store.snapshot() as snapshot:
            crd, revision = self._bound.get(snapshot, uid), snapshot.revision_of(bound_crds.key_of(uid))
            offered = crd is not None and _is_offered(snapshot, crd)
        if crd is None:
            return None
        if await self._is_bound(crd):
            # Bindings leave a withdrawn schema one by one, and the last one enqueues no key.
            return None if offered else MIN_AGE_S
        wait_s = (times.parse_time(crd.created) or 0.0) + MIN_AGE_S - self._clock()
        return wait_s if wait_s > 0 else await self._collect(crd, revision)

    async def _is_bound(self, crd: BoundCrd) -> bool:
        """Return whether any binding of its exports has bound it."""
        for export in crd.exports:
            if await self._binds(hashes.export_hash(crd.cluster, export), rawscan.text(crd.uid)):
                return True
        return False

    async def _binds(self, export: str, uid: bytes) -> bool:
        """Return whether a binding of an export names a schema; usually one of the first does."""

        def read(after: ObjectKey | None) -> list[tuple[ObjectKey, Record | None]]:
            with self._loopback.store.snapshot() as snapshot:
                keys = snapshot.labelled(hashes.EXPORT_LABEL, export, API_BINDINGS, LOOKED_AT_ONCE, after)
                return [(key, snapshot.get(key)) for key in keys]

        for rows in pages(read, lambda row: row[0], LOOKED_AT_ONCE):
            if any(record is not None and uid in record.value for _, record in rows):
                return True
            await asyncio.sleep(0)
        return False

    async def _collect(self, found: BoundCrd, revision: int) -> float | None:
        """Mark a bound CRD; delete it if it was marked already before its bindings were searched."""
        stored = self._loopback.get(CRDS, SYSTEM_BOUND_CRDS, "", found.uid)
        if stored is None or int(stored["metadata"]["resourceVersion"]) != revision:
            return 0.0
        try:
            if found.collected:
                await self._loopback.delete(target_of(found.uid), DeleteOptions(resource_version=str(revision)))
            else:
                await self._loopback.update(target_of(found.uid), bound_crds.with_collection_mark(stored), whole=True)
        except (Conflict, NotFound):
            # A binding has bound it concurrently.
            return 0.0
        return None


def _is_offered(view: View, crd: BoundCrd) -> bool:
    """Return whether one of its exports exists and names its schema."""
    name = rawscan.text(crd.schema)
    view = federated(view)
    found = (view.get(ObjectKey(API_EXPORTS, crd.cluster, "", export)) for export in crd.exports)
    return any(record is not None and name in record.value for record in found)
