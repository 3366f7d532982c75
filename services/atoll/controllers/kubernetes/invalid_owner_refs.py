"""Events on dependents with an ownerReference to an object in another namespace.

The garbage collector calls `InvalidOwnerRefs` before it looks up owners; otherwise a client with a wrong namespace
would see its object deleted without an explanation. As in Kubernetes the owner is found by its uid alone; kind and name
of the reference may be wrong too. Message, reason and component are those of Kubernetes. Invariant: one Event for each
pair of dependent and owner; a uid is searched for once, in at most MAX_OBJECTS objects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from atoll.controllers.event_recorder import Warning, warn
from atoll.controllers.kubernetes.owner_lookup import OwnerLookup
from atoll.controllers.kubernetes.owner_references import Reference
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import partial
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object
from atoll.machinery.storage.contract import Position, Record, Scope
from atoll.machinery.storage.pages import position_after

REASON, COMPONENT = "OwnerRefInvalidNamespace", "garbage-collector-controller"
#: Maximal number of objects searched for a uid, and of those read at once; Events are best effort.
MAX_OBJECTS, PAGE = 5000, 100
#: Number of uids whose search is remembered.
MAX_UIDS = 4096


class InvalidOwnerRefs:
    """Reports references to owners in other namespaces."""

    def __init__(self, loopback: Loopback, lookup: OwnerLookup) -> None:
        self._loopback, self._lookup = loopback, lookup
        #: (cluster, uid) to the namespace of the object, "" if none was found.
        self._namespaces: LruCache[tuple[str, str], str] = LruCache(MAX_UIDS)

    async def report(self, kind: Kind, key: ObjectKey, obj: Object, found: Iterable[Reference]) -> None:
        """Create an Event for each owner in another namespace, unless it exists."""
        for reference in found:
            if self._lookup.was_deleted(key.cluster, reference.uid) or self._exists(key, reference):
                continue
            namespace = await self._namespace_of(key, reference)
            if namespace and namespace != key.namespace:
                await self._warn(kind, key, obj, reference)

    def _exists(self, key: ObjectKey, reference: Reference) -> bool:
        with self._loopback.store.snapshot() as snapshot:
            where = self._lookup.key_of(snapshot, key, reference)
            record = snapshot.get(where) if where is not None else None
        return record is not None and partial.identity(record.value).uid == reference.uid

    async def _namespace_of(self, key: ObjectKey, reference: Reference) -> str:
        """Return the namespace of the object with the uid of a reference; "" if it has none or was not found."""
        remembered = (key.cluster, reference.uid)
        known = self._namespaces.get(remembered)
        if known is None:
            known = await self._searched(key, reference)
            self._namespaces.put(remembered, known)
        return known

    async def _searched(self, key: ObjectKey, reference: Reference) -> str:
        uid, left = reference.uid.encode(), MAX_OBJECTS
        for type in self._types(key, reference):
            after: Position | None = None
            while left > 0:
                with self._loopback.store.snapshot() as snapshot:
                    records = snapshot.scan(Scope(type, key.cluster), after, min(PAGE, left))
                for record in records:
                    if _has_uid(record, uid):
                        return record.key.namespace
                left -= len(records)
                if len(records) < PAGE:
                    break
                after = position_after(records[-1].key)
                await asyncio.sleep(0)
        return ""

    def _types(self, key: ObjectKey, reference: Reference) -> list[ResourceType]:
        """Return the types of the cluster's objects, that of the reference first."""
        with self._loopback.store.snapshot() as snapshot:
            where = self._lookup.key_of(snapshot, key, reference)
            types = [usage.type for usage in snapshot.usage(key.cluster)]
        return sorted(types, key=lambda type: where is None or type != where.type)

    async def _warn(self, kind: Kind, key: ObjectKey, obj: Object, reference: Reference) -> None:
        owner = (
            f"[{reference.apiVersion}/{reference.kind}, namespace: {key.namespace}, "
            f"name: {reference.name}, uid: {reference.uid}]"
        )
        message = f'ownerRef {owner} does not exist in namespace "{key.namespace}"'
        await warn(self._loopback, kind, obj, Warning(REASON, message, COMPONENT, reference.uid))


def _has_uid(record: Record, uid: bytes) -> bool:
    """Return whether a record is the object of a uid; most are excluded without decoding."""
    return uid in record.value and partial.identity(record.value).uid == uid.decode()
