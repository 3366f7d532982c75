"""Where a workspace lies: from the text in a URL to a logical cluster, its shard, and that shard's address.

The handler of the proxy asks for each request, and `misses` for what it heard of a shard. All is read from what the
shards published, as it lies in the proxy's own store, so that nothing is asked of anybody and a path leads to its end
though every shard on the way is down. Answers are kept for as long as nothing at all arrives. Invariant: a workspace is
found by what is in the store now, never by what was there before; one that is being placed is not found at all.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.federation.federated_view import wide
from atoll.machinery.apiserver.federation.pathindex import Mounted, PathIndex, Unavailable
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import ROOT, ObjectKey, ResourceType, is_workspace_path
from atoll.machinery.meta.paths import HOME

MAX_PLACES = 8192


class ShardLocation(msgspec.Struct, frozen=True):
    """A logical cluster, the shard it lies on, and where that is asked (no trailing slash)."""

    shard: str
    cluster: str
    base_url: str


class UnresolvedPath(msgspec.Struct, frozen=True):
    """A path that leads nowhere, as far as is known here.

    `shard` holds `cluster`, the last one on the path that is known; `rest` are the names behind it. `shard` is empty
    where not even the beginning is known. A home that is not known lies, if anywhere, where homes are made: `rest` is
    then what follows the home itself, and `home` is set.
    """

    shard: str = ""
    cluster: str = ""
    base_url: str = ""
    rest: str = ""
    home: bool = False


Location: TypeAlias = ShardLocation | Mounted | Unavailable | UnresolvedPath


class _Spec(msgspec.Struct, frozen=True):
    base_url: str = msgspec.field(default="", name="baseURL")


class _Shard(msgspec.Struct, frozen=True):
    spec: _Spec = _Spec()


_decoder = msgspec.json.Decoder(_Shard)


class WorkspaceLocator:
    """Finds workspaces. `workspaces` and `shards` are the types that they and Shards are stored under."""

    def __init__(self, workspaces: ResourceType, shards: ResourceType) -> None:
        self._index, self._shards = PathIndex(workspaces), shards
        self._known: LruCache[str, Location] = LruCache(MAX_PLACES)
        self._count = -1

    def find(self, view: View, workspace: str) -> Location:
        """Where the text behind `/clusters/` leads. A wildcard, and what is no path, leads nowhere."""
        if view.replicas.count != self._count:
            self._known.clear()
            self._count = view.replicas.count
        known = self._known.get(workspace)
        if known is None:
            known = self._find(wide(view), workspace)
            if not isinstance(known, UnresolvedPath):
                # What anybody may make up does not drive out what is there.
                self._known.put(workspace, known)
        return known

    def at(self, view: View, shard: str, cluster: str) -> ShardLocation | None:
        """A cluster that is known to lie on a shard; None while nobody knows where that is."""
        base_url = self.base_url(view, shard)
        return ShardLocation(shard, cluster, base_url) if base_url else None

    def base_url(self, view: View, shard: str) -> str:
        """Where a shard is asked, without a trailing slash; "" for one that is not known."""
        record = wide(view).get(ObjectKey(self._shards, ROOT, "", shard)) if shard else None
        return _decoder.decode(record.value).spec.base_url.rstrip("/") if record is not None else ""

    def _find(self, view: View, workspace: str) -> Location:
        if not is_workspace_path(workspace):
            return UnresolvedPath()
        way = self._index.find(view, workspace)
        if way is None:
            return self._index.mounted(view, workspace) or self._deepest(view, workspace)
        if way.unavailable:
            return Unavailable()
        return self.at(view, view.replicas.shard_of(way.cluster), way.cluster) or self._deepest(view, workspace)

    def _deepest(self, view: View, workspace: str) -> UnresolvedPath:
        """The last cluster on the path whose shard can be asked for the next name."""
        found = self._home(view, workspace)
        for cluster, rest in self._index.followed(view, workspace):
            place = self.at(view, view.replicas.shard_of(cluster), cluster) if rest else None
            if place is not None:
                found = UnresolvedPath(place.shard, cluster, place.base_url, rest)
        return found

    def _home(self, view: View, workspace: str) -> UnresolvedPath:
        """Homes are made where `root` is, for whoever asks for one there."""
        place = self.at(view, view.replicas.shard_of(ROOT), ROOT) if workspace.startswith(f"{HOME}:") else None
        if place is None:
            return UnresolvedPath()
        cluster, rest = next(iter(self._index.followed(view, workspace)))
        return UnresolvedPath(place.shard, cluster, place.base_url, rest, home=True)
