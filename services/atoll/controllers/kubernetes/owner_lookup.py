"""Owners of an object: which exist, which are absent, and which wait in a foreground deletion.

The garbage collector calls `OwnerLookup`. An owner is looked up by kind, name and the dependent's namespace, and exists
if its uid is that of the reference. Invariant: an owner that cannot be looked up is never absent, so that no object is
deleted for an owner that may exist.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from atoll.controllers.kubernetes.owner_references import Reference
from atoll.machinery.apiserver.rest.delete import FOREGROUND
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import Object, decode, finalizers_of
from atoll.machinery.storage.contract import Snapshot

#: Number of deleted owners remembered, as many as Kubernetes remembers.
MAX_DELETED = 500


class Owners(NamedTuple):
    """The references of one object: owners that exist, that are absent, and that wait for their dependents."""

    solid: list[Reference]
    dangling: list[Reference]
    waiting: list[Reference]


class OwnerUnresolved(Exception):
    """An owner cannot be looked up: its kind is not served here, or it is namespaced and the dependent is not."""


class OwnerLookup:
    """Looks up the owners of objects in the store of this shard."""

    def __init__(self, loopback: Loopback) -> None:
        self._loopback = loopback
        #: (cluster, uid) to the namespace of owners deleted in the log: their kind may be gone with them.
        self._deleted: LruCache[tuple[str, str], str] = LruCache(MAX_DELETED)

    def note_deleted(self, owner: ObjectKey, uid: str) -> None:
        """Remember that the object with this uid was deleted. A uid is never used again."""
        self._deleted.put((owner.cluster, uid), owner.namespace)

    def was_deleted(self, cluster: str, uid: str) -> bool:
        """Return whether a deletion is remembered."""
        return self._deleted.get((cluster, uid)) is not None

    def classified(self, key: ObjectKey, found: Iterable[Reference]) -> Owners:
        """Return the references of an object by the state of their owners. Raises OwnerUnresolved."""
        owners = Owners([], [], [])
        with self._loopback.store.snapshot() as snapshot:
            for reference in found:
                owner = self._owner(snapshot, key, reference)
                if owner is None:
                    owners.dangling.append(reference)
                elif is_in_foreground_deletion(owner):
                    owners.waiting.append(reference)
                else:
                    owners.solid.append(reference)
        return owners

    def key_of(self, snapshot: Snapshot, key: ObjectKey, reference: Reference) -> ObjectKey | None:
        """Return the key of an owner, in the dependent's cluster and, of a namespaced kind, in its namespace.

        None if the kind is not served from this store. Of a kind with objects that are stored apart it is the key with
        the uid of the reference.
        """
        found = [
            ObjectKey(kind.type, key.cluster, key.namespace if kind.namespaced else "", reference.name)
            for kind in self._kinds(snapshot, key.cluster, reference)
        ]
        if len(found) < 2:
            return found[0] if found else None
        return next((each for each in found if self._read(snapshot, each, reference.uid) is not None), found[0])

    def _kinds(self, snapshot: Snapshot, cluster: str, reference: Reference) -> list[Kind]:
        group, _, version = reference.apiVersion.rpartition("/")
        catalogs = self._loopback.core.catalogs
        own = catalogs.of(snapshot, cluster)
        served = (kind for kind in own.by_version.get((group, version), ()) if kind.kind == reference.kind)
        found = [kind for kind in served if kind.virtual is None][:1]
        apart = catalogs.edge.denatured(own, group, version, reference.kind)
        return [*found, apart] if apart is not None else found

    def _read(self, snapshot: Snapshot, key: ObjectKey, uid: str) -> Object | None:
        record = snapshot.get(key)
        obj = decode(record.value) if record is not None else None
        return obj if obj is not None and obj["metadata"]["uid"] == uid else None

    def _owner(self, snapshot: Snapshot, key: ObjectKey, reference: Reference) -> Object | None:
        if self._deleted.get((key.cluster, reference.uid)) in ("", key.namespace):
            return None
        owner_key = self.key_of(snapshot, key, reference)
        if owner_key is None:
            raise OwnerUnresolved(f"{reference.apiVersion} {reference.kind} is not served")
        if not key.namespace and self._is_namespaced(snapshot, owner_key):
            raise OwnerUnresolved("a cluster-scoped object cannot have a namespaced owner")
        return self._read(snapshot, owner_key, reference.uid)

    def _is_namespaced(self, snapshot: Snapshot, key: ObjectKey) -> bool:
        kind = self._loopback.core.catalogs.kind_of(snapshot, key.cluster, key.type)
        return kind is not None and kind.namespaced


def is_in_foreground_deletion(obj: Object) -> bool:
    """Return whether an object's deletion waits for its dependents."""
    metadata = obj["metadata"]
    return bool(metadata.get("deletionTimestamp")) and FOREGROUND in finalizers_of(obj)
