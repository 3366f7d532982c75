"""This shard's own URL in APIExportEndpointSlices: there while somebody on the shard binds the export.

Watches: slices, APIBindings, APIExports that come, and the object of this shard. Writes: by server-side apply, as the
field manager of the shard's name, the one endpoint that is the shard's; every other shard does the same with its own,
and none undoes another's. Converges because what should be there is compared with what this shard has applied.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from atoll.controllers.exports.endpointslices import every_slice, exporting_cluster, path_of, slices_of
from atoll.controllers.facts import Facts
from atoll.machinery.apiserver.call import View
from atoll.machinery.apiserver.loopback import Loopback, Target
from atoll.machinery.apiserver.remembered import Remembered
from atoll.machinery.kcp import endpointslices
from atoll.machinery.kcp.apiexports import bound_export
from atoll.machinery.meta import hashes
from atoll.machinery.meta.names import ROOT, ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.status import NotFound
from atoll.machinery.meta.types import API_BINDINGS, API_EXPORT_ENDPOINT_SLICES, API_EXPORTS
from atoll.machinery.storage.contract import LogEntry, Operation

MAX_EXPORTS = 1024


class EndpointUrlController:
    """Key: (cluster, slice name)."""

    name = "apiexportendpointsliceurls"
    workers = 2

    def __init__(self, loopback: Loopback, facts: Facts, shard: str) -> None:
        kind = loopback.core.catalogs.builtin(API_EXPORT_ENDPOINT_SLICES)
        self._loopback, self._facts, self._kind, self._shard = loopback, facts, kind, shard
        self._shards = facts.identities.shard_objects
        #: Paths of exports with the revisions they were read at: many bind what few export.
        self._paths = Remembered(path_of, MAX_EXPORTS)

    # --- what to look at ---

    def watches(self, type: ResourceType) -> bool:
        return type in {API_EXPORT_ENDPOINT_SLICES, API_BINDINGS, API_EXPORTS, self._shards}

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        key = entry.key
        if key.type == API_EXPORT_ENDPOINT_SLICES:
            if entry.operation is not Operation.DELETED:
                yield key.cluster, key.name
        elif key.type == API_BINDINGS:
            yield from self._slices_of_bound(entry)
        elif key.type == API_EXPORTS:
            # A binding whose export was not there when its entry was read led nowhere.
            if entry.operation is Operation.ADDED:
                with self._loopback.store.snapshot() as snapshot:
                    yield from slices_of(snapshot, key, path_of(decode(entry.value)))
        elif (key.cluster, key.name) == (ROOT, self._shard):
            yield from every_slice(self._loopback)

    def _slices_of_bound(self, entry: LogEntry) -> Iterable[Hashable]:
        bound = bound_export(entry.value, entry.key.cluster)
        with self._loopback.store.snapshot() as snapshot:
            cluster = self._facts.cluster_of(snapshot, bound.path)
            export = ObjectKey(API_EXPORTS, cluster or "", "", bound.name)
            revision = snapshot.revision_of(export)
            if revision:
                yield from slices_of(snapshot, export, self._paths.of(snapshot, export, revision))

    def all_keys(self) -> Iterable[Hashable]:
        return every_slice(self._loopback)

    # --- what to do ---

    async def reconcile(self, key: tuple[str, str]) -> float | None:
        cluster, name = key
        with self._loopback.store.snapshot() as snapshot:
            record = snapshot.get(ObjectKey(API_EXPORT_ENDPOINT_SLICES, cluster, "", name))
            if record is None:
                return None
            obj = decode(record.value)
            wanted = self._wanted(snapshot, obj)
        if wanted == endpointslices.owned_urls(obj, self._shard):
            return None
        target = Target(self._kind, cluster, "", name, "status")
        try:
            await self._loopback.apply(target, endpointslices.applied(name, wanted), self._shard)
        except NotFound:
            return None
        return None

    def _wanted(self, view: View, obj: Object) -> list[str]:
        """The endpoints that this shard should have in a slice: one or none."""
        record = view.get(ObjectKey(self._shards, ROOT, "", self._shard))
        shard = decode(record.value) if record is not None else {"metadata": {}}
        base = (shard.get("spec") or {}).get("virtualWorkspaceURL") or ""
        if not base or not endpointslices.wants(obj, shard["metadata"].get("labels") or {}):
            return []
        cluster, export = exporting_cluster(view, self._facts, obj), endpointslices.reference_of(obj).name
        if cluster is None or not _is_bound(view, cluster, export):
            return []
        return [endpointslices.endpoint_url(base, cluster, export)]


def _is_bound(view: View, cluster: str, export: str) -> bool:
    """Whether any APIBinding of this shard binds an export."""
    label = hashes.export_hash(cluster, export)
    return bool(view.labelled(hashes.EXPORT_LABEL, label, API_BINDINGS, 1))
