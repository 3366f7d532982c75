"""ClusterCachedResources: identity, phase, conditions, and object counts.

Watches: ClusterCachedResources, their identity Secrets, CRDs and APIBindings, and every cluster-scoped object. Writes:
the identity Secret where none is referenced, the finalizer, status. The stored objects are served directly; copies for
other shards are those of `cached_copies`. Converges because status is computed from current objects; counts
alone are written at most once a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable

from atoll.controllers.exports.identity_secrets import builtin_target, with_identity
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.call.gate import NOTHING_NEW
from atoll.machinery.apiserver.catalog.catalogs import Catalogs
from atoll.machinery.apiserver.writing.batch import Batch
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.control.manager import Controller
from atoll.machinery.control.queue import Requeue
from atoll.machinery.kcp.apis import apiexports, cachedresources
from atoll.machinery.kcp.apis.apiexports import SecretReference
from atoll.machinery.kcp.apis.cachedresources import ResourceCount
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import partial, times
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode, finalizers_of, status_of
from atoll.machinery.meta.sizes import size_bytes
from atoll.machinery.meta.types import API_BINDINGS, CACHED_RESOURCES, CRDS, SECRETS
from atoll.machinery.process.backoff import Backoff
from atoll.machinery.process.time_slicing import run_sliced
from atoll.machinery.storage.contract import GateUnchanged, LogEntry, Operation, RevisionUnchanged, Scope, Snapshot
from atoll.machinery.storage.pages import each_record

#: Bytes of each cache.
MAX_BYTES = 4 << 20
#: ClusterCachedResources whose last count is remembered.
MAX_COUNTED = 1024
#: Delay of the retry after a conflicting creation.
CONFLICT = Backoff(0.01, 10.0)
#: Minimal seconds between two writes that change counts only.
COUNTS_EVERY_S = 1.0
COUNT_TIMEOUT_S = 30.0


class CachedResources(Controller):
    """Key: (cluster, ClusterCachedResource name)."""

    name = "clustercachedresource"
    workers = 2

    def __init__(self, loopback: Loopback) -> None:
        self._loopback = loopback
        self._offers: LruCache[str, tuple[int, tuple[Object, ...]]] = LruCache(MAX_BYTES, size_bytes)
        self._counted: LruCache[tuple[str, str], float] = LruCache(MAX_COUNTED)
        #: Whether any cluster had one; None: not read yet. Of a first one the entry comes before those that it counts.
        self._is_used: bool | None = None

    # --- keys ---

    def watches(self, type: ResourceType) -> bool:
        return True

    def ends_with_cluster(self, type: ResourceType) -> bool:
        return True

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        key = entry.key
        if key.type == CACHED_RESOURCES:
            self._is_used = True
            if entry.operation is not Operation.DELETED:
                yield key.cluster, key.name
        elif (not key.namespace or key.type == SECRETS) and self._is_used is not False and self._look_for_use():
            for offer in self._of(key.cluster):
                if _concerns(offer, key):
                    yield key.cluster, offer["metadata"]["name"]

    def _look_for_use(self) -> bool:
        if self._is_used is None:
            with self._loopback.store.snapshot() as snapshot:
                self._is_used = snapshot.last(CACHED_RESOURCES, "") > 0
        return self._is_used

    def _of(self, cluster: str) -> tuple[Object, ...]:
        """Return the ClusterCachedResources of a workspace."""
        with self._loopback.store.snapshot() as snapshot:
            stamp = snapshot.last(CACHED_RESOURCES, cluster)
        if not stamp:
            return ()
        found = self._offers.get(cluster)
        if found is None or found[0] != stamp:
            found = stamp, tuple(self._loopback.each(Scope(CACHED_RESOURCES, cluster)))
            self._offers.put(cluster, found)
        return found[1]

    def all_keys(self) -> Iterable[Hashable]:
        # Entries may have been passed over.
        self._is_used = None
        for key in self._loopback.keys(Scope(CACHED_RESOURCES)):
            yield key.cluster, key.name

    # --- reconcile ---

    async def reconcile(self, key: tuple[str, str]) -> Requeue:
        cluster, name = key
        batch = self._loopback.batch()
        record = batch.get(ObjectKey(CACHED_RESOURCES, cluster, "", name))
        if record is None:
            return None
        obj, gate = decode(record.value), batch.gate(cluster)
        if gate.state in NOTHING_NEW and not obj["metadata"].get("deletionTimestamp"):
            # A terminating workspace rejects new objects; this object is deleted with it.
            return None
        wanted = self._desired(batch, cluster, obj, await self._count(cluster, obj))
        if wanted == obj:
            return None
        wait_s = self._wait_s(key, obj, wanted)
        if wait_s:
            return wait_s
        batch.guard(RevisionUnchanged(record.key, record.revision), GateUnchanged(cluster, gate.generation))
        batch.update(builtin_target(self._loopback, CACHED_RESOURCES, cluster, name), wanted, whole=True)
        # Only a concurrent write of the object itself would enqueue the key again.
        return None if await batch.try_submit() else CONFLICT

    def _wait_s(self, key: tuple[str, str], obj: Object, wanted: Object) -> float:
        """Return seconds until a change of counts alone may be written; 0: now."""
        now_s = time.monotonic()
        if _without_counts(obj) == _without_counts(wanted):
            since_s = now_s - (self._counted.get(key) or -COUNTS_EVERY_S)
            if since_s < COUNTS_EVERY_S:
                return COUNTS_EVERY_S - since_s
        self._counted.put(key, now_s)
        return 0.0

    def _desired(self, batch: Batch, cluster: str, obj: Object, count: ResourceCount | None) -> Object:
        """Return the desired object. Adds the objects that it needs to the batch."""
        metadata = obj["metadata"]
        finalizers = finalizers_of(obj)
        if metadata.get("deletionTimestamp"):
            left = [each for each in finalizers if each != cachedresources.FINALIZER]
            status = {**status_of(obj), "phase": cachedresources.DELETING}
            return {**obj, "metadata": {**metadata, "finalizers": left}, "status": status}
        if cachedresources.FINALIZER not in finalizers:
            obj = {**obj, "metadata": {**metadata, "finalizers": [*finalizers, cachedresources.FINALIZER]}}
        obj = with_identity(self._loopback, batch, cluster, obj)
        return {**obj, "status": cachedresources.desired_status(obj, count, times.now())}

    # --- cached objects ---

    async def _count(self, cluster: str, obj: Object) -> ResourceCount | None:
        """Count the selected objects, in slices. Raises TimeoutError after COUNT_TIMEOUT_S."""

        def count(pause: Callable[[], None]) -> ResourceCount | None:
            with self._loopback.store.snapshot() as snapshot:
                return self._counted_in(snapshot, cluster, obj, pause)

        return await run_sliced(count, COUNT_TIMEOUT_S)

    def _counted_in(
        self, snapshot: Snapshot, cluster: str, obj: Object, pause: Callable[[], None]
    ) -> ResourceCount | None:
        kind = kind_of(self._loopback.core.catalogs, snapshot, cluster, obj)
        if kind is None or kind.virtual is not None:
            return None
        if kind.namespaced:
            return ResourceCount(True, 0)
        selector = cachedresources.selector_of(obj)
        if selector.matches_everything:
            return ResourceCount(
                False, next((row.count for row in snapshot.usage(cluster) if row.type == kind.type), 0)
            )
        count = 0
        for record in each_record(snapshot, Scope(kind.type, cluster)):
            pause()
            count += selector.matches(partial.labels(record.value))
        return ResourceCount(False, count)


def kind_of(catalogs: Catalogs, view: View, cluster: str, obj: Object) -> Kind | None:
    """Return the kind that a ClusterCachedResource names; None if its workspace does not serve it."""
    group, version, plural = cachedresources.resource_of(obj)
    alike = (kind for kind in catalogs.of(view, cluster).kinds.values() if (kind.group, kind.plural) == (group, plural))
    return next((kind for kind in alike if version in {"", kind.version}), None)


def _concerns(offer: Object, key: ObjectKey) -> bool:
    """Return whether a change of another object may change the status of a ClusterCachedResource."""
    if key.type == SECRETS:
        reference = apiexports.secret_reference(offer) or apiexports.generated_reference(offer)
        return reference == SecretReference(key.namespace, key.name)
    resource = cachedresources.resource_of(offer)
    return key.type in {CRDS, API_BINDINGS} or (key.type.group, key.type.resource) == (resource.group, resource.plural)


def _without_counts(obj: Object) -> Object:
    status = {name: value for name, value in status_of(obj).items() if name != "resourceCounts"}
    return {**obj, "status": status}
