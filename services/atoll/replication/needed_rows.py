"""The Workspaces and LogicalClusters of other shards that this shard keeps, as its store says, and copies of theirs.

A follower with `needed_only` makes one. The replica writer reports what it wrote, `watch` reads this shard's own
objects from its log, and each consumer of a shard asks for its `ShardSelection`. Invariant: after `load` the answers
follow from the store; an object that is not needed has no row once its shard's consumer has released it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeAlias

import structlog

from atoll.machinery.kcp.sharding.ownership import ROOT_SHARD, claim_of, record_of
from atoll.machinery.kcp.sharding.stream_policy import INTERNAL, REPLICATED, REPLICATED_IF_ANNOTATED
from atoll.machinery.meta import rawscan
from atoll.machinery.meta.names import ROOT, ObjectKey, ResourceType
from atoll.machinery.meta.types import COPIES_GROUP, LOGICAL_CLUSTERS, is_copy
from atoll.machinery.meta.wellknown import MOVED_TO, SINGLETON
from atoll.machinery.storage.contract import Change, CorruptRecord, Cursor, Operation, Position, Record, Scope, Snapshot
from atoll.machinery.storage.pages import position_after
from atoll.machinery.stream.subjects import STATE, control_subject, group_filter, resource_filter
from atoll.replication.needed_clusters import CHILD, MOVED, NAMED, ROWS, SOUGHT, NeededClusters, Reason, Workspace
from atoll.replication.needed_copies import NeededCopies
from atoll.replication.notifications import OwnerChange, ReplicaChange
from atoll.replication.readable_pages import readable
from atoll.replication.replica_writer import ReplicaWriter
from atoll.replication.root_types import RootTypes

log = structlog.get_logger()

#: The resources of which only needed objects are kept; all others that shards publish are kept whole.
SELECTED = (("core.kcp.io", "logicalclusters"), ("tenancy.kcp.io", "workspaces"))
_INTERNAL = {(type.group, type.resource) for type in INTERNAL}
_WHOLE = sorted((REPLICATED | REPLICATED_IF_ANNOTATED | _INTERNAL).difference(SELECTED))
_PAGE = 500
#: Above every generation of rows.
_ALL = (1 << 63) - 1
_MARKER = rawscan.text(MOVED_TO)
#: Takes an object of this shard: its key, its value (empty: deleted) and the value before.
_Take: TypeAlias = Callable[..., None]


def whole_filters(shard: str) -> tuple[str, ...]:
    """The filters of the resources that are followed whole, with the control subject."""
    return (*(resource_filter(STATE, shard, *each) for each in _WHOLE), control_subject(STATE, shard))


def is_selected(type: ResourceType) -> bool:
    """Whether only needed objects of a type are kept."""
    return (type.group, type.resource) in SELECTED


class NeededRows:
    """What this shard keeps of others. `changed` is called with a shard whose selection changed, "" for all."""

    def __init__(self, writer: ReplicaWriter, types: RootTypes, changed: Callable[[str], None]) -> None:
        self._writer, self._store, self._types = writer, writer.store, types
        self._notify = changed
        self.copies = NeededCopies(writer, lambda: self._changed(""))
        self._clusters = self._without_needs()
        self._versions: dict[str, int] = {}
        #: By cluster and name of an own Workspace, the cluster on another shard that it names.
        self._named: dict[Workspace, str] = {}
        self._own: tuple[tuple[ResourceType, _Take], ...] = (
            (LOGICAL_CLUSTERS, self._own_cluster),
            (types.workspaces, self._own_workspace),
        )
        self._cursors: list[tuple[Cursor, _Take]] = []
        self._sought: set[str] = set()
        #: By workspace path, the clusters on it, each with the Workspace that is next.
        self._places: dict[str, tuple[Workspace, ...]] = {}
        #: The homes here whose markers on the shard `root` are needed.
        self._homes: set[str] = set()
        #: Called with the clusters whose owner was decided and the Workspaces that were written, if set.
        self.arrived: Callable[[Sequence[Workspace]], None] | None = None
        #: Set, and replaced, whenever an owner was decided or all that is wanted of a shard was read.
        self._progress = asyncio.Event()

    def _without_needs(self) -> NeededClusters:
        return NeededClusters(self._seat, self._held_from, self._changed)

    def keeps(self, key: ObjectKey) -> bool:
        """Whether a replica of an object is kept."""
        if is_copy(key.type):
            return self.copies.keeps(key)
        if not is_selected(key.type):
            return True
        if key.type == LOGICAL_CLUSTERS:
            return self._clusters.needs(key.cluster) or key.cluster in self._homes
        return key.type == self._types.workspaces and self._clusters.needs_workspace(key.cluster, key.name)

    def of(self, origin: str) -> ShardSelection:
        """Return the selection of a followed shard."""
        return ShardSelection(self, origin)

    def wanted(self, origin: str) -> set[ObjectKey]:
        """The objects that are followed one by one from a shard, and the sets of copies."""
        clusters, type = self._clusters, self._types.workspaces
        found = {_cluster_key(cluster) for cluster in clusters.clusters_of(origin)}
        found.update(ObjectKey(type, cluster, "", name) for cluster, name in clusters.workspaces_of(origin))
        if origin == ROOT_SHARD:
            found.update(map(_cluster_key, self._homes))
        return found | self.copies.wanted(origin)

    def version(self, origin: str) -> int:
        """A number that rises when `wanted` may have changed."""
        return self._versions.get(origin, 0) + self._versions.get("", 0)

    # --- what requests here depend on ---

    def seek(self, cluster: str) -> None:
        """Need a cluster because a request here depends on its owner, until `release_sought`."""
        self._sought.add(cluster)
        self._clusters.add(cluster, Reason(SOUGHT, "", cluster))

    def release_sought(self, cluster: str) -> None:
        """No request depends on a cluster any more."""
        self._sought.discard(cluster)
        self._clusters.remove(cluster, Reason(SOUGHT, "", cluster))

    def follow_marker(self, home: str) -> None:
        """Need what the shard `root` says of a home here, until `release_marker`."""
        if home not in self._homes:
            self._homes.add(home)
            self._changed(ROOT_SHARD)

    def release_marker(self, home: str) -> None:
        """Need no more of what the shard `root` says of a home here."""
        if home in self._homes:
            self._homes.discard(home)
            self._changed(ROOT_SHARD)

    def place(self, path: str, places: Sequence[Workspace]) -> None:
        """Need the clusters and Workspaces on a path that a request names, instead of those before; none: no more."""
        before, now = self._places.pop(path, ()), tuple(places)
        if now:
            self._places[path] = now
        for number, (cluster, name) in enumerate(now):
            self._clusters.add(cluster, _of_path(path, number, cluster), name)
        for number, (cluster, _) in enumerate(before):
            if number >= len(now) or now[number][0] != cluster:
                self._clusters.remove(cluster, _of_path(path, number, cluster))

    def owner(self, cluster: str) -> str:
        """The shard of a cluster, "" while it is not known."""
        return self._seat(cluster)

    def has_owner(self, cluster: str) -> bool:
        """Whether the shard of a cluster is known."""
        return bool(self._seat(cluster))

    async def progress(self) -> None:
        """Return when an owner was decided, or all that is wanted of a shard was read."""
        await self._progress.wait()

    def announce(self) -> None:
        """An owner was decided, or all that is wanted of a shard was read."""
        progress, self._progress = self._progress, asyncio.Event()
        progress.set()

    # --- at the start ---

    async def load(self, origins: Sequence[str]) -> None:
        """Learn the needs from this shard's objects and the rows held, and drop the rows that are not needed.

        Before any shard is followed. A store that held all Workspaces and LogicalClusters is narrowed here.
        """
        self._clusters, self._named = self._without_needs(), {}
        self._open_cursors()
        for cluster in self._sought:
            self.seek(cluster)
        for path, places in list(self._places.items()):
            self.place(path, places)
        for type, take in self._own:
            await self._load_own(type, take)
        for origin in origins:
            for page in self._keys(origin):
                for key in page:
                    if not is_selected(key.type):
                        self._clusters.add(key.cluster, Reason(ROWS, origin, key.cluster))
                await asyncio.sleep(0)
        dropped = 0
        for origin in origins:
            for page in self._keys(origin):
                superfluous = [key for key in page if not self.keeps(key)]
                dropped += len(superfluous)
                await self.release(origin, superfluous)
        log.info("needed clusters of other shards", clusters=len(self._clusters), dropped_rows=dropped)

    def _open_cursors(self) -> None:
        self.close()
        with self._store.snapshot() as snapshot:
            at = snapshot.revision
        self._cursors = [(self._store.cursor(Scope(type), at), take) for type, take in self._own]

    async def _load_own(self, type: ResourceType, take: _Take) -> None:
        after: Position | None = None
        while True:
            with self._store.snapshot() as snapshot:
                page = readable(snapshot.scan, Scope(type), after, _PAGE)
                for record in page:
                    take(snapshot, record.key, record.value)
            if not page:
                return
            after = position_after(page[-1].key)
            await asyncio.sleep(0)

    def _keys(self, origin: str) -> Iterator[list[ObjectKey]]:
        """Yield pages of the keys of every row of a shard."""
        after: ObjectKey | None = None
        while True:
            with self._store.snapshot() as snapshot:
                keys, after = snapshot.replicas.outdated(origin, _ALL, after, _PAGE)
            yield keys
            if after is None:
                return

    # --- this shard's objects ---

    async def watch(self) -> None:
        """Follow this shard's objects until cancelled. After `load`."""
        await asyncio.gather(*(self._watch(cursor, take) for cursor, take in self._cursors))

    def close(self) -> None:
        for cursor, _ in self._cursors:
            cursor.close()
        self._cursors = []

    async def _watch(self, cursor: Cursor, take: _Take) -> None:
        while True:
            changes = cursor.read(_PAGE)
            with self._store.snapshot() as snapshot:
                for change in changes:
                    gone = change.operation is Operation.DELETED
                    take(snapshot, change.key, b"" if gone else change.after, change.before or b"")
            if any(_moved_now(change) for change in changes):
                # Its children have their Workspaces on another shard from now on.
                await self._load_own(*self._own[0])
            await (asyncio.sleep(0) if len(changes) == _PAGE else cursor.wait())

    def _own_cluster(self, snapshot: Snapshot, key: ObjectKey, value: bytes, before: bytes = b"") -> None:
        cluster = key.cluster
        record, reason = record_of(cluster, value or before), Reason(MOVED, "", cluster)
        if record is not None and record.successor and value:
            self._clusters.add(cluster, reason)
        else:
            self._clusters.remove(cluster, reason)
        if record is not None and record.owner is not None:
            parent, name = record.owner
            child = Reason(CHILD, "", cluster)
            if not value:
                self._clusters.remove(parent, child)
            elif not self._is_here(snapshot, parent):
                self._clusters.add(parent, child, name)
        self._clusters.seated(cluster)

    def _own_workspace(self, snapshot: Snapshot, key: ObjectKey, value: bytes, before: bytes = b"") -> None:
        where, reason = (key.cluster, key.name), Reason(NAMED, "", key.cluster, key.name)
        claim = claim_of(key.cluster, value)
        named = claim.cluster if claim is not None and claim.shard != self._writer.own else ""
        former = self._named.pop(where, "")
        if named:
            self._named[where] = named
            self._clusters.add(named, reason)
            self._clusters.seated(named)
        if former and former != named:
            self._clusters.remove(former, reason)

    # --- what was written ---

    def wrote(
        self, origin: str, changes: Sequence[tuple[ReplicaChange, Record | None]], owners: Sequence[OwnerChange]
    ) -> None:
        """Rows of a shard were written or deleted, and owners decided."""
        arrived: list[Workspace] = [(each.cluster, "") for each in owners]
        for change, _ in changes:
            key = change.key
            if key.type == LOGICAL_CLUSTERS:
                self._wrote_cluster(origin, key.cluster, change.value)
            elif not is_selected(key.type):
                self._wrote_row(origin, key.cluster, bool(change.value))
            else:
                arrived.append((key.cluster, key.name))
        for each in owners:
            self._clusters.seated(each.cluster)
        if arrived and self.arrived is not None:
            self.arrived(arrived)
        if owners:
            self.announce()

    def _wrote_cluster(self, origin: str, cluster: str, value: bytes) -> None:
        if value:
            record = record_of(cluster, value)
            self._clusters.held(origin, cluster, record.owner if record is not None else None)
        else:
            self._clusters.dropped(origin, cluster)

    def _wrote_row(self, origin: str, cluster: str, held: bool) -> None:
        reason = Reason(ROWS, origin, cluster)
        if not held:
            with self._store.snapshot() as snapshot:
                held = not all(map(is_selected, snapshot.replicas.types_of(origin, cluster)))
        if held:
            self._clusters.add(cluster, reason)
        else:
            self._clusters.remove(cluster, reason)

    async def release(self, origin: str, keys: Sequence[ObjectKey]) -> None:
        """Drop the rows of objects that are followed no more, and the routes of clusters that are not needed."""
        for key in keys:
            if not key.name:
                await self.copies.drop(origin, key)
                self._wrote_row(origin, key.cluster, False)
        for start in range(0, len(keys), _PAGE):
            page = keys[start : start + _PAGE]
            await self._writer.release(origin, page, self._clusters.needs)
            for key in page:
                if key.type == LOGICAL_CLUSTERS:
                    self._clusters.dropped(origin, key.cluster)

    # --- reading ---

    def held(self, origin: str) -> set[ObjectKey]:
        """The Workspaces and LogicalClusters held from a shard, and sets of copies that were released."""
        found = self.copies.released()
        for type in (LOGICAL_CLUSTERS, self._types.workspaces):
            after: Position | None = None
            while True:
                with self._store.snapshot() as snapshot:
                    page = readable(partial(snapshot.replicas.rows_of, origin), Scope(type), after, _PAGE)
                if not page:
                    break
                found.update(record.key for record in page)
                after = position_after(page[-1].key)
        return found

    def _is_here(self, snapshot: Snapshot, cluster: str) -> bool:
        try:
            found = snapshot.get(_cluster_key(cluster))
        except CorruptRecord:
            return True
        record = record_of(cluster, found.value) if found is not None else None
        return found is not None and not (record is not None and record.successor)

    def _seat(self, cluster: str) -> str:
        if cluster == ROOT:
            return ROOT_SHARD
        with self._store.snapshot() as snapshot:
            return self._writer.own if self._is_here(snapshot, cluster) else snapshot.replicas.shard_of(cluster)

    def _held_from(self, cluster: str) -> Iterator[tuple[str, Workspace | None]]:
        key = _cluster_key(cluster)
        with self._store.snapshot() as snapshot:
            rows = [(origin, _row(snapshot, origin, key)) for origin in self._writer.origins]
        for origin, value in rows:
            if value is not None:
                record = record_of(cluster, value)
                yield origin, record.owner if record is not None else None

    def _changed(self, origin: str) -> None:
        self._versions[origin] = self._versions.get(origin, 0) + 1
        self._notify(origin)


class ShardSelection:
    """What is followed one by one from one shard: `stream.consumer.selection.Selection`."""

    covered = False

    def __init__(self, rows: NeededRows, origin: str) -> None:
        self._rows, self._origin = rows, origin
        #: The filters of all objects of the selected resources, for a selection that is too large.
        self.broad = (
            *(resource_filter(STATE, origin, *each) for each in SELECTED),
            group_filter(STATE, origin, COPIES_GROUP),
        )

    @property
    def version(self) -> int:
        return self._rows.version(self._origin)

    def wanted(self) -> set[ObjectKey]:
        return self._rows.wanted(self._origin)

    def held(self) -> set[ObjectKey]:
        return self._rows.held(self._origin)

    async def release(self, keys: Sequence[ObjectKey]) -> None:
        await self._rows.release(self._origin, keys)

    def read(self) -> None:
        self._rows.announce()


def _of_path(path: str, number: int, cluster: str) -> Reason:
    return Reason(SOUGHT, "", cluster, f"{number} {path}")


def _cluster_key(cluster: str) -> ObjectKey:
    return ObjectKey(LOGICAL_CLUSTERS, cluster, "", SINGLETON)


def _row(snapshot: Snapshot, origin: str, key: ObjectKey) -> bytes | None:
    try:
        row = snapshot.replicas.row_of(origin, key)
    except CorruptRecord:
        return None
    return row[0].value if row is not None else None


def _moved_now(change: Change) -> bool:
    """Whether a LogicalCluster of this shard moved to another one with this change."""
    if change.key.type != LOGICAL_CLUSTERS or change.operation is Operation.DELETED or _MARKER not in change.after:
        return False
    now, before = (record_of(change.key.cluster, value) for value in (change.after, change.before))
    return now is not None and bool(now.successor) and not (before is not None and before.successor)
