"""APIBinding deletion: the objects of the bound resources, then the finalizer and the locks in one transaction.

Watches: APIBindings, and deletions of bound objects (a binding may wait for the last one). Writes: deletions of
instances, the binding's conditions and finalizer, the LogicalCluster's locks. During deletion the resource stays
readable and rejects creation, so that remaining objects can be released. Objects of a resource that another binding of
the cluster serves under the same identity are kept.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator

from atoll.controllers.content_deleter import CONFLICT, HELD, RemainingContent, clear
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.call.options import DeleteOptions
from atoll.machinery.apiserver.writing.batch import LOST, Batch
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.control.manager import Controller
from atoll.machinery.control.queue import Requeue
from atoll.machinery.kcp.apis.apiexports import export_of
from atoll.machinery.kcp.apis.locks import read_locks, with_locks, without_binding
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import rawscan, times, wellknown
from atoll.machinery.meta.conditions import ERROR, FALSE, Condition, with_conditions
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import CORE, LOCAL, ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode, finalizers_of, status_of
from atoll.machinery.meta.sizes import size_bytes
from atoll.machinery.meta.status import ApiError, NotFound
from atoll.machinery.meta.types import API_BINDINGS, LOGICAL_CLUSTERS
from atoll.machinery.storage.contract import Flag, GateState, LogEntry, Operation, RevisionUnchanged, Scope, StoreError
from atoll.machinery.storage.pages import each_record
from atoll.tenancy.lookups import Lookups

#: Bytes of each cache.
MAX_BYTES = 4 << 20
DELETED = "BindingResourceDeleteSuccess"
_SERVED = DeleteOptions(served_finalizers=frozenset({wellknown.BINDING_FINALIZER}))


class BindingDeletion(Controller):
    """Key: (cluster, binding name)."""

    name = "apibindingdeletion"
    workers = 4
    #: Seconds: users wait for the names to be free.
    max_delay_s = 10.0

    def __init__(self, loopback: Loopback, facts: Lookups, kind: Kind, clusters: Kind) -> None:
        self._loopback, self._facts = loopback, facts
        self._kind, self._clusters = kind, clusters
        self._going: LruCache[str, tuple[int, tuple[str, ...]]] = LruCache(MAX_BYTES, size_bytes)

    def watches(self, type: ResourceType) -> bool:
        return type == API_BINDINGS or type.identity not in {CORE, LOCAL}

    def ends_with_cluster(self, type: ResourceType) -> bool:
        return True

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        key = entry.key
        if key.type == API_BINDINGS:
            if rawscan.DELETION in entry.value and entry.operation is not Operation.DELETED:
                yield key.cluster, key.name
        elif entry.operation is Operation.DELETED:
            yield from ((key.cluster, name) for name in self._deleting_bindings(key.cluster))

    def _deleting_bindings(self, cluster: str) -> tuple[str, ...]:
        """Return the terminating bindings of a cluster. Cached: deletions of bound objects are frequent."""
        with self._loopback.store.snapshot() as snapshot:
            stamp, known = snapshot.last(API_BINDINGS, cluster), self._going.get(cluster)
            if known is None or known[0] != stamp:
                found = each_record(snapshot, Scope(API_BINDINGS, cluster))
                known = stamp, tuple(each.key.name for each in found if each.flags & Flag.DELETING)
                self._going.put(cluster, known)
        return known[1]

    def all_keys(self) -> Iterable[Hashable]:
        for key in self._loopback.deleting(Scope(API_BINDINGS)):
            yield key.cluster, key.name

    async def reconcile(self, key: tuple[str, str]) -> Requeue:
        cluster, name = key
        with self._loopback.store.snapshot() as snapshot:
            record = snapshot.get(ObjectKey(API_BINDINGS, cluster, "", name))
            binding = decode(record.value) if record is not None else None
            if binding is None or not _is_terminating(binding) or snapshot.gate(cluster).state is GateState.DELETING:
                # In a terminating cluster, the LogicalCluster deletion controller decides the order.
                return None
            going = _types_to_delete(binding, set(self._types_of_other_bindings(snapshot, cluster, name)))
        remaining = RemainingContent()
        try:
            for type in going:
                await clear(self._loopback, Scope(type, cluster), remaining)
        except (ApiError, StoreError) as error:
            await self._write_condition(
                cluster, binding, Condition(DELETED, FALSE, "ResourceDeletionFailed", str(error), ERROR)
            )
            raise
        if not remaining.is_empty:
            await self._write_condition(cluster, binding, _content_condition(remaining))
            return HELD
        return await self._release(cluster, name, going)

    def _types_of_other_bindings(self, view: View, cluster: str, own: str) -> Iterator[ResourceType]:
        """Return the types that other bindings of a cluster serve, or will serve once this one frees its names."""
        for record in each_record(view, Scope(API_BINDINGS, cluster)):
            if record.key.name == own or record.flags & Flag.DELETING:
                continue
            binding = decode(record.value)
            yield from bound_types(binding)
            _, path, name = export_of(binding, cluster)
            export = self._facts.export(view, path, name, seen_from=cluster)
            if export is not None and export.identity:
                for offered in export.resources:
                    yield ResourceType(offered.group, offered.resource, export.identity)

    async def _release(self, cluster: str, name: str, going: list[ResourceType]) -> Requeue:
        """Remove the finalizer of the binding together with its locks."""
        batch = self._loopback.batch()
        target = Target(self._kind, cluster, "", name)
        try:
            batch.delete(target, _SERVED)
            if batch.get(ObjectKey(API_BINDINGS, cluster, "", name)) is None:
                # While another finalizer holds the binding, it keeps its names, so that no name has two holders.
                self._unlock(batch, cluster, name)
            for type in going:
                # Objects written since the search.
                batch.delete_prefix(Scope(type, cluster))
            await batch.submit()
        except (NotFound, *LOST):
            # A concurrent write, whose log entry may not enqueue this binding.
            return CONFLICT
        return None

    def _unlock(self, batch: Batch, cluster: str, name: str) -> None:
        key = ObjectKey(LOGICAL_CLUSTERS, cluster, "", wellknown.SINGLETON)
        record = batch.get(key)
        obj: Object | None = decode(record.value) if record is not None else None
        locks = read_locks(obj) if obj is not None else None
        if record is None or obj is None or locks is None:
            return
        left = without_binding(locks, name)
        if left != locks:
            batch.update(Target(self._clusters, cluster, "", wellknown.SINGLETON), with_locks(obj, left), whole=True)
        else:
            batch.guard(RevisionUnchanged(key, record.revision))

    async def _write_condition(self, cluster: str, binding: Object, said: Condition) -> None:
        status = with_conditions(status_of(binding), times.now(), said)
        if status == status_of(binding):
            return
        changed = {**binding, "status": status}
        await self._loopback.try_update(
            Target(self._kind, cluster, "", binding["metadata"]["name"]), changed, whole=True
        )


def bound_types(binding: Object) -> list[ResourceType]:
    """Return the types under which the objects of a binding's resources are stored."""
    resources = status_of(binding).get("boundResources") or []
    return [
        ResourceType(item.get("group") or "", item["resource"], item["schema"]["identityHash"]) for item in resources
    ]


def _is_terminating(binding: Object) -> bool:
    """Return whether a binding is being deleted and has our finalizer."""
    metadata = binding["metadata"]
    return bool(metadata.get("deletionTimestamp")) and wellknown.BINDING_FINALIZER in finalizers_of(binding)


def _types_to_delete(binding: Object, adopted: set[ResourceType]) -> list[ResourceType]:
    """Return the types whose objects are deleted with a binding; a virtual resource has no objects here."""
    resources = status_of(binding).get("boundResources") or []
    stored = [bool(item.get("storageVersions")) for item in resources]
    types = zip(bound_types(binding), stored, strict=True)
    return [type for type, is_stored in types if is_stored and type not in adopted]


def _content_condition(remaining: RemainingContent) -> Condition:
    reason = "SomeFinalizersRemain" if remaining.finalizers else "SomeResourcesRemain"
    return Condition(DELETED, FALSE, reason, remaining.message(), ERROR)
