"""Release deleted claims, volumes and VolumeAttributesClasses that nothing uses.

Watches: these kinds of root's export `kubernetes`, and Pods. Writes: their finalizers. Converges because what ends a
use (a Pod that ends or goes, a volume that is no longer bound, a claim that goes) enqueues what it used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator

from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.control.manager import EXISTING, Controller
from atoll.machinery.kinds.checks import text
from atoll.machinery.kinds.kubernetes.storage_use import (
    CLAIMS,
    CLASSES,
    FINALIZERS,
    PODS,
    VOLUMES,
    claims_of,
    classes_of,
    is_running,
)
from atoll.machinery.meta import rawscan
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode, finalizers_of
from atoll.machinery.storage.contract import Flag, LogEntry, Operation, Scope
from atoll.machinery.storage.pages import each_page_in_snapshots

_WATCHED = frozenset({*FINALIZERS, PODS})
#: Texts of objects that use something.
_MOUNTED = (rawscan.string("persistentVolumeClaim"), rawscan.string("ephemeral"))
_CLASSED = rawscan.text("olumeAttributesClassName")


class StorageProtection(Controller):
    """Key: ObjectKey of an object that may have to be released. `identity` is that of root's export."""

    name = "storage-protection"
    workers = 2

    def __init__(self, loopback: Loopback, identity: str) -> None:
        self._loopback, self._identity = loopback, identity

    def watches(self, type: ResourceType) -> bool:
        return type.identity == self._identity and (type.group, type.resource) in _WATCHED

    def operations(self, type: ResourceType) -> Collection[Operation]:
        return EXISTING | {Operation.DELETED}

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        kind, is_deleted = (entry.key.type.group, entry.key.type.resource), entry.operation is Operation.DELETED
        if kind in FINALIZERS and not is_deleted and rawscan.DELETION in entry.value:
            yield entry.key
        if entry.operation is Operation.ADDED:
            return
        if kind == PODS and any(part in entry.value for part in _MOUNTED):
            pod = decode(entry.value)
            if is_deleted or not is_running(pod):
                yield from (self._key(entry.key, CLAIMS, name) for name in claims_of(pod))
        elif kind in (CLAIMS, VOLUMES) and _CLASSED in entry.value:
            yield from (self._key(entry.key, CLASSES, name) for name in classes_of(decode(entry.value)))

    def _key(self, user: ObjectKey, kind: tuple[str, str], name: str) -> ObjectKey:
        namespace = user.namespace if kind == CLAIMS else ""
        return ObjectKey(ResourceType(*kind, self._identity), user.cluster, namespace, name)

    def all_keys(self) -> Iterator[Hashable]:
        for kind in FINALIZERS:
            yield from self._loopback.deleting(Scope(ResourceType(*kind, self._identity)))

    async def reconcile(self, key: ObjectKey) -> None:
        with self._loopback.store.snapshot() as snapshot:
            record = snapshot.get(key)
            if record is None or not record.flags & Flag.DELETING:
                return
            obj, finalizer = decode(record.value), FINALIZERS[key.type.group, key.type.resource]
            kind = self._loopback.core.catalogs.of(snapshot, key.cluster).of_type(key.type)
        if kind is None or finalizer not in finalizers_of(obj) or await self._is_used(key, obj):
            return
        left = [each for each in finalizers_of(obj) if each != finalizer]
        changed = {**obj, "metadata": {**obj["metadata"], "finalizers": left}}
        await self._loopback.try_update(Target(kind, key.cluster, key.namespace, key.name), changed)

    async def _is_used(self, key: ObjectKey, obj: Object) -> bool:
        kind = (key.type.group, key.type.resource)
        if kind == VOLUMES:
            return text(obj, "status", "phase") == "Bound"
        if kind == CLAIMS:
            return await self._any(PODS, key, lambda pod: is_running(pod) and key.name in claims_of(pod))
        return any(
            [await self._any(users, key, lambda user: key.name in classes_of(user)) for users in (CLAIMS, VOLUMES)]
        )

    async def _any(self, users: tuple[str, str], key: ObjectKey, uses: Callable[[Object], bool]) -> bool:
        """Whether one of the objects uses the object of a key; a page of them in each turn of the loop."""
        scope, name = Scope(ResourceType(*users, self._identity), key.cluster, key.namespace), rawscan.string(key.name)
        for records in each_page_in_snapshots(self._loopback.store, scope):
            for record in records:
                if (name in record.value or _MOUNTED[1] in record.value) and uses(decode(record.value)):
                    return True
            await asyncio.sleep(0)
        return False
