"""Copies of cached resources for other shards: what a ClusterCachedResource selects, while a shard elsewhere binds it.

Watches: ClusterCachedResources, their endpoint slices, APIExports, definitions, and the objects themselves. Writes: one
row for each selected object beside it, and a marker behind the last (`kcp.apis.copies`), while a slice has the URL of
another shard, which writes it there with its first binding; otherwise none. Converges because a row is made from the
current object, and one that says the same is not written. A workspace that is being deleted is left to the deletion.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator

import msgspec

from atoll.controllers.exports.cachedresources import kind_of
from atoll.controllers.exports.copy_rows import AGAIN, delete_all, each_written, encoded, names_in, write
from atoll.controllers.exports.endpointslice_status import Shards
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.control.manager import Controller
from atoll.machinery.control.queue import Requeue
from atoll.machinery.kcp.apis import cachedresources, copies, endpointslices
from atoll.machinery.kcp.apis.copies import MARKER, CopySet
from atoll.machinery.kcp.sharding.replication_level import level_of, widest_level, with_derived_level
from atoll.machinery.kcp.sharding.shards import virtual_workspace_url
from atoll.machinery.meta import partial
from atoll.machinery.meta.names import ObjectKey, ResourceType, is_system_cluster
from atoll.machinery.meta.objects import Object, decode, encode, status_of
from atoll.machinery.meta.selectors import LabelSelector
from atoll.machinery.meta.types import (
    API_BINDINGS,
    API_EXPORTS,
    CACHED_RESOURCE_ENDPOINT_SLICES,
    CACHED_RESOURCES,
    CRDS,
    is_copy,
)
from atoll.machinery.storage.contract import GateState, GateUnchanged, LogEntry, Record, Rows, Scope, Snapshot
from atoll.machinery.storage.pages import each_record, each_revision
from atoll.tenancy.lookups import Lookups

_DEFINITIONS = frozenset({CRDS, API_BINDINGS})
_GOING = (GateState.DELETING, GateState.CLOSED)


class Source(msgspec.Struct, frozen=True):
    """What is copied: the objects of a type that match, of the ClusterCachedResource with this uid."""

    type: ResourceType
    selector: LabelSelector
    uid: str
    level: str


class CachedCopies(Controller):
    """Key: a set of copies, or the key of one copy."""

    name = "cachedcopies"
    workers = 4
    lists_at_start = True

    def __init__(self, loopback: Loopback, facts: Lookups, shard: str) -> None:
        self._loopback, self._facts, self._store = loopback, facts, loopback.store
        self._shards = Shards(facts, shard)
        #: By cluster, the sets that are kept current, and the type of their objects.
        self._followed: dict[str, dict[CopySet, ResourceType]] = {}

    # --- keys ---

    def watches(self, type: ResourceType) -> bool:
        return not is_copy(type)

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        key = entry.key
        if key.type == CACHED_RESOURCES:
            yield CopySet(key.cluster, key.name)
        elif key.type == CACHED_RESOURCE_ENDPOINT_SLICES:
            yield CopySet(key.cluster, cachedresources.cached_of(decode(entry.value)).name)
        elif key.type == API_EXPORTS:
            yield from self._sets_of(key.cluster)
        elif not key.namespace and (followed := self._followed.get(key.cluster)) is not None:
            if key.type in _DEFINITIONS:
                yield from tuple(followed)
            yield from [each.key(key.name) for each, type in followed.items() if type == key.type]

    def _sets_of(self, cluster: str) -> Iterator[CopySet]:
        with self._store.snapshot() as snapshot:
            if snapshot.last(CACHED_RESOURCES, cluster):
                yield from (
                    CopySet(cluster, key.name) for key, _ in each_revision(snapshot, Scope(CACHED_RESOURCES, cluster))
                )

    def all_keys(self) -> Iterable[Hashable]:
        for key in self._loopback.keys(Scope(CACHED_RESOURCES)):
            yield CopySet(key.cluster, key.name)
        with self._store.snapshot() as snapshot:
            types = [usage.type for usage in snapshot.usage("") if is_copy(usage.type)]
        for type in types:
            for key in self._loopback.keys(Scope(type)):
                yield CopySet(key.cluster, type.resource) if key.name == MARKER else None

    # --- reconcile ---

    async def reconcile(self, key: CopySet | ObjectKey) -> Requeue:
        each = key if isinstance(key, CopySet) else CopySet(key.cluster, key.type.resource)
        if is_system_cluster(each.cluster):
            return None
        with self._store.snapshot() as snapshot:
            source, gate = self._source(snapshot, each), snapshot.gate(each.cluster)
        if gate.state in _GOING:
            self._follow(each, None)
            return None
        guard = GateUnchanged(each.cluster, gate.generation)
        if isinstance(key, ObjectKey):
            return None if source is None or await self._write(each, source, key.name, guard) else AGAIN
        if source is None:
            self._follow(each, None)
            return None if await self._end(each) else AGAIN
        self._follow(each, source.type)
        return None if await self._write_all(each, source, guard) else AGAIN

    def _follow(self, each: CopySet, type: ResourceType | None) -> None:
        """Begin before the objects are read, so that no change between the two is missed."""
        followed = self._followed.setdefault(each.cluster, {})
        if type is not None:
            followed[each] = type
        else:
            followed.pop(each, None)
        if not followed:
            del self._followed[each.cluster]

    def _source(self, view: Snapshot, each: CopySet) -> Source | None:
        """Return what is copied; None while no other shard binds it."""
        record = view.get(ObjectKey(CACHED_RESOURCES, each.cluster, "", each.name))
        obj = decode(record.value) if record is not None else {"metadata": {"deletionTimestamp": ""}}
        if "deletionTimestamp" in obj["metadata"]:
            return None
        levels = [level_of(export) for export in self._exports(view, each, obj)]
        kind = kind_of(self._loopback.core.catalogs, view, each.cluster, obj) if levels else None
        if kind is None or kind.namespaced or kind.virtual is not None:
            return None
        selector = cachedresources.selector_of(obj)
        return Source(kind.type, selector, partial.identity(record.value).uid if record else "", widest_level(levels))

    def _exports(self, view: Snapshot, each: CopySet, cached: Object) -> Iterator[Object]:
        """Yield the exports that offer a ClusterCachedResource beside them through a slice that another shard uses."""
        for found in each_record(view, Scope(CACHED_RESOURCE_ENDPOINT_SLICES, each.cluster)):
            obj = decode(found.value)
            reference, export = cachedresources.cached_of(obj), endpointslices.reference_of(obj)
            if reference.name != each.name or not self._has_remote_endpoint(view, each.cluster, obj):
                continue
            if {self._facts.cluster_of(view, at.path) for at in (reference, export)} != {each.cluster}:
                continue
            record = view.get(ObjectKey(API_EXPORTS, each.cluster, "", export.name))
            offer = decode(record.value) if record is not None else None
            if offer is not None and cachedresources.offered_by(offer, cached):
                yield offer

    def _has_remote_endpoint(self, view: View, cluster: str, obj: Object) -> bool:
        base = virtual_workspace_url(self._shards.own_object(view) or {"metadata": {}})
        own = cachedresources.endpoint_url(base, cluster, obj["metadata"]["name"])
        return any(endpoint.get("url") != own for endpoint in status_of(obj).get("endpoints") or ())

    # --- rows ---

    async def _write_all(self, each: CopySet, source: Source, guard: GateUnchanged) -> bool:
        """Write every copy, delete what is not selected, and write the marker behind them."""
        key = each.key(MARKER)
        with self._store.snapshot() as snapshot:
            marker = snapshot.get(key)
        if marker is not None and copies.uid_of(marker.value) != source.uid:
            # Of another ClusterCachedResource of this name: readers elsewhere wait until all of this one is there.
            if not await write(self._store, key, marker, None):
                return False
            marker = None

        async def one(name: str) -> bool:
            return name == MARKER or await self._write(each, source, name, guard)

        for scope in (Scope(source.type, each.cluster), Scope(each.type, each.cluster)):
            if not await each_written(names_in(self._store, scope, _own), one):
                return False
        return await write(
            self._store,
            key,
            marker,
            lambda _: encode(with_derived_level(copies.marker_of(key, source.uid), source.level)),
            guard,
        )

    async def _write(self, each: CopySet, source: Source, name: str, guard: GateUnchanged) -> bool:
        key = each.key(name)
        with self._store.snapshot() as snapshot:
            record = snapshot.get(ObjectKey(source.type, each.cluster, "", name))
            stored = snapshot.get(key)
        if record is None or not source.selector.matches(partial.labels(record.value)):
            return await write(self._store, key, stored, None)
        made = await encoded(_encoder(key, record, source.level), len(record.value))
        return await write(self._store, key, stored, made, guard)

    async def _end(self, each: CopySet) -> bool:
        """Delete the marker, then the copies: another shard must not take what is left for all of them."""
        key = each.key(MARKER)
        with self._store.snapshot() as snapshot:
            marker = snapshot.get(key)
        if not await write(self._store, key, marker, None):
            return False
        await delete_all(self._store, Scope(each.type, each.cluster))
        return True


def _own(snapshot: Snapshot) -> Rows:
    return snapshot


def _encoder(key: ObjectKey, record: Record, level: str) -> Callable[[Callable[[], None]], tuple[bytes, int]]:
    def work(pause: Callable[[], None]) -> tuple[bytes, int]:
        obj = decode(record.value)
        pause()
        row = with_derived_level(copies.copy_of(key, obj), level)
        pause()
        return encode(row)

    return work
