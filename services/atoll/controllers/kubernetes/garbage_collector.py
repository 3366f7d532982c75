"""Garbage collection: delete dependents after their owners, by the rules of ownerReferences.

Watches: every deletion, every object whose deletion waits for propagation, every object with ownerReferences, and
references that stop blocking the deletion of an owner. There is no graph in memory: the store's `owners` rows map a uid
to its dependents. Writes: deletions of dependents at the revision at which their owners were looked up, removal of
references and of the two propagation finalizers. Converges because every step is computed from current state, and the
log is replayed after a crash.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from atoll.controllers.kubernetes.invalid_owner_refs import InvalidOwnerRefs
from atoll.controllers.kubernetes.owner_lookup import OwnerLookup, OwnerUnresolved, is_in_foreground_deletion
from atoll.controllers.kubernetes.owner_references import (
    Reference,
    blocking,
    references,
    stored_references,
    without_blocking,
    without_owners,
)
from atoll.machinery.apiserver.call.options import DeleteOptions
from atoll.machinery.apiserver.rest.delete import FOREGROUND, ORPHAN
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.control.manager import Controller
from atoll.machinery.control.queue import Requeue
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import partial, rawscan
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode, finalizers_of
from atoll.machinery.meta.status import ApiError, Conflict, NotFound
from atoll.machinery.process.backoff import Backoff
from atoll.machinery.storage.contract import LogEntry, Operation, StoreError

#: When a foreground deletion looks at its dependents again; their log entries enqueue it too.
BLOCKED = Backoff(5.0, 300.0)
#: Number of waiting owners remembered.
MAX_BLOCKED = 4096
#: Schemas have a field of that name, whose value is no list.
_OWNED = rawscan.member("ownerReferences", "[")
_PROPAGATION = (rawscan.string(FOREGROUND), rawscan.string(ORPHAN))


class GarbageCollector(Controller):
    """Key: the ObjectKey of an object that may have to be deleted, or whose deletion waits."""

    name = "garbagecollector"
    workers = 4

    def __init__(self, loopback: Loopback) -> None:
        self._loopback = loopback
        self._owners = OwnerLookup(loopback)
        self._invalid = InvalidOwnerRefs(loopback, self._owners)
        #: (cluster, uid) of owners that wait in the foreground: a reference may name them wrongly.
        self._blocked: LruCache[tuple[str, str], ObjectKey] = LruCache(MAX_BLOCKED)

    # --- keys ---

    def watches(self, type: ResourceType) -> bool:
        return True

    def ends_with_cluster(self, type: ResourceType) -> bool:
        return True

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        value, before = entry.value, entry.before
        if entry.sealed:
            change = self._loopback.store.change(entry.revision)
            if change is None:
                yield entry.key
                return
            value, before = change.after, change.before or b""
        if entry.operation is Operation.DELETED:
            yield from self._after_deletion(entry.key, value)
            return
        if _OWNED in value or (rawscan.DELETION in value and any(name in value for name in _PROPAGATION)):
            yield entry.key
        if _OWNED in before:
            yield from self._unblocked(entry.key, before, value)

    def _after_deletion(self, key: ObjectKey, value: bytes) -> Iterable[Hashable]:
        """Yield the dependents of a deleted object, and the owners whose deletion waited for it."""
        uid = partial.identity(value).uid
        with self._loopback.store.snapshot() as snapshot:
            dependents = snapshot.owned(key.cluster, uid)
        if dependents:
            self._owners.note_deleted(key, uid)
        yield from dependents
        yield from self._unblocked(key, value, b"")

    def _unblocked(self, key: ObjectKey, before: bytes, after: bytes) -> Iterable[Hashable]:
        """Yield the owners whose deletion an object blocked before a change, and does not block after it."""
        ended = blocking(stored_references(before))
        for uid in blocking(stored_references(after)) if ended else ():
            ended.pop(uid, None)
        if ended:
            yield from self._owner_keys(key, ended.values())

    def _owner_keys(self, key: ObjectKey, found: Iterable[Reference]) -> Iterable[ObjectKey]:
        with self._loopback.store.snapshot() as snapshot:
            owners = [
                self._blocked.get((key.cluster, reference.uid)) or self._owners.key_of(snapshot, key, reference)
                for reference in found
            ]
        return [owner for owner in owners if owner is not None]

    def all_keys(self) -> Iterable[Hashable]:
        """Yield objects with owners and all under deletion: few, and needed only where the log cannot be resumed."""
        with self._loopback.store.snapshot() as snapshot:
            yield from snapshot.all_owned()
            yield from snapshot.under_deletion()

    # --- reconcile ---

    async def reconcile(self, key: ObjectKey) -> Requeue:
        found = self._read(key)
        if found is None:
            return None
        kind, obj = found
        finalizers = finalizers_of(obj)
        if not obj["metadata"].get("deletionTimestamp"):
            await self._attempt(kind, key, obj)
        elif ORPHAN in finalizers:
            await self._orphan(kind, key, obj)
        elif FOREGROUND in finalizers:
            return await self._foreground(kind, key, obj)
        return None

    # --- objects whose deletion waits for dependents ---

    async def _orphan(self, kind: Kind, key: ObjectKey, obj: Object) -> None:
        """Release the dependents, then the owner. Raises the last error of a dependent."""
        uid, failed = obj["metadata"]["uid"], None
        for dependent in self._dependents(key.cluster, uid):
            found = self._read(dependent)
            if found is None:
                continue
            try:
                await self._update(found[0], dependent, without_owners(found[1], {uid}))
            except (ApiError, StoreError) as error:
                failed = error
        if failed is not None:
            raise failed
        await self._drop_finalizer(kind, key, obj, ORPHAN)

    async def _foreground(self, kind: Kind, key: ObjectKey, obj: Object) -> Requeue:
        """Delete the dependents; remove the finalizer if none blocks. Raises the last error of a dependent."""
        uid, is_blocked, failed = obj["metadata"]["uid"], False, None
        for dependent in self._dependents(key.cluster, uid):
            found = self._read(dependent)
            if found is None:
                continue
            is_blocked |= uid in blocking(references(found[1]))
            if not found[1]["metadata"].get("deletionTimestamp"):
                try:
                    await self._attempt(found[0], dependent, found[1])
                except (ApiError, StoreError) as error:
                    failed = error
        if is_blocked:
            self._blocked.put((key.cluster, uid), key)
        else:
            await self._drop_finalizer(kind, key, obj, FOREGROUND)
        if failed is not None:
            raise failed
        return BLOCKED if is_blocked else None

    # --- objects with owners ---

    async def _attempt(self, kind: Kind, key: ObjectKey, obj: Object) -> None:
        """Delete an object without an existing owner; remove its references to absent and waiting owners else."""
        found = references(obj)
        if not found:
            return
        await self._invalid.report(kind, key, obj, found)
        try:
            owners = self._owners.classified(key, found)
        except OwnerUnresolved:
            # As in Kubernetes the object is left as it is.
            return
        if owners.solid:
            gone = {reference.uid for reference in (*owners.dangling, *owners.waiting)}
            if gone:
                await self._update(kind, key, without_owners(obj, gone))
            return
        metadata = obj["metadata"]
        policy = _policy(finalizers_of(obj))
        dependents = self._dependents(key.cluster, metadata["uid"]) if owners.waiting else []
        if dependents:
            policy = "Foreground"
            if blocking(found) and self._any_waits(dependents):
                # A circle of owners: each would wait for the next. The log entry enqueues this key again.
                await self._update(kind, key, without_blocking(obj))
                return
        options = DeleteOptions(policy=policy, uid=metadata["uid"], resource_version=metadata["resourceVersion"])
        try:
            await self._loopback.delete(_target(kind, key), options)
        except Conflict:
            # Another object has the name, or the object changed: that log entry enqueues it again.
            return

    def _any_waits(self, dependents: Iterable[ObjectKey]) -> bool:
        """Return whether one of these objects is itself in a foreground deletion."""
        for dependent in dependents:
            found = self._read(dependent)
            if found is not None and is_in_foreground_deletion(found[1]):
                return True
        return False

    # --- reads and writes ---

    def _dependents(self, cluster: str, uid: str) -> list[ObjectKey]:
        with self._loopback.store.snapshot() as snapshot:
            return snapshot.owned(cluster, uid)

    def _read(self, key: ObjectKey) -> tuple[Kind, Object] | None:
        with self._loopback.store.snapshot() as snapshot:
            record = snapshot.get(key)
            catalogs = self._loopback.core.catalogs
            kind = catalogs.base.of_type(key.type) or catalogs.kind_of(snapshot, key.cluster, key.type)
        return (kind, decode(record.value)) if record is not None and kind is not None else None

    async def _drop_finalizer(self, kind: Kind, key: ObjectKey, obj: Object, finalizer: str) -> None:
        left = [each for each in obj["metadata"]["finalizers"] if each != finalizer]
        await self._update(kind, key, {**obj, "metadata": {**obj["metadata"], "finalizers": left}})

    async def _update(self, kind: Kind, key: ObjectKey, obj: Object) -> None:
        """Replace an object at the revision at which it was read, unless it is gone. Raises Conflict."""
        try:
            await self._loopback.update(_target(kind, key), obj)
        except NotFound:
            return


def _policy(finalizers: Sequence[str]) -> str:
    """Return the policy that an object asks for by its finalizers."""
    if ORPHAN in finalizers:
        return "Orphan"
    return "Foreground" if FOREGROUND in finalizers else "Background"


def _target(kind: Kind, key: ObjectKey) -> Target:
    return Target(kind, key.cluster, key.namespace, key.name)
