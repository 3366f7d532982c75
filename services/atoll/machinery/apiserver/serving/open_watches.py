"""The open watches of this process, which end when their kind changes or their permission is withdrawn.

`watches` adds and drops them. As in Kubernetes, the watches of a custom resource end when its definition changes, so
that clients list again. Watches through a virtual workspace are also authorized again after a change of what granted
them: bindings and the LogicalCluster of their own cluster, exports and RBAC of the clusters they depend on, on any
shard. One task follows these types; a watch costs one entry for each of its clusters. Invariant: a watch with a
condition calls `check_up_to` before it sends events, so it sends none above the change that withdrew its permission.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

import msgspec

from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.catalog.catalog import Catalog
from atoll.machinery.apiserver.catalog.catalogs import Catalogs
from atoll.machinery.apiserver.catalog.shipped_kinds import KindsPending
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.names import CORE, LOCAL, ResourceType
from atoll.machinery.meta.types import (
    API_BINDINGS,
    API_CONVERSIONS,
    API_EXPORTS,
    API_RESOURCE_SCHEMAS,
    CACHED_RESOURCE_ENDPOINT_SLICES,
    CACHED_RESOURCES,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CRDS,
    LOGICAL_CLUSTERS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
)
from atoll.machinery.storage.contract import Cursor, GateState, Scope, Snapshot, Store

READ_LIMIT = 500
#: Types that decide how a cluster's kinds are served, and whether the cluster is served.
_SERVING = (CRDS, API_BINDINGS, LOGICAL_CLUSTERS)
#: Types that decide, in the clusters that a watch depends on, whether it is allowed.
_GRANTING = (
    API_EXPORTS,
    API_RESOURCE_SCHEMAS,
    API_CONVERSIONS,
    CLUSTER_ROLES,
    CLUSTER_ROLE_BINDINGS,
    ROLES,
    ROLE_BINDINGS,
    CACHED_RESOURCES,
    CACHED_RESOURCE_ENDPOINT_SLICES,
    # What credentials of service accounts depend on.
    SERVICE_ACCOUNTS,
    SECRETS,
)


V = TypeVar("V")
#: Takes a cluster and the revision of its first change since the last check.
Check = Callable[[str, int], None]


class Watch(Protocol):
    """A watch served by this shard, or relayed from another."""

    def end(self, at: int = 0) -> None:
        """End the stream cleanly, without events above revision `at` (0: with all that are there)."""


class StillAllowed(msgspec.Struct, frozen=True):
    """The condition of an open watch: `holds` is checked when its cluster, or one it depends on, changes."""

    holds: Callable[[View], bool]
    relies_on: tuple[str, ...] = ()
    #: The kind is not of the watch's own cluster; `holds` also checks that it is unchanged.
    foreign: bool = False


class OpenWatches:
    """Watches by cluster. Wildcard watches live under "" and outlast the definitions of single clusters."""

    def __init__(self, store: Store, catalogs: Catalogs) -> None:
        self._store, self._catalogs = store, catalogs
        self._open: dict[str, dict[Watch, tuple[Kind, StillAllowed | None]]] = {}
        self._relying: dict[str, dict[Watch, StillAllowed]] = {}
        self._relied_on = asyncio.Event()
        #: The open cursors with the check of each change, which takes the cluster and the first revision.
        self._following: dict[Cursor, Check] = {}
        self._checked = 0
        #: Checks that wait for kinds to be loaded.
        self._waiting: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return sum(map(len, self._open.values()))

    def add(self, cluster: str, kind: Kind, watch: Watch, still: StillAllowed | None = None) -> None:
        """Track an open watch until `drop`."""
        self._open.setdefault(cluster, {})[watch] = kind, still
        if still is not None:
            for other in still.relies_on:
                self._relying.setdefault(other, {})[watch] = still
                self._relied_on.set()

    def drop(self, cluster: str, watch: Watch) -> None:
        """Stop tracking a watch that ended."""
        _, still = _take(self._open, cluster, watch) or (None, None)
        for other in still.relies_on if still is not None else ():
            _take(self._relying, other, watch)
        if not self._relying:
            self._relied_on.clear()

    def clusters(self) -> list[str]:
        """Return the clusters with open watches, "" for those of all clusters."""
        return list(self._open)

    def conditional(self, cluster: str) -> list[tuple[Watch, StillAllowed]]:
        """Return the open watches of a cluster that have a condition."""
        return [(watch, still) for watch, (_, still) in self._open.get(cluster, {}).items() if still is not None]

    def check_up_to(self, revision: int) -> None:
        """Check the watches against every change up to a revision of which the hub woke cursors."""
        if revision > self._checked:
            self._checked = revision
            for cursor, check in tuple(self._following.items()):
                self._read(cursor, check)

    async def follow(self) -> None:
        """End watches whose kind changed or that are no longer allowed. Runs forever, once per process."""
        await asyncio.gather(
            *(self._follow(type, self._check) for type in _SERVING),
            self._follow(API_CONVERSIONS, self._check_converted),
            *map(self._follow_granting, _GRANTING),
            self._follow_remote(),
        )

    async def _follow(self, type: ResourceType, check: Check) -> None:
        with self._from_now_on(type, check) as cursor:
            while True:
                self._read(cursor, check)
                await cursor.wait()

    async def _follow_granting(self, type: ResourceType) -> None:
        """Follow a type of the clusters that watches depend on, only while there are such watches."""
        while True:
            await self._relied_on.wait()
            with self._from_now_on(type, self._check_dependent) as cursor:
                for cluster in tuple(self._relying):
                    self._check_dependent(cluster)
                while self._relying:
                    self._read(cursor, self._check_dependent)
                    await cursor.wait()

    async def _follow_remote(self) -> None:
        """Check watches that depend on remote clusters when replicas of these change."""
        seen: dict[str, tuple[int, ...]] = {}
        seen_of_all: tuple[int, ...] = ()
        while True:
            await self._relied_on.wait()
            with self._store.snapshot() as snapshot:
                revision, count, of_all = snapshot.revision, snapshot.replicas.count, _stamps(snapshot, "")
                new = of_all != seen_of_all or not seen.keys() >= self._relying.keys()
                stamps = {cluster: _stamps(snapshot, cluster) for cluster in self._relying} if new else seen
            for cluster, stamp in stamps.items():
                # A cluster without an earlier stamp may have changed since its watches were allowed.
                if seen.get(cluster) != stamp:
                    self._check_dependent(cluster, revision)
            seen, seen_of_all = stamps, of_all
            await self._store.replicated(count)

    @contextlib.contextmanager
    def _from_now_on(self, type: ResourceType, check: Check) -> Iterator[Cursor]:
        with self._store.snapshot() as snapshot:
            cursor = self._store.cursor(Scope(type), snapshot.revision)
        self._following[cursor] = check
        try:
            yield cursor
        finally:
            del self._following[cursor]
            cursor.close()

    def _read(self, cursor: Cursor, check: Check) -> None:
        more = True
        while more:
            changes = cursor.read(READ_LIMIT)
            more = len(changes) >= READ_LIMIT
            first: dict[str, int] = {}
            for change in changes:
                first.setdefault(change.key.cluster, change.revision)
            for cluster, revision in first.items():
                check(cluster, revision)

    def _check(self, cluster: str, revision: int) -> None:
        """End the watches of a cluster whose kind changed, or all of them if its gate closed."""
        self._check_dependent(cluster, revision)
        if cluster not in self._open and "" not in self._open:
            return
        with self._store.snapshot() as snapshot:
            gate = snapshot.gate(cluster)
            catalog = self._catalog(snapshot, cluster, revision) if cluster in self._open else None
            watches = self._open.get(cluster, {}).items()
            self._end(snapshot, ((watch, still) for watch, (_, still) in watches if still is not None), revision)
        if gate.state in {GateState.INACTIVE, GateState.MOVING}:
            # kcp closes every connection that can see the cluster, wildcard ones included.
            for watch in (*self._open.get(cluster, ()), *self._open.get("", ())):
                watch.end()
        elif catalog is not None:
            for watch, (kind, still) in tuple(self._open[cluster].items()):
                if still is not None and still.foreign:
                    continue
                if not _same(catalog.find(kind.group, kind.version, kind.plural), kind):
                    watch.end()

    def _catalog(self, snapshot: Snapshot, cluster: str, revision: int) -> Catalog | None:
        """Return the catalogue of a cluster; None if its kinds are loaded first, and then it is checked again."""
        try:
            return self._catalogs.for_request(snapshot, cluster)
        except KindsPending as pending:
            waiting = asyncio.create_task(self._check_when_loaded(pending, cluster, revision))
            self._waiting.add(waiting)
            waiting.add_done_callback(self._waiting.discard)
            return None

    async def _check_when_loaded(self, pending: KindsPending, cluster: str, revision: int) -> None:
        await pending.fetch()
        self._check(cluster, revision)

    def _check_converted(self, _: str, revision: int) -> None:
        """End the watches of kinds whose conversion rules changed; they may be bound in any cluster."""
        for cluster, watches in tuple(self._open.items()):
            if any(len(kind.versions) > 1 and kind.identity not in {CORE, LOCAL} for kind, _ in watches.values()):
                self._check(cluster, revision)

    def _check_dependent(self, cluster: str, revision: int = 0) -> None:
        """End the watches that depend on a cluster and are no longer allowed."""
        if (watches := self._relying.get(cluster)) is None:
            return
        with self._store.snapshot() as snapshot:
            self._end(snapshot, watches.items(), revision)

    def _end(self, snapshot: View, watches: Iterable[tuple[Watch, StillAllowed]], revision: int) -> None:
        for watch in [watch for watch, still in watches if not still.holds(snapshot)]:
            watch.end(revision)


def _stamps(snapshot: View, cluster: str) -> tuple[int, ...]:
    """Return the last changes of the deciding types of a remote cluster ("": of all); empty for a local cluster."""
    replicas = snapshot.replicas
    if cluster and not replicas.shard_of(cluster):
        return ()
    return tuple(replicas.last(type, cluster) for type in (LOGICAL_CLUSTERS, *_GRANTING))


def _take(watches: dict[str, dict[Watch, V]], cluster: str, watch: Watch) -> V | None:
    """Remove a watch of a cluster; return the value stored with it."""
    of_cluster = watches.get(cluster)
    if of_cluster is None:
        return None
    found = of_cluster.pop(watch, None)
    if not of_cluster:
        del watches[cluster]
    return found


def _same(now: Kind | None, then: Kind) -> bool:
    """Whether events of a kind are unchanged; the start of its deletion does not change them."""
    if now is None or now.type != then.type:
        return False
    return now.mark == then.mark if then.mark else (now.schema, now.columns) == (then.schema, then.columns)
