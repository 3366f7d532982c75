"""ClusterCachedResourceEndpointSlices: whether what they refer to is there, and this shard's URL in them.

Watches: slices, ClusterCachedResources, APIExports, APIBindings, Partitions and the object of this shard. Writes: in
the status of slices of this shard conditions and which shards are meant, and by server-side apply, as the field manager
of the shard's name, its own URL while somebody on the shard binds the export. Converges because both follow from what
is there.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from atoll.controllers.exports.endpointslices import exporting_cluster
from atoll.controllers.facts import Facts
from atoll.machinery.apiserver.call import View
from atoll.machinery.apiserver.loopback import Loopback, Target
from atoll.machinery.kcp import cachedresources, endpointslices
from atoll.machinery.kcp.apiexports import BoundExport, bound_export
from atoll.machinery.kcp.cachedresources import There
from atoll.machinery.kcp.shapes import CLUSTER, PATH
from atoll.machinery.meta import hashes, times
from atoll.machinery.meta.names import ROOT, ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.status import Conflict, NotFound
from atoll.machinery.meta.types import (
    API_BINDINGS,
    API_EXPORTS,
    CACHED_RESOURCE_ENDPOINT_SLICES,
    CACHED_RESOURCES,
)
from atoll.machinery.storage.contract import LogEntry, Operation, Scope


class CachedEndpoints:
    """Key: (cluster, slice name)."""

    name = "clustercachedresourceendpointslice"
    workers = 2

    def __init__(self, loopback: Loopback, facts: Facts, shard: str) -> None:
        kind = loopback.core.catalogs.builtin(CACHED_RESOURCE_ENDPOINT_SLICES)
        self._loopback, self._facts, self._kind, self._shard = loopback, facts, kind, shard
        self._partitions, self._shards = facts.identities.partitions, facts.identities.shard_objects

    # --- what to look at ---

    def watches(self, type: ResourceType) -> bool:
        related = (CACHED_RESOURCES, API_EXPORTS, API_BINDINGS, self._partitions, self._shards)
        return type in {CACHED_RESOURCE_ENDPOINT_SLICES, *related}

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        key = entry.key
        if key.type == CACHED_RESOURCE_ENDPOINT_SLICES:
            if entry.operation is not Operation.DELETED:
                yield key.cluster, key.name
            return
        with self._loopback.store.snapshot() as snapshot:
            if not snapshot.last(CACHED_RESOURCE_ENDPOINT_SLICES, ""):
                return
        if key.type == API_BINDINGS:
            yield from self._of_export(bound_export(entry.value, key.cluster))
        elif key.type == self._shards:
            yield from self.all_keys()
        else:
            yield from self._naming(key)

    def _of_export(self, bound: BoundExport) -> Iterable[Hashable]:
        """Slices of the export that a binding binds, by whatever words they name its workspace."""
        with self._loopback.store.snapshot() as snapshot:
            home = self._facts.cluster_of(snapshot, bound.path)
            record = snapshot.get(ObjectKey(API_EXPORTS, home, "", bound.name)) if home else None
            if home is None or record is None:
                return
            own = (decode(record.value)["metadata"].get("annotations") or {}).get(PATH, "")
            for words in {home, own} - {""}:
                label = hashes.export_hash(words, bound.name)
                found = snapshot.labelled(endpointslices.EXPORT_LABEL, label, CACHED_RESOURCE_ENDPOINT_SLICES)
                yield from ((key.cluster, key.name) for key in found)

    def _naming(self, key: ObjectKey) -> Iterable[Hashable]:
        """Slices that name an object of this name, wherever their paths lead: few have the name and are not meant."""
        for cluster, obj in self._each():
            names = {
                CACHED_RESOURCES: cachedresources.cached_of(obj).name,
                API_EXPORTS: endpointslices.reference_of(obj).name,
                self._partitions: endpointslices.partition_of(obj),
            }
            if names[key.type] == key.name:
                yield cluster, obj["metadata"]["name"]

    def _each(self) -> Iterable[tuple[str, Object]]:
        for obj in self._loopback.each(Scope(CACHED_RESOURCE_ENDPOINT_SLICES)):
            yield obj["metadata"]["annotations"][CLUSTER], obj

    def all_keys(self) -> Iterable[Hashable]:
        for key in self._loopback.keys(Scope(CACHED_RESOURCE_ENDPOINT_SLICES)):
            yield key.cluster, key.name

    # --- what to do ---

    async def reconcile(self, key: tuple[str, str]) -> float | None:
        cluster, name = key
        with self._loopback.store.snapshot() as snapshot:
            record = snapshot.get(ObjectKey(CACHED_RESOURCE_ENDPOINT_SLICES, cluster, "", name))
            if record is None:
                return None
            obj = decode(record.value)
            status = cachedresources.judged(obj, self._there(snapshot, cluster, obj), times.now())
            urls = self._urls(snapshot, cluster, {**obj, "status": status})
        target = Target(self._kind, cluster, "", name, "status")
        try:
            if status != obj.get("status"):
                await self._loopback.update(target, {**obj, "status": status})
            elif urls != endpointslices.owned_urls(obj, self._shard):
                await self._loopback.apply(target, cachedresources.applied(name, urls), self._shard)
        except (Conflict, NotFound):
            # Its newer state has an entry in the log, which brings this key back.
            return None
        return None

    def _there(self, view: View, cluster: str, obj: Object) -> There:
        reference = cachedresources.cached_of(obj)
        home = self._facts.cluster_of(view, reference.path)
        is_cached = home is not None and view.revision_of(ObjectKey(CACHED_RESOURCES, home, "", reference.name)) > 0
        found = view.get(ObjectKey(self._partitions, cluster, "", endpointslices.partition_of(obj)))
        partition = decode(found.value) if found is not None else None
        return There(home, exporting_cluster(view, self._facts, obj), partition, is_cached)

    def _urls(self, view: View, cluster: str, obj: Object) -> list[str]:
        """The endpoints that this shard should have in a slice: one or none."""
        record = view.get(ObjectKey(self._shards, ROOT, "", self._shard))
        shard = decode(record.value) if record is not None else {"metadata": {}}
        base = (shard.get("spec") or {}).get("virtualWorkspaceURL") or ""
        home, labels = exporting_cluster(view, self._facts, obj), shard["metadata"].get("labels") or {}
        if not base or home is None or not cachedresources.is_sound(obj) or not endpointslices.wants(obj, labels):
            return []
        label = hashes.export_hash(home, endpointslices.reference_of(obj).name)
        if not view.labelled(hashes.EXPORT_LABEL, label, API_BINDINGS, 1):
            return []
        return [cachedresources.endpoint_url(base, cluster, obj["metadata"]["name"])]
