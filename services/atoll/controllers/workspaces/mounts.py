"""Mounted workspaces: copy URL and phase of the mounted object to its Workspace.

Watches: Workspaces with `spec.mount`, and the objects that they name. Writes: the Workspace's URL, phase,
label and the condition WorkspaceMountReady, from the object's status. Mounted Workspaces have no logical cluster.
Invariant: clusters without mounts are not remembered, and their objects cost one look-up.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.control.manager import Controller
from atoll.machinery.kcp.workspaces import mounts
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import rawscan, times
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.sizes import size_bytes
from atoll.machinery.storage.contract import LogEntry, Operation, Record, Scope
from atoll.tenancy.lookups import Lookups

#: Bytes of cached references.
MAX_BYTES = 4 << 20
#: Workspaces looked at between two yields to the event loop.
_PAUSE_ROWS = 500
_SPEC = rawscan.member("mount")


class MountController(Controller):
    """Key: (cluster, Workspace name)."""

    name = "workspacemount"
    workers = 2
    lists_at_start = True

    def __init__(self, loopback: Loopback, facts: Lookups) -> None:
        self._loopback, self._type = loopback, facts.identities.workspaces
        #: The clusters with mounts: listed by `all_keys` at every start, then followed by log entries.
        self._clusters: set[str] = set()
        #: References by Workspace, for each of them.
        self._mounts: LruCache[str, dict[str, mounts.Reference]] = LruCache(MAX_BYTES, size_bytes)

    def watches(self, type: ResourceType) -> bool:
        return True

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        key = entry.key
        if key.type == self._type and self._is_mount(entry):
            yield key.cluster, key.name
        for name, reference in self._of(key.cluster).items() if key.cluster in self._clusters else ():
            if reference.name == key.name and key.namespace in {"", reference.namespace}:
                yield key.cluster, name

    def all_keys(self) -> Iterable[Hashable]:
        for count, record in enumerate(self._loopback.records(Scope(self._type)), start=1):
            if _reference(record) is not None:
                self._clusters.add(record.key.cluster)
                yield record.key.cluster, record.key.name
            elif count % _PAUSE_ROWS == 0:
                yield None

    def _is_mount(self, entry: LogEntry) -> bool:
        """Return whether a Workspace exists and is mounted, and follow it in the cache."""
        key, known = entry.key, self._mounts.get(entry.key.cluster)
        is_gone = entry.operation is Operation.DELETED
        found = mounts.reference(decode(entry.value)) if _SPEC in entry.value else None
        if known is not None and found is not None:
            others = {name: reference for name, reference in known.items() if name != key.name}
            self._mounts.put(key.cluster, others if is_gone else {**others, key.name: found})
        if found is None or is_gone:
            return False
        self._clusters.add(key.cluster)
        return True

    def _of(self, cluster: str) -> dict[str, mounts.Reference]:
        """Return the references of a cluster's mounts, by Workspace, and forget a cluster without any."""
        known = self._mounts.get(cluster)
        if known is None:
            records = self._loopback.records(Scope(self._type, cluster))
            known = {record.key.name: found for record in records if (found := _reference(record)) is not None}
            self._mounts.put(cluster, known)
        if not known:
            self._clusters.discard(cluster)
            self._mounts.drop(cluster)
        return known

    async def reconcile(self, key: tuple[str, str]) -> float | None:
        cluster, name = key
        obj = self._loopback.get(self._type, cluster, "", name)
        reference = mounts.reference(obj) if obj is not None else None
        if obj is None or reference is None or obj["metadata"].get("deletionTimestamp"):
            return None
        with self._loopback.store.snapshot() as snapshot:
            catalog = self._loopback.core.catalogs.of(snapshot, cluster)
            found = self._referred(snapshot, catalog.kinds.values(), cluster, reference)
            kind = catalog.of_type(self._type)
        wanted = mounts.desired_workspace(obj, found, times.now())
        if kind is None or wanted == obj:
            return None
        await self._loopback.try_update(Target(kind, cluster, "", name), wanted, whole=True)
        return None

    def _referred(self, view: View, kinds: Iterable[Kind], cluster: str, reference: mounts.Reference) -> Object | None:
        for kind in kinds:
            if (kind.api_version, kind.kind) == (reference.api_version, reference.kind):
                namespace = reference.namespace if kind.namespaced else ""
                key = ObjectKey(kind.type, cluster, namespace, reference.name)
                record = view.get(key)
                return decode(record.value) if record is not None else None
        return None


def _reference(record: Record) -> mounts.Reference | None:
    return mounts.reference(decode(record.value)) if _SPEC in record.value else None
