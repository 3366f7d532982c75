"""Garbage collection: delete dependents after their owners, by the rules of ownerReferences.

Watches: every deletion, every object whose deletion waits for propagation, every object with ownerReferences. There is
no graph in memory: the store's `owners` rows map a uid to its dependents. Writes: deletions of dependents with their
uid as precondition, removal of references and of the two propagation finalizers. Converges because every step is
computed from current state, and the log is replayed after a crash.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import msgspec

from atoll.controllers.kubernetes.invalid_owner_refs import is_in_other_namespace, report
from atoll.machinery.apiserver.call.options import DeleteOptions
from atoll.machinery.apiserver.rest.delete import FOREGROUND, ORPHAN
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import partial, rawscan
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode, finalizers_of, owner_references_of
from atoll.machinery.meta.status import Conflict, NotFound
from atoll.machinery.storage.contract import LogEntry, Operation, Snapshot

_OWNED = rawscan.member("ownerReferences")
_PROPAGATION = (rawscan.string(FOREGROUND), rawscan.string(ORPHAN))


class Reference(msgspec.Struct, frozen=True):
    """One ownerReference."""

    apiVersion: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    blockOwnerDeletion: bool = False


class GarbageCollector:
    """Key: the ObjectKey of an object that may have to be deleted, or whose deletion waits."""

    name = "garbagecollector"
    workers = 4

    def __init__(self, loopback: Loopback) -> None:
        self._loopback = loopback

    def watches(self, type: ResourceType) -> bool:
        return True

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        if entry.sealed:
            yield entry.key
            return
        if entry.operation is Operation.DELETED:
            yield from self._after_deletion(entry)
        elif _OWNED in entry.value or (rawscan.DELETION in entry.value and any(f in entry.value for f in _PROPAGATION)):
            yield entry.key

    def _after_deletion(self, entry: LogEntry) -> Iterable[Hashable]:
        """Yield the dependents of a deleted object, and the owners whose deletion waited for it."""
        owners = references(decode(entry.value)) if _OWNED in entry.value else ()
        with self._loopback.store.snapshot() as snapshot:
            yield from snapshot.owned(entry.key.cluster, partial.identity(entry.value).uid)
            for reference in owners:
                if reference.blockOwnerDeletion:
                    owner = self._owner_key(snapshot, entry.key, reference)
                    if owner is not None:
                        yield owner

    def all_keys(self) -> Iterable[Hashable]:
        """Yield objects with owners or waiting deletions: few, and needed only where the log cannot be resumed."""
        with self._loopback.store.snapshot() as snapshot:
            yield from snapshot.all_owned()

    async def reconcile(self, key: ObjectKey) -> float | None:
        with self._loopback.store.snapshot() as snapshot:
            record = snapshot.get(key)
            kind = self._loopback.core.catalogs.of(snapshot, key.cluster).of_type(key.type)
        if record is None or kind is None:
            return None
        obj = decode(record.value)
        finalizers = finalizers_of(obj)
        if obj["metadata"].get("deletionTimestamp"):
            if ORPHAN in finalizers:
                return await self._orphan(kind, key, obj)
            if FOREGROUND in finalizers:
                return await self._foreground(kind, key, obj)
            return None
        return await self._attempt(kind, key, obj)

    # --- objects whose deletion waits for dependents ---

    async def _orphan(self, kind: Kind, key: ObjectKey, obj: Object) -> float | None:
        uid = obj["metadata"]["uid"]
        for dependent in self._dependents(key.cluster, uid):
            await self._drop_references(dependent, {uid})
        await self._drop_finalizer(kind, key, obj, ORPHAN)
        return None

    async def _foreground(self, kind: Kind, key: ObjectKey, obj: Object) -> float | None:
        uid = obj["metadata"]["uid"]
        blocking = False
        for dependent in self._dependents(key.cluster, uid):
            found = self._read(dependent)
            if found is None:
                continue
            blocking |= any(r.uid == uid and r.blockOwnerDeletion for r in references(found[1]))
            if not found[1]["metadata"].get("deletionTimestamp"):
                await self._attempt(found[0], dependent, found[1])
        if not blocking:
            await self._drop_finalizer(kind, key, obj, FOREGROUND)
        # The deletion of a blocking dependent enqueues this key again.
        return None

    # --- objects with owners ---

    async def _attempt(self, kind: Kind, key: ObjectKey, obj: Object) -> float | None:
        owners = references(obj)
        if not owners:
            return None
        solid, dangling, waiting = self._classified(key, owners)
        await self._report_invalid_owners(kind, key, obj, owners)
        if solid:
            if dangling or waiting:
                await self._drop_references(key, {r.uid for r in (*dangling, *waiting)})
            return None
        policy = "Background"
        if waiting and self._dependents(key.cluster, obj["metadata"]["uid"]):
            policy = "Foreground"
        options = DeleteOptions(policy=policy, uid=obj["metadata"]["uid"])
        try:
            await self._loopback.delete(_target(kind, key), options)
        except Conflict:
            # Another object has the name, or the object changed: that log entry enqueues it again.
            return None
        return None

    def _classified(
        self, key: ObjectKey, owners: list[Reference]
    ) -> tuple[list[Reference], list[Reference], list[Reference]]:
        """Return the owners that exist, that are absent, and that wait for this object in a foreground deletion."""
        solid: list[Reference] = []
        dangling: list[Reference] = []
        waiting: list[Reference] = []
        with self._loopback.store.snapshot() as snapshot:
            for reference in owners:
                owner = self._owner(snapshot, key, reference)
                if owner is None:
                    dangling.append(reference)
                elif _waits(owner) and reference.blockOwnerDeletion:
                    waiting.append(reference)
                else:
                    solid.append(reference)
        return solid, dangling, waiting

    async def _report_invalid_owners(self, kind: Kind, key: ObjectKey, obj: Object, owners: list[Reference]) -> None:
        """Report owners in another namespace, which are invalid, by Events."""
        strays: list[Reference] = []
        with self._loopback.store.snapshot() as snapshot:
            for reference in owners:
                where = self._owner_key(snapshot, key, reference)
                # A cluster-scoped owner of a namespaced object cannot be in a wrong namespace.
                if where is None or (not where.namespace and key.namespace):
                    continue
                if not self._exists(snapshot, where, reference) and is_in_other_namespace(
                    snapshot, where.type, key, reference.name, reference.uid
                ):
                    strays.append(reference)
        for reference in strays:
            await report(self._loopback, kind, obj, msgspec.structs.asdict(reference))

    def _exists(self, snapshot: Snapshot, where: ObjectKey, reference: Reference) -> bool:
        record = snapshot.get(where)
        return record is not None and decode(record.value)["metadata"]["uid"] == reference.uid

    def _owner(self, snapshot: Snapshot, key: ObjectKey, reference: Reference) -> Object | None:
        """Return the owner if it exists with the uid of the reference.

        An owner of a kind that is not served, or not served from this store, counts as present; so does a namespaced
        owner of a cluster-scoped object, which cannot be looked up: as in Kubernetes, the object is not deleted.
        """
        owner_key = self._owner_key(snapshot, key, reference)
        if owner_key is None or (not key.namespace and self._is_namespaced(snapshot, owner_key)):
            return {"metadata": {}}
        record = snapshot.get(owner_key)
        if record is None:
            return None
        owner = decode(record.value)
        return owner if owner["metadata"]["uid"] == reference.uid else None

    def _is_namespaced(self, snapshot: Snapshot, key: ObjectKey) -> bool:
        kind = self._loopback.core.catalogs.of(snapshot, key.cluster).of_type(key.type)
        return kind is not None and kind.namespaced

    def _owner_key(self, snapshot: Snapshot, key: ObjectKey, reference: Reference) -> ObjectKey | None:
        """Return the key of an owner: in the dependent's cluster, and for a namespaced kind in its namespace."""
        group, _, version = reference.apiVersion.rpartition("/")
        for kind in self._loopback.core.catalogs.of(snapshot, key.cluster).kinds.values():
            if (kind.group, kind.version, kind.kind) == (group, version, reference.kind) and kind.virtual is None:
                return ObjectKey(kind.type, key.cluster, key.namespace if kind.namespaced else "", reference.name)
        return None

    # --- writes ---

    def _dependents(self, cluster: str, uid: str) -> list[ObjectKey]:
        with self._loopback.store.snapshot() as snapshot:
            return snapshot.owned(cluster, uid)

    def _read(self, key: ObjectKey) -> tuple[Kind, Object] | None:
        with self._loopback.store.snapshot() as snapshot:
            record = snapshot.get(key)
            kind = self._loopback.core.catalogs.of(snapshot, key.cluster).of_type(key.type)
        return (kind, decode(record.value)) if record is not None and kind is not None else None

    async def _drop_references(self, key: ObjectKey, uids: set[str]) -> None:
        found = self._read(key)
        if found is None:
            return
        kind, obj = found
        metadata = dict(obj["metadata"])
        left = [each for each in owner_references_of(obj) if each.get("uid") not in uids]
        if left:
            metadata["ownerReferences"] = left
        else:
            metadata.pop("ownerReferences", None)
        await self._loopback.update(_target(kind, key), {**obj, "metadata": metadata})

    async def _drop_finalizer(self, kind: Kind, key: ObjectKey, obj: Object, finalizer: str) -> None:
        metadata = dict(obj["metadata"])
        metadata["finalizers"] = [each for each in metadata["finalizers"] if each != finalizer]
        try:
            await self._loopback.update(_target(kind, key), {**obj, "metadata": metadata})
        except NotFound:
            return


def references(obj: Object) -> list[Reference]:
    """Return the ownerReferences of an object."""
    return [msgspec.convert(each, Reference) for each in owner_references_of(obj)]


def _waits(owner: Object) -> bool:
    metadata = owner["metadata"]
    return bool(metadata.get("deletionTimestamp")) and FOREGROUND in finalizers_of(owner)


def _target(kind: Kind, key: ObjectKey) -> Target:
    return Target(kind, key.cluster, key.namespace, key.name)
