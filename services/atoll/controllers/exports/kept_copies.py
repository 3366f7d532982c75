"""Copies of other shards' cached resources, kept as rows of this shard while a workspace here binds them.

Watches: replicas of endpoint slices and of copies, and Shards. Writes: the sets of copies that are followed
(`replication.needed_copies`), a row of this shard's own for each replica of a copy, and, once all rows of a set are
there, a row that says so: readers take them from then on. Own rows have revisions of this shard and stand in its log,
so lists and watches are exact. Converges because a row is made from the current replica, and a marker that arrives has
the whole set compared. A set is needed while a slice has this shard's URL, which `cached_endpointslices` writes there.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

from atoll.controllers.exports.copy_rows import AGAIN, delete_all, each_written, encoded, names_in, write
from atoll.controllers.exports.endpointslice_status import Shards
from atoll.controllers.shard_predicate import ShardChangePredicate
from atoll.machinery.control.manager import ReplicaController
from atoll.machinery.control.queue import Requeue
from atoll.machinery.kcp.apis import cachedresources, copies
from atoll.machinery.kcp.apis.copies import KEPT, MARKER, CopySet
from atoll.machinery.kcp.sharding.shards import virtual_workspace_url
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import decode, encode, status_of
from atoll.machinery.meta.types import CACHED_RESOURCE_ENDPOINT_SLICES, WHOLE_COPIES, is_copy
from atoll.machinery.storage.contract import LogEntry, Record, Rows, Scope, Snapshot, Store
from atoll.machinery.storage.pages import each_key_in_snapshots, each_record
from atoll.replication.needed_copies import NeededCopies
from atoll.tenancy.lookups import Lookups


class KeptCopies(ReplicaController):
    """Key: a set of copies, or the key of the replica of one copy."""

    name = "keptcopies"
    workers = 8
    lists_at_start = True

    def __init__(self, store: Store, facts: Lookups, shard: str, needed: NeededCopies) -> None:
        self._store, self._needed = store, needed
        self._shards, self._shard_type = Shards(facts, shard), facts.identities.shard_objects
        self._shard_changes = ShardChangePredicate()

    # --- keys ---

    def watches(self, type: ResourceType) -> bool:
        return type == self._shard_type

    def watches_replicas(self, type: ResourceType) -> bool:
        return type in {CACHED_RESOURCE_ENDPOINT_SLICES, self._shard_type} or is_copy(type)

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        key = entry.key
        if key.type == self._shard_type:
            if key.name == self._shards.own and self._shard_changes.has_changed(entry):
                yield from self.all_keys()
        elif key.type == CACHED_RESOURCE_ENDPOINT_SLICES:
            yield CopySet(key.cluster, cachedresources.cached_of(decode(entry.value)).name)
        else:
            yield CopySet(key.cluster, key.type.resource) if key.name == MARKER else key

    keys_of_replica = keys

    def all_keys(self) -> Iterable[Hashable]:
        slices = each_key_in_snapshots(
            self._store, Scope(CACHED_RESOURCE_ENDPOINT_SLICES), lambda snapshot: snapshot.replicas
        )
        for key in slices:
            with self._store.snapshot() as snapshot:
                record = snapshot.replicas.get(key)
            if record is not None:
                yield CopySet(key.cluster, cachedresources.cached_of(decode(record.value)).name)
        for key in each_key_in_snapshots(self._store, Scope(WHOLE_COPIES, KEPT)):
            yield CopySet(key.namespace, key.name)
        yield from self._needed.sets()

    # --- reconcile ---

    async def reconcile(self, key: CopySet | ObjectKey) -> Requeue:
        if isinstance(key, ObjectKey):
            each = CopySet(key.cluster, key.type.resource)
            return None if each not in self._needed or await self._write(each, key.name) else AGAIN
        with self._store.snapshot() as snapshot:
            is_needed = self._is_needed(snapshot, key)
        if not is_needed:
            return None if await self._end(key) else AGAIN
        await self._needed.need(key)
        return None if await self._write_all(key) else AGAIN

    def _is_needed(self, view: Snapshot, each: CopySet) -> bool:
        """Whether a slice beside the ClusterCachedResource has this shard's URL."""
        if view.replicas.empty or view.gate(each.cluster).generation:
            return False
        base = virtual_workspace_url(self._shards.own_object(view) or {"metadata": {}})
        for record in each_record(view.replicas, Scope(CACHED_RESOURCE_ENDPOINT_SLICES, each.cluster)) if base else ():
            obj = decode(record.value)
            own = cachedresources.endpoint_url(base, each.cluster, obj["metadata"]["name"])
            endpoints = status_of(obj).get("endpoints") or ()
            if cachedresources.cached_of(obj).name == each.name and any(at.get("url") == own for at in endpoints):
                return True
        return False

    # --- rows ---

    async def _write_all(self, each: CopySet) -> bool:
        """Make the rows of a set those of its replicas, once the marker says that all of these are there."""
        with self._store.snapshot() as snapshot:
            marker, whole = snapshot.replicas.get(each.key(MARKER)), snapshot.get(each.whole)
        uid = copies.uid_of(marker.value) if marker is not None else ""
        if whole is not None and copies.uid_of(whole.value) not in {"", uid}:
            # The copies are made anew: readers wait.
            return await self._set_whole(each, whole, "")
        if not uid:
            return True

        async def one(name: str) -> bool:
            return name == MARKER or await self._write(each, name)

        replicas, kept = Scope(each.type, each.cluster), Scope(each.type, KEPT, each.cluster)
        settled = await each_written(names_in(self._store, replicas, _replicas), one)
        settled = await each_written(names_in(self._store, kept, _own), one) and settled
        return settled and await self._set_whole(each, whole, uid)

    async def _set_whole(self, each: CopySet, stored: Record | None, uid: str) -> bool:
        """Say of which ClusterCachedResource all copies are here. False: to be looked at again."""
        done = await write(self._store, each.whole, stored, lambda _: encode(copies.marker_of(each.whole, uid)))
        return done and bool(uid)

    async def _write(self, each: CopySet, name: str) -> bool:
        key = each.kept_key(name)
        with self._store.snapshot() as snapshot:
            replica, stored = snapshot.replicas.get(each.key(name)), snapshot.get(key)
        if replica is None:
            return await write(self._store, key, stored, None)
        made = await encoded(_encoder(key, replica), len(replica.value))
        return await write(self._store, key, stored, made)

    async def _end(self, each: CopySet) -> bool:
        """Keep nothing of a set. Twice, as a row may have been under way when it was released."""
        with self._store.snapshot() as snapshot:
            whole = snapshot.get(each.whole)
        if not await write(self._store, each.whole, whole, None):
            return False
        kept = Scope(each.type, KEPT, each.cluster)
        await delete_all(self._store, kept)
        await self._needed.release(each)
        await delete_all(self._store, kept)
        return True


def _own(snapshot: Snapshot) -> Rows:
    return snapshot


def _replicas(snapshot: Snapshot) -> Rows:
    return snapshot.replicas


def _encoder(key: ObjectKey, replica: Record) -> Callable[[Callable[[], None]], tuple[bytes, int]]:
    return lambda _: copies.kept_row(key, replica.value)
