"""This shard's URL in APIExportEndpointSlices: present while an APIBinding of this shard binds the export.

Watches: slices, new APIExports and this shard's Shard object, on all shards; APIBindings of this shard. Writes: this
shard's endpoint, by server-side apply with the shard's name as field manager; each shard writes only its own endpoint.
Converges because the desired endpoint is compared with the applied one in the newest replicated state of the slice.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from atoll.controllers.exports.endpointslice_status import Shards, SliceStatus, every_slice
from atoll.controllers.exports.endpointslices import exporting_cluster, path_of, slices_of
from atoll.controllers.shard_calls import ShardCaller
from atoll.controllers.shard_predicate import ShardChangePredicate
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.catalog.revision_cache import RevisionCache
from atoll.machinery.apiserver.federation.federated_view import federated
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.control.manager import ReplicaController
from atoll.machinery.kcp.apis import endpointslices
from atoll.machinery.kcp.apis.apiexports import bound_export
from atoll.machinery.kcp.sharding.shards import virtual_workspace_url
from atoll.machinery.meta import hashes, partial
from atoll.machinery.meta.names import ROOT, ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode, labels_of
from atoll.machinery.meta.status import NotFound
from atoll.machinery.meta.types import API_BINDINGS, API_EXPORT_ENDPOINT_SLICES, API_EXPORTS
from atoll.machinery.storage.contract import LogEntry, Operation
from atoll.tenancy.lookups import Lookups

MAX_EXPORTS = 1024


class EndpointUrlController(ReplicaController):
    """Key: (cluster, slice name)."""

    name = "apiexportendpointsliceurls"
    workers = 2

    def __init__(self, loopback: Loopback, facts: Lookups, shard: str, calls: ShardCaller | None = None) -> None:
        self._loopback, self._facts, self._shard = loopback, facts, shard
        self._status = SliceStatus(loopback, facts, API_EXPORT_ENDPOINT_SLICES, calls)
        self._shards, self._site_shards, self._shard_changes = (
            facts.identities.shard_objects,
            Shards(facts, shard),
            ShardChangePredicate(),
        )
        #: Paths of exports by revision; exports are few compared with bindings.
        self._paths = RevisionCache(path_of, MAX_EXPORTS)
        #: Whether slices have this shard's endpoint, by revision.
        self._listed = RevisionCache(lambda obj: bool(endpointslices.owned_urls(obj, shard)), MAX_EXPORTS)

    # --- keys ---

    def watches(self, type: ResourceType) -> bool:
        return type == API_BINDINGS or self.watches_replicas(type)

    def watches_replicas(self, type: ResourceType) -> bool:
        return type in {API_EXPORT_ENDPOINT_SLICES, API_EXPORTS, self._shards}

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        key = entry.key
        if key.type == API_EXPORT_ENDPOINT_SLICES:
            if entry.operation is not Operation.DELETED:
                yield key.cluster, key.name
        elif key.type == API_BINDINGS:
            yield from self._slices_of_bound(entry)
        elif key.type == API_EXPORTS:
            # A binding whose log entry was read before the export existed yielded no key.
            if entry.operation is Operation.ADDED:
                with self._loopback.store.snapshot() as snapshot:
                    yield from slices_of(federated(snapshot), key, path_of(decode(entry.value)))
        elif (key.cluster, key.name) == (ROOT, self._shard) and self._shard_changes.has_changed(entry):
            yield from self.all_keys()

    keys_of_replica = keys

    def _slices_of_bound(self, entry: LogEntry) -> Iterable[Hashable]:
        deleted = entry.operation is Operation.DELETED
        if entry.operation is Operation.MODIFIED and _export_of(entry.value) == _export_of(entry.before):
            return
        bound = bound_export(entry.value, entry.key.cluster)
        with self._loopback.store.snapshot() as snapshot:
            cluster = self._facts.cluster_of(snapshot, bound.path)
            export = ObjectKey(API_EXPORTS, cluster or "", "", bound.name)
            if deleted and _is_bound(snapshot, export.cluster, export.name):
                # Another binding still binds the export, so the endpoint stays.
                return
            view = federated(snapshot)
            revision = view.revision_of(export)
            if revision:
                for cluster, name in slices_of(view, export, self._paths.of(view, export, revision)):
                    if deleted or not self._is_listed(view, ObjectKey(API_EXPORT_ENDPOINT_SLICES, cluster, "", name)):
                        yield cluster, name

    def _is_listed(self, view: View, slice: ObjectKey) -> bool:
        """Return whether a slice has this shard's endpoint. If that is removed, the slice's log entry yields a key."""
        revision = view.revision_of(slice)
        return bool(revision) and self._listed.of(view, slice, revision)

    def all_keys(self) -> Iterable[Hashable]:
        return every_slice(self._loopback, API_EXPORT_ENDPOINT_SLICES)

    # --- reconcile ---

    async def reconcile(self, key: tuple[str, str]) -> float | None:
        cluster, name = key
        with self._loopback.store.snapshot() as snapshot:
            record = federated(snapshot).get(ObjectKey(API_EXPORT_ENDPOINT_SLICES, cluster, "", name))
            # Until its own Shard object is replicated from root, a shard removes no endpoints.
            if record is None or not self._site_shards.are_complete(snapshot):
                return None
            obj = decode(record.value)
            wanted = self._desired_urls(snapshot, obj)
        if wanted == endpointslices.owned_urls(obj, self._shard):
            return None
        try:
            await self._status.apply(cluster, endpointslices.apply_configuration(name, wanted), self._shard)
        except NotFound:
            return None
        return None

    def _desired_urls(self, view: View, obj: Object) -> list[str]:
        """Return the endpoints of this shard in a slice: one or none."""
        shard = self._site_shards.own_object(view) or {"metadata": {}}
        base = virtual_workspace_url(shard)
        if not base or not endpointslices.selects_shard(obj, labels_of(shard)):
            return []
        cluster, export = exporting_cluster(view, self._facts, obj), endpointslices.reference_of(obj).name
        if cluster is None or not _is_bound(view, cluster, export):
            return []
        return [endpointslices.endpoint_url(base, cluster, export)]


def _export_of(binding: bytes) -> str:
    """Return what the label index has of a binding's export; empty without it."""
    return partial.labels(binding).get(hashes.EXPORT_LABEL, "")


def _is_bound(view: View, cluster: str, export: str) -> bool:
    """Return whether any APIBinding of this shard binds an export."""
    label = hashes.export_hash(cluster, export)
    return bool(view.labelled(hashes.EXPORT_LABEL, label, API_BINDINGS, 1))
