"""The clusters that a workspace path leads to, where this shard has no rows of them: a request's, a binding's.

`Follower.seek` uses it where only needed rows are kept. The path is followed name by name: each Workspace on it is read
from the stream of the shard that owns its cluster, and becomes a needed one, until the path's cluster has an owner or a
Workspace does not exist. Then it stays followed for KEPT_S, whether it leads anywhere or not, so that what is created
later is known without another reading. Invariants: a request waits for at most DEADLINE_S; at most MAX_WAITING wait; at
most MAX_PLACES clusters are followed for paths, those of the paths sought last.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from atoll.machinery.apiserver.federation.federated_view import federated
from atoll.machinery.apiserver.federation.pathindex import PathIndex
from atoll.machinery.meta.hashes import root_cluster_name
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.meta.wellknown import SINGLETON
from atoll.machinery.storage.contract import Store
from atoll.replication.needed_clusters import Workspace
from atoll.replication.sought_clusters import DEADLINE_S, KEPT_S

#: A shard's consumer has up to 500 filters of single objects, and with more receives their resources whole.
MAX_PLACES, MAX_WAITING = 500, 64


class NeedingPaths(Protocol):
    """What is needed, and known: `needed_rows.NeededRows`."""

    def place(self, path: str, places: Sequence[Workspace]) -> None: ...

    def owner(self, cluster: str) -> str: ...

    async def progress(self) -> None: ...


class Site(NamedTuple):
    """What is known beside the rows. `unread` returns those of which not everything wanted was read: of one shard, or
    ("") of all; `holders` the shards that may hold roots, by cluster."""

    unread: Callable[[str], Sequence[str]]
    holders: Callable[[], Mapping[str, str]]


class SoughtPaths:
    """Seeks paths. `workspaces` is the type of the Workspaces in the store."""

    def __init__(
        self,
        rows: NeedingPaths,
        store: Store,
        workspaces: ResourceType,
        site: Site,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rows, self._store, self._site, self._clock = rows, store, site, clock
        self._workspaces, self._index = workspaces, PathIndex(workspaces)
        #: By path, when it was sought last, in order; and what is followed for it.
        self._kept: dict[str, float] = {}
        self._places: dict[str, tuple[Workspace, ...]] = {}
        self._paths_at: dict[Workspace, set[str]] = {}
        self._waiting = 0

    async def seek(self, path: str) -> Sequence[str]:
        """Return when the path's cluster is known, or everything that shards say of it was read.

        Return the shards that were not read in time, empty if it is known: then a path without a cluster has none.
        """
        self._keep(path)
        missing = self._missing(path)
        if missing and self._waiting < MAX_WAITING:
            self._waiting += 1
            try:
                async with asyncio.timeout(DEADLINE_S):
                    while missing:
                        await self._rows.progress()
                        self._follow(path)
                        missing = self._missing(path)
            except TimeoutError:
                pass
            finally:
                self._waiting -= 1
        return missing

    def arrived(self, workspaces: Sequence[Workspace]) -> None:
        """Follow the paths on which Workspaces changed, or (without a name) clusters got an owner."""
        for path in {path for each in workspaces for path in self._paths_at.get(each, ())}:
            self._follow(path)

    def _keep(self, path: str) -> None:
        now_s = self._clock()
        self._kept.pop(path, None)
        self._kept[path] = now_s
        self._follow(path)
        places = sum(map(len, self._places.values()))
        for each, sought_s in list(self._kept.items())[:-1]:
            if places <= MAX_PLACES and now_s - sought_s < KEPT_S:
                break
            del self._kept[each]
            places -= len(self._places[each])
            self._put(each, ())

    def _follow(self, path: str) -> None:
        """Need what is on the path as far as it is known."""
        if path not in self._kept:
            return
        names = path.split(":")
        with self._store.snapshot() as snapshot:
            found = [(each, rest.partition(":")[0]) for each, rest in self._index.followed(federated(snapshot), path)]
        if found[0][0] == names[0] and not self._rows.owner(names[0]):
            # It may begin at a root. Of those that nobody may hold there is none.
            roots = ((root_cluster_name(":".join(names[:count])), count) for count in range(2, len(names) + 1))
            held = [(each, ":".join(names[count : count + 1])) for each, count in roots if each in self._site.holders()]
            found = [*held, *found]
        self._put(path, tuple(found))

    def _put(self, path: str, places: tuple[Workspace, ...]) -> None:
        for each in _noticed(self._places.pop(path, ())):
            paths = self._paths_at.get(each, set())
            paths.discard(path)
            if not paths:
                self._paths_at.pop(each, None)
        if places:
            self._places[path] = places
            for each in _noticed(places):
                self._paths_at.setdefault(each, set()).add(path)
        self._rows.place(path, places)

    def _missing(self, path: str) -> Sequence[str]:
        """The shards that may still say where the path leads."""
        places = self._places.get(path, ())
        if not places:
            return ()
        cluster, name = places[-1]
        owner = self._rows.owner(cluster)
        return () if owner and self._has(cluster, name) else self._site.unread(owner)

    def _has(self, cluster: str, name: str) -> bool:
        """Whether the last Workspace exists, though it leads to no cluster (a mount's, or one that is being placed);
        without a name the LogicalCluster at the end of the path."""
        type, last = (self._workspaces, name) if name else (LOGICAL_CLUSTERS, SINGLETON)
        with self._store.snapshot() as snapshot:
            return bool(federated(snapshot).revision_of(ObjectKey(type, cluster, "", last)))


def _noticed(places: Sequence[Workspace]) -> set[Workspace]:
    """What changes a path: each Workspace on it, and the owner of each cluster."""
    return {*places, *((cluster, "") for cluster, _ in places)}
