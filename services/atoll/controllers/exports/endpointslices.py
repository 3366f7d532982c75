"""APIExportEndpointSlices of this shard's clusters: whether what they refer to is there, and which shards they mean.

Watches: slices, APIExports and Partitions. Writes: status but for endpoints, which are every shard's own
(`endpointurls`), unless the export or the Partition is gone: then nobody's are right. Converges because status follows
from the objects found.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from atoll.controllers.facts import Facts
from atoll.machinery.apiserver.call import View
from atoll.machinery.apiserver.loopback import Loopback, Target
from atoll.machinery.kcp import endpointslices
from atoll.machinery.kcp.shapes import PATH
from atoll.machinery.meta import hashes, times
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.status import Conflict, NotFound
from atoll.machinery.meta.types import API_EXPORT_ENDPOINT_SLICES, API_EXPORTS
from atoll.machinery.storage.contract import LogEntry, Operation, Scope


class EndpointSliceController:
    """Key: (cluster, slice name)."""

    name = "apiexportendpointslice"
    workers = 2

    def __init__(self, loopback: Loopback, facts: Facts) -> None:
        kind = loopback.core.catalogs.builtin(API_EXPORT_ENDPOINT_SLICES)
        self._loopback, self._facts, self._kind = loopback, facts, kind
        self._partitions = facts.identities.partitions

    def watches(self, type: ResourceType) -> bool:
        return type in {API_EXPORT_ENDPOINT_SLICES, API_EXPORTS, self._partitions}

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        key = entry.key
        if key.type == API_EXPORT_ENDPOINT_SLICES:
            if entry.operation is not Operation.DELETED:
                yield key.cluster, key.name
        elif key.type == API_EXPORTS:
            with self._loopback.store.snapshot() as snapshot:
                yield from slices_of(snapshot, key, path_of(decode(entry.value)))
        else:
            for obj in self._loopback.each(Scope(API_EXPORT_ENDPOINT_SLICES, key.cluster)):
                if endpointslices.partition_of(obj) == key.name:
                    yield key.cluster, obj["metadata"]["name"]

    def all_keys(self) -> Iterable[Hashable]:
        return every_slice(self._loopback)

    async def reconcile(self, key: tuple[str, str]) -> float | None:
        cluster, name = key
        with self._loopback.store.snapshot() as snapshot:
            record = snapshot.get(ObjectKey(API_EXPORT_ENDPOINT_SLICES, cluster, "", name))
            if record is None:
                return None
            obj = decode(record.value)
            has_export = exporting_cluster(snapshot, self._facts, obj) is not None
            partition = snapshot.get(ObjectKey(self._partitions, cluster, "", endpointslices.partition_of(obj)))
        found = decode(partition.value) if partition is not None else None
        status = endpointslices.judged(obj, has_export=has_export, partition=found, now=times.now())
        if status == obj.get("status"):
            return None
        try:
            await self._loopback.update(Target(self._kind, cluster, "", name, "status"), {**obj, "status": status})
        except (Conflict, NotFound):
            # Its newer state has an entry in the log, which brings this key back.
            return None
        return None


def exporting_cluster(view: View, facts: Facts, obj: Object) -> str | None:
    """The cluster of a slice's export, None where there is no such export."""
    reference = endpointslices.reference_of(obj)
    cluster = facts.cluster_of(view, reference.path)
    if cluster is None or not view.revision_of(ObjectKey(API_EXPORTS, cluster, "", reference.name)):
        return None
    return cluster


def path_of(export: Object) -> str:
    """The path that an export is annotated with, empty where it has none."""
    return str((export["metadata"].get("annotations") or {}).get(PATH, ""))


def slices_of(view: View, export: ObjectKey, path: str) -> Iterable[tuple[str, str]]:
    """The slices of this shard that may be for an export: the one of its name, and those that are labelled so."""
    found = {ObjectKey(API_EXPORT_ENDPOINT_SLICES, export.cluster, "", export.name)}
    for words in {export.cluster, path} - {""}:
        label = hashes.export_hash(words, export.name)
        found.update(view.labelled(endpointslices.EXPORT_LABEL, label, API_EXPORT_ENDPOINT_SLICES))
    return [(key.cluster, key.name) for key in sorted(found)]


def every_slice(loopback: Loopback) -> Iterable[tuple[str, str]]:
    """The key of each slice on this shard."""
    for key in loopback.keys(Scope(API_EXPORT_ENDPOINT_SLICES)):
        yield key.cluster, key.name
