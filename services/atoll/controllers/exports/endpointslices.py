"""APIExportEndpointSlices of this shard's clusters: validity of their references, and the shard selector.

Watches: local slices and Partitions; APIExports and Shards of all shards. Writes: status except endpoints, which each
shard writes for itself (`endpointslice_urls`). If the export or the Partition is missing, all endpoints are removed, as
are endpoints of shards without a Shard object. Converges because status is computed from current objects.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from atoll.controllers.exports.endpointslice_status import Shards, SliceStatus
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.control.manager import ReplicaController
from atoll.machinery.kcp.apis import endpointslices
from atoll.machinery.meta import hashes, times
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, annotations_of, decode
from atoll.machinery.meta.status import Conflict, NotFound
from atoll.machinery.meta.types import API_EXPORT_ENDPOINT_SLICES, API_EXPORTS
from atoll.machinery.meta.wellknown import CLUSTER, PATH
from atoll.machinery.storage.contract import LogEntry, Operation, Scope
from atoll.tenancy.lookups import Lookups


class EndpointSliceController(ReplicaController):
    """Key: (cluster, slice name)."""

    name = "apiexportendpointslice"
    workers = 2

    def __init__(self, loopback: Loopback, facts: Lookups, shard: str) -> None:
        kind = loopback.core.catalogs.builtin(API_EXPORT_ENDPOINT_SLICES)
        self._loopback, self._facts, self._kind = loopback, facts, kind
        self._status = SliceStatus(loopback, facts, API_EXPORT_ENDPOINT_SLICES, None)
        self._partitions, self._shards = facts.identities.partitions, Shards(facts, shard)

    # --- keys ---

    def watches(self, type: ResourceType) -> bool:
        return type in {API_EXPORT_ENDPOINT_SLICES, self._partitions} or self.watches_replicas(type)

    def watches_replicas(self, type: ResourceType) -> bool:
        return type in {API_EXPORTS, self._facts.identities.shard_objects}

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        key = entry.key
        if key.type == API_EXPORT_ENDPOINT_SLICES:
            if entry.operation is not Operation.DELETED:
                yield key.cluster, key.name
        elif key.type == API_EXPORTS:
            with self._loopback.store.snapshot() as snapshot:
                yield from slices_of(snapshot, key, path_of(decode(entry.value)))
        elif key.type == self._facts.identities.shard_objects:
            if entry.operation is Operation.DELETED:
                yield from self.all_keys()
        else:
            for obj in self._loopback.each(Scope(API_EXPORT_ENDPOINT_SLICES, key.cluster)):
                if endpointslices.partition_of(obj) == key.name:
                    yield key.cluster, obj["metadata"]["name"]

    keys_of_replica = keys

    def all_keys(self) -> Iterable[Hashable]:
        for key in self._loopback.keys(Scope(API_EXPORT_ENDPOINT_SLICES)):
            yield key.cluster, key.name

    # --- reconcile ---

    async def reconcile(self, key: tuple[str, str]) -> float | None:
        cluster, name = key
        with self._loopback.store.snapshot() as snapshot:
            record = snapshot.get(ObjectKey(API_EXPORT_ENDPOINT_SLICES, cluster, "", name))
            if record is None:
                return None
            obj = decode(record.value)
            home = exporting_cluster(snapshot, self._facts, obj)
            path = endpointslices.endpoint_url("", home or "", endpointslices.reference_of(obj).name)
            gone = self._shards.gone(snapshot, obj, path)
            partition = snapshot.get(ObjectKey(self._partitions, cluster, "", endpointslices.partition_of(obj)))
        found = decode(partition.value) if partition is not None else None
        status = endpointslices.desired_status(obj, has_export=home is not None, partition=found, now=times.now())
        try:
            if status != obj.get("status"):
                await self._loopback.update(Target(self._kind, cluster, "", name, "status"), {**obj, "status": status})
                return None
            for shard in gone:
                await self._status.apply(cluster, endpointslices.apply_configuration(name, []), shard)
        except (Conflict, NotFound):
            # The newer state has a log entry, which enqueues this key again.
            return None
        return None


def exporting_cluster(view: View, facts: Lookups, obj: Object) -> str | None:
    """Return the cluster of a slice's export, on any shard; None where the slice's cluster sees no such export."""
    reference = endpointslices.reference_of(obj)
    export = facts.export(view, reference.path, reference.name, seen_from=obj["metadata"]["annotations"][CLUSTER])
    return export.cluster if export is not None else None


def path_of(export: Object) -> str:
    """Return the path annotation of an export; "" without one."""
    return str(annotations_of(export).get(PATH, ""))


def slices_of(view: View, export: ObjectKey, path: str) -> Iterable[tuple[str, str]]:
    """Return the slices in a view that may be for an export: the one with its name, and those with its label."""
    found = {ObjectKey(API_EXPORT_ENDPOINT_SLICES, export.cluster, "", export.name)}
    for words in {export.cluster, path} - {""}:
        label = hashes.export_hash(words, export.name)
        found.update(view.labelled(endpointslices.EXPORT_LABEL, label, API_EXPORT_ENDPOINT_SLICES))
    return [(key.cluster, key.name) for key in sorted(found)]
