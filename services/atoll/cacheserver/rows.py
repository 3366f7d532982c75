"""A controller that keeps one row for each replica, with the object's uid and a revision of the cache server's own.

`control.manager` passes the keys of new replicas and of changed rows; each key is reconciled alone: the owning shard's
replica against the stored row. Invariant: a row equals what its replica gives, so a client's change of it is undone,
and a reconcile without a change writes nothing and may be repeated after a crash. An object that was deleted and
created again gets a new row.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator

import msgspec

from atoll.cacheserver.kinds import cache_kinds, row_type
from atoll.machinery.control.manager import ReplicaController
from atoll.machinery.meta.names import CORE, ROOT, ObjectKey, ResourceType, is_system_cluster
from atoll.machinery.meta.objects import LARGE_BYTES, Object, decode, encode, splice, status_of
from atoll.machinery.meta.partial import Partial
from atoll.machinery.meta.types import API_EXPORTS
from atoll.machinery.process.time_slicing import run_sliced
from atoll.machinery.storage.contract import (
    Delete,
    LogEntry,
    ObjectExists,
    ObjectMissing,
    Put,
    Record,
    ReplicaView,
    RevisionConflict,
    Scope,
    Store,
)
from atoll.machinery.storage.pages import each_key_in_snapshots
from atoll.virtualworkspaces.cache_kinds import exporter_of
from atoll.virtualworkspaces.cache_rows import with_source

AGAIN_S = 0.01
#: Time limit for the row of a large object, including the wait for others.
ENCODE_TIMEOUT_S = 34.0
_TYPES = tuple(dict.fromkeys(kind.type for kind in cache_kinds()))


class _Metadata(msgspec.Struct, frozen=True):
    uid: str = ""


_decoder = msgspec.json.Decoder(Partial[_Metadata])


class Rows(ReplicaController):
    """A controller of `control.manager`. Its keys are those of the rows."""

    name = "rows"
    #: Concurrent workers share commits.
    workers = 128
    max_delay_s = 10.0

    def __init__(self, store: Store) -> None:
        self._store = store
        #: The identities of root's exports, with the revisions they were read at.
        self._identities: dict[str, tuple[int, str]] = {}

    # --- keys ---

    def watches(self, type: ResourceType) -> bool:
        """Return whether the type is that of rows."""
        return type in _TYPES

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        """Yield the row: a client may have changed or deleted it."""
        yield entry.key

    def watches_replicas(self, type: ResourceType) -> bool:
        """Return whether the type is served."""
        return row_type(type) in _TYPES

    def keys_of_replica(self, entry: LogEntry) -> Iterable[Hashable]:
        """Yield the row of a replica.

        For an export of root, which sets the identity of its kinds, yield all their rows.
        """
        key = entry.key
        yield ObjectKey(row_type(key.type), key.cluster, key.namespace, key.name)
        if (key.type, key.cluster) == (API_EXPORTS, ROOT):
            for type in _TYPES:
                if exporter_of(type) == key.name:
                    yield from self._keys_of(type)

    def all_keys(self) -> Iterable[ObjectKey]:
        """Yield the keys of all replicas and of all rows."""
        for type in _TYPES:
            yield from self._keys_of(type)

    def _keys_of(self, type: ResourceType) -> Iterator[ObjectKey]:
        """Yield the row keys of a type: of rows, and of replicas."""
        yield from each_key_in_snapshots(self._store, Scope(type))
        with self._store.snapshot() as snapshot:
            source = self._replicated_type(snapshot.replicas, type)
        if source is not None:
            for key in each_key_in_snapshots(self._store, Scope(source), lambda snapshot: snapshot.replicas):
                yield ObjectKey(type, key.cluster, key.namespace, key.name)

    # --- reconcile ---

    async def reconcile(self, key: ObjectKey) -> float | None:
        with self._store.snapshot() as snapshot:
            row, replica = snapshot.get(key), self._replica(snapshot.replicas, key)
            shard = snapshot.replicas.shard_of(key.cluster)
        try:
            if row is not None and (replica is None or _uid(row) != _uid(replica)):
                await self._store.submit([Delete(key, row.revision)])
                row = None
            if replica is not None:
                value, hole = await _encoded(replica, shard)
                if row is None or row.value != splice(value, hole, row.revision):
                    await self._store.submit([Put(key, value, hole, row.revision if row is not None else 0)])
        except (RevisionConflict, ObjectExists, ObjectMissing):
            return AGAIN_S
        return None

    def _replica(self, replicas: ReplicaView, key: ObjectKey) -> Record | None:
        """Return the owning shard's replica of a row's object."""
        source = None if is_system_cluster(key.cluster) else self._replicated_type(replicas, key.type)
        return replicas.get(ObjectKey(source, key.cluster, key.namespace, key.name)) if source is not None else None

    def _replicated_type(self, replicas: ReplicaView, type: ResourceType) -> ResourceType | None:
        """Return the replicated type of a row's object; None before the export with its identity is replicated.

        Any workspace may export kinds of these names; only those of root are the system's.
        """
        exporter = exporter_of(type)
        if not exporter:
            return ResourceType(type.group, type.resource, CORE)
        key = ObjectKey(API_EXPORTS, ROOT, "", exporter)
        revision, (cached, identity) = replicas.revision_of(key), self._identities.get(exporter, (0, ""))
        if revision != cached:
            record = replicas.get(key)
            status = status_of(decode(record.value)) if record is not None else {}
            identity = status.get("identityHash") or ""
            self._identities[exporter] = revision, identity
        return ResourceType(type.group, type.resource, identity) if identity else None


def _uid(record: Record) -> str:
    return _decoder.decode(record.value).metadata.uid


async def _encoded(replica: Record, shard: str) -> tuple[bytes, int]:
    """Return the row of a replica as stored bytes, made in slices if it is large. Raises TimeoutError."""
    if len(replica.value) <= LARGE_BYTES:
        return encode(_row(decode(replica.value), shard, replica.revision))

    def work(pause: Callable[[], None]) -> tuple[bytes, int]:
        obj = decode(replica.value)
        pause()
        return encode(_row(obj, shard, replica.revision), pause)

    return await run_sliced(work, ENCODE_TIMEOUT_S, is_long=True)


def _row(obj: Object, shard: str, revision: int) -> Object:
    """Return the served form of an object: unchanged, but for its revision and source annotations."""
    metadata = {name: value for name, value in obj["metadata"].items() if name != "resourceVersion"}
    return with_source({**obj, "metadata": metadata}, shard, str(revision))
