"""Copy annotations `extra.apis.kcp.io/*` of an APIExport to all its APIBindings, as kcp's extraannotationsync does.

Watches: APIBindings, and APIExports on this and other shards. Writes: these annotations of bindings only; they are
removed with the export's annotations, and stay when the export is deleted. Converges because each reconcile compares
a binding with its export. A bounded cache holds the annotations last synced for each export, so that other writes of
the export do not read its bindings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable

import msgspec

from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.catalog.revision_cache import RevisionCache
from atoll.machinery.apiserver.federation.federated_view import federated
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.control.manager import ReplicaController
from atoll.machinery.kcp.apis import apiexports
from atoll.machinery.kcp.apis.apibindings import is_withheld
from atoll.machinery.meta import hashes
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.sizes import size_bytes
from atoll.machinery.meta.types import API_BINDINGS, API_EXPORTS
from atoll.machinery.storage.contract import LogEntry, Operation, Record, Scope
from atoll.tenancy.lookups import Lookups

#: Bytes of each cache.
MAX_BYTES = 4 << 20
#: Bindings of one export synced before yielding to the event loop.
AT_ONCE = 100


class Place(msgspec.Struct, frozen=True):
    """One binding, or all bindings of an export."""

    cluster: str
    name: str
    is_export: bool = False


class Extra(msgspec.Struct, frozen=True):
    """The annotations of an export for its bindings.

    The uid tells a recreated export apart: bindings created while there was no export have no annotations.
    """

    uid: str
    annotations: dict[str, str]


class ExtraAnnotations(ReplicaController):
    """Key: Place."""

    name = "apibinding-extra-annotation-sync"
    workers = 2

    def __init__(self, loopback: Loopback, facts: Lookups) -> None:
        kind = loopback.core.catalogs.builtin(API_BINDINGS)
        self._loopback, self._facts, self._kind = loopback, facts, kind
        #: `_current`: annotations of an export at a revision. `_given`: annotations last synced to all its bindings.
        self._current = RevisionCache(_read, MAX_BYTES, size_bytes)
        self._given: LruCache[ObjectKey, Extra] = LruCache(MAX_BYTES, size_bytes)

    def watches(self, type: ResourceType) -> bool:
        return type in {API_EXPORTS, API_BINDINGS}

    def watches_replicas(self, type: ResourceType) -> bool:
        return type == API_EXPORTS

    def keys_of_replica(self, entry: LogEntry) -> Iterable[Hashable]:
        return self.keys(entry)

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        if entry.operation is Operation.DELETED:
            return
        is_export = entry.key.type == API_EXPORTS
        if is_export or self._concerns(entry):
            yield Place(entry.key.cluster, entry.key.name, is_export)

    def _concerns(self, entry: LogEntry) -> bool:
        """Return whether a binding has extra annotations or its export has some. Most bindings have none."""
        if apiexports.may_have_extra(entry.value):
            return True
        with self._loopback.store.snapshot() as snapshot:
            extra = self._extra(snapshot, self._export_of(snapshot, entry))
        return extra is not None and bool(extra.annotations)

    def all_keys(self) -> Iterable[Hashable]:
        for key in self._loopback.keys(Scope(API_BINDINGS)):
            yield Place(key.cluster, key.name)

    async def reconcile(self, key: Place) -> float | None:
        if not key.is_export:
            await self._sync(ObjectKey(API_BINDINGS, key.cluster, "", key.name))
            return None
        export = ObjectKey(API_EXPORTS, key.cluster, "", key.name)
        with self._loopback.store.snapshot() as snapshot:
            extra = self._extra(snapshot, export)
            if extra is None or self._given.get(export) == extra:
                return None
            label = hashes.export_hash(key.cluster, key.name)
            bindings = snapshot.labelled(hashes.EXPORT_LABEL, label, API_BINDINGS)
        for number, binding in enumerate(bindings, start=1):
            await self._sync(binding)
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)
        self._given.put(export, extra)
        return None

    async def _sync(self, key: ObjectKey) -> None:
        with self._loopback.store.snapshot() as snapshot:
            record = snapshot.get(key)
            export = self._export_of(snapshot, record) if record is not None else None
            seen = export and self._facts.export(snapshot, export.cluster, export.name, key.cluster)
            extra = self._extra(snapshot, export) if seen else None
        if record is None or not seen or extra is None:
            return
        if not extra.annotations and not apiexports.may_have_extra(record.value):
            return
        binding = decode(record.value)
        if is_withheld(binding, seen):
            return
        changed = apiexports.with_extra_annotations(binding, extra.annotations)
        if changed is binding:
            return
        await self._loopback.try_update(Target(self._kind, key.cluster, "", key.name), changed)

    def _export_of(self, view: View, binding: Record | LogEntry) -> ObjectKey | None:
        export = apiexports.bound_export(binding.value, binding.key.cluster)
        cluster = export.cluster or self._facts.cluster_of(view, export.path)
        return ObjectKey(API_EXPORTS, cluster, "", export.name) if cluster else None

    def _extra(self, view: View, export: ObjectKey | None) -> Extra | None:
        """Return an export's annotations for its bindings; None where the export does not exist."""
        view = federated(view)
        revision = view.revision_of(export) if export is not None else 0
        if export is None or not revision:
            return None
        return self._current.of(view, export, revision)


def _read(export: Object) -> Extra:
    return Extra(export["metadata"]["uid"], apiexports.extra_annotations(export))
