"""Mounted workspaces: copy URL and phase of the mounted object to its Workspace.

Watches: Workspaces with `spec.mount`, and every object annotated as mountable. Writes: the Workspace's URL, phase,
label and the condition WorkspaceMountReady, from the object's status. Mounted Workspaces have no logical cluster.
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
from atoll.machinery.meta.wellknown import CLUSTER
from atoll.machinery.storage.contract import LogEntry, Operation, Scope
from atoll.tenancy.lookups import Lookups

MAX_MOUNTED = 8192
_SPEC, _OBJECT = rawscan.member("mount"), rawscan.string(mounts.IS_MOUNT)


class MountController(Controller):
    """Key: (cluster, Workspace name)."""

    name = "workspacemount"
    workers = 2

    def __init__(self, loopback: Loopback, facts: Lookups) -> None:
        self._loopback, self._type = loopback, facts.identities.workspaces
        #: Mounted objects: the log entry of an object that loses its annotation does not show it.
        self._mounted: LruCache[ObjectKey, bool] = LruCache(MAX_MOUNTED)

    def watches(self, type: ResourceType) -> bool:
        return True

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        if entry.key.type == self._type:
            if entry.operation is not Operation.DELETED and _SPEC in entry.value:
                yield entry.key.cluster, entry.key.name
        elif _OBJECT in entry.value or (len(self._mounted) and self._mounted.get(entry.key)):
            yield from self._of(Scope(self._type, entry.key.cluster))

    def all_keys(self) -> Iterable[Hashable]:
        yield from self._of(Scope(self._type))

    def _of(self, scope: Scope) -> Iterable[Hashable]:
        for obj in self._loopback.each(scope):
            if mounts.reference(obj) is not None:
                yield obj["metadata"]["annotations"][CLUSTER], obj["metadata"]["name"]

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
                if record is None:
                    return None
                self._mounted.put(key, True)
                return decode(record.value)
        return None
