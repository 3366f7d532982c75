"""ClusterCachedResourceEndpointSlices: validity of their references, and this shard's URL in them.

Watches: slices, ClusterCachedResources, APIExports and Shards of all shards; APIBindings and Partitions of this shard.
Writes: in local slices, conditions and the shard selector; in slices of all shards, this shard's URL while an
APIBinding of the shard binds the export, by server-side apply with the shard's name as field manager. The slice's own
shard removes the endpoints of removed shards. Converges because status is computed from current objects.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from atoll.controllers.exports.endpointslice_status import Shards, SliceStatus, every_slice
from atoll.controllers.exports.endpointslices import exporting_cluster
from atoll.controllers.shard_calls import ShardCaller
from atoll.controllers.shard_predicate import ShardChangePredicate
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.federation.federated_view import federated
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.control.manager import ReplicaController
from atoll.machinery.kcp.apis import cachedresources, endpointslices
from atoll.machinery.kcp.apis.apiexports import BoundExport, bound_export
from atoll.machinery.kcp.apis.cachedresources import SliceReferences
from atoll.machinery.kcp.sharding.shards import virtual_workspace_url
from atoll.machinery.meta import hashes, times
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, annotations_of, decode, labels_of
from atoll.machinery.meta.status import Conflict, NotFound
from atoll.machinery.meta.types import API_BINDINGS, API_EXPORTS, CACHED_RESOURCE_ENDPOINT_SLICES, CACHED_RESOURCES
from atoll.machinery.meta.wellknown import PATH
from atoll.machinery.storage.contract import LogEntry, Operation
from atoll.tenancy.lookups import Lookups


class CachedEndpoints(ReplicaController):
    """Key: (cluster, slice name)."""

    name = "clustercachedresourceendpointslice"
    workers = 2

    def __init__(self, loopback: Loopback, facts: Lookups, shard: str, calls: ShardCaller | None = None) -> None:
        kind = loopback.core.catalogs.builtin(CACHED_RESOURCE_ENDPOINT_SLICES)
        self._loopback, self._facts, self._kind, self._shard = loopback, facts, kind, shard
        self._status = SliceStatus(loopback, facts, CACHED_RESOURCE_ENDPOINT_SLICES, calls)
        self._partitions, self._shards = facts.identities.partitions, facts.identities.shard_objects
        self._site_shards, self._shard_changes = Shards(facts, shard), ShardChangePredicate()

    # --- keys ---

    def watches(self, type: ResourceType) -> bool:
        return type in {API_BINDINGS, self._partitions} or self.watches_replicas(type)

    def watches_replicas(self, type: ResourceType) -> bool:
        return type in {CACHED_RESOURCE_ENDPOINT_SLICES, CACHED_RESOURCES, API_EXPORTS, self._shards}

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        key = entry.key
        if key.type == CACHED_RESOURCE_ENDPOINT_SLICES:
            if entry.operation is not Operation.DELETED:
                yield key.cluster, key.name
            return
        with self._loopback.store.snapshot() as snapshot:
            if not federated(snapshot).last(CACHED_RESOURCE_ENDPOINT_SLICES, ""):
                return
        if key.type == API_BINDINGS:
            yield from self._of_export(bound_export(entry.value, key.cluster))
        elif key.type == self._shards:
            if self._shard_changes.has_changed(entry):
                yield from self.all_keys()
        else:
            yield from self._by_name(key)

    keys_of_replica = keys

    def _of_export(self, bound: BoundExport) -> Iterable[Hashable]:
        """Yield the slices of a bound export, whether they name its workspace by path or by cluster."""
        with self._loopback.store.snapshot() as snapshot:
            home, view = self._facts.cluster_of(snapshot, bound.path), federated(snapshot)
            record = view.get(ObjectKey(API_EXPORTS, home, "", bound.name)) if home else None
            if home is None or record is None:
                return
            own = annotations_of(decode(record.value)).get(PATH, "")
            for words in {home, own} - {""}:
                label = hashes.export_hash(words, bound.name)
                found = view.labelled(endpointslices.EXPORT_LABEL, label, CACHED_RESOURCE_ENDPOINT_SLICES)
                yield from ((key.cluster, key.name) for key in found)

    def _by_name(self, key: ObjectKey) -> Iterable[Hashable]:
        """Yield slices that refer to an object of this name at any path; few of them refer to another object."""
        for cluster, obj in self._each():
            names = {
                CACHED_RESOURCES: cachedresources.cached_of(obj).name,
                API_EXPORTS: endpointslices.reference_of(obj).name,
                self._partitions: endpointslices.partition_of(obj),
            }
            if names[key.type] == key.name:
                yield cluster, obj["metadata"]["name"]

    def _each(self) -> Iterable[tuple[str, Object]]:
        for cluster, name in every_slice(self._loopback, CACHED_RESOURCE_ENDPOINT_SLICES):
            with self._loopback.store.snapshot() as snapshot:
                record = federated(snapshot).get(ObjectKey(CACHED_RESOURCE_ENDPOINT_SLICES, cluster, "", name))
            if record is not None:
                yield cluster, decode(record.value)

    def all_keys(self) -> Iterable[Hashable]:
        return every_slice(self._loopback, CACHED_RESOURCE_ENDPOINT_SLICES)

    # --- reconcile ---

    async def reconcile(self, key: tuple[str, str]) -> float | None:
        cluster, name = key
        with self._loopback.store.snapshot() as snapshot:
            record = federated(snapshot).get(ObjectKey(CACHED_RESOURCE_ENDPOINT_SLICES, cluster, "", name))
            if record is None:
                return None
            obj = decode(record.value)
            is_here, status = self._facts.is_here(snapshot, cluster), obj.get("status")
            if is_here:
                status = cachedresources.desired_slice_status(
                    obj, self._references(snapshot, cluster, obj), times.now()
                )
            wanted = self._applications(snapshot, cluster, {**obj, "status": status}, is_here=is_here)
        try:
            if status != obj.get("status"):
                target = Target(self._kind, cluster, "", name, "status")
                await self._loopback.update(target, {**obj, "status": status})
                return None
            for shard, urls in wanted:
                await self._status.apply(cluster, cachedresources.apply_configuration(name, urls), shard)
        except (Conflict, NotFound):
            # The newer state has a log entry, which enqueues this key again.
            return None
        return None

    def _applications(self, view: View, cluster: str, obj: Object, *, is_here: bool) -> list[tuple[str, list[str]]]:
        """Return (field manager, endpoint URLs) to apply: for this shard, and without URLs for removed shards."""
        if not self._site_shards.are_complete(view):
            # Until its own Shard object is replicated from root, a shard removes no endpoints.
            return []
        urls = self._urls(view, cluster, obj)
        found = [(self._shard, urls)] if urls != endpointslices.owned_urls(obj, self._shard) else []
        path = cachedresources.endpoint_url("", cluster, obj["metadata"]["name"])
        gone = self._site_shards.gone(view, obj, path) if is_here else []
        return [*found, *((shard, []) for shard in gone)]

    def _references(self, view: View, cluster: str, obj: Object) -> SliceReferences:
        reference = cachedresources.cached_of(obj)
        home = self._facts.cluster_of(view, reference.path)
        key = ObjectKey(CACHED_RESOURCES, home or "", "", reference.name)
        is_cached = home is not None and federated(view).revision_of(key) > 0
        found = view.get(ObjectKey(self._partitions, cluster, "", endpointslices.partition_of(obj)))
        partition = decode(found.value) if found is not None else None
        return SliceReferences(home, exporting_cluster(view, self._facts, obj), partition, is_cached)

    def _urls(self, view: View, cluster: str, obj: Object) -> list[str]:
        """Return the endpoints of this shard in a slice: one or none."""
        shard = self._site_shards.own_object(view) or {"metadata": {}}
        base = virtual_workspace_url(shard)
        home, labels = exporting_cluster(view, self._facts, obj), labels_of(shard)
        if (
            not base
            or home is None
            or home != self._facts.cluster_of(view, cachedresources.cached_of(obj).path)
            or not cachedresources.is_sound(obj)
            or not endpointslices.selects_shard(obj, labels)
        ):
            return []
        label = hashes.export_hash(home, endpointslices.reference_of(obj).name)
        if not view.labelled(hashes.EXPORT_LABEL, label, API_BINDINGS, 1):
            return []
        return [cachedresources.endpoint_url(base, cluster, obj["metadata"]["name"])]
