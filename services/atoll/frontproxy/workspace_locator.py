"""Resolve a workspace in a URL to its logical cluster, the shard that has it, and that shard's address.

`handler` calls it for each request, `path_fallback` for the rest of a path it looked up. It reads the rows that shards
published, in the proxy's own store, so that a path resolves though every shard on it is down. Results are cached until
any row arrives. Invariant: a result follows from the rows in the store now; a workspace that is being scheduled does
not resolve.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.federation.federated_view import federated
from atoll.machinery.apiserver.federation.mount_routes import ExternalUrl, destination, external_url, workspace_of
from atoll.machinery.apiserver.federation.pathindex import Mounted, PathIndex, Unavailable
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import ROOT, ObjectKey, ResourceType, is_workspace_path
from atoll.machinery.meta.paths import HOME
from atoll.machinery.storage.contract import Scope, Snapshot
from atoll.machinery.storage.pages import each_record

MAX_LOCATIONS = 8192


class ShardLocation(msgspec.Struct, frozen=True):
    """A logical cluster, its shard, and the base URL of that (without a trailing slash)."""

    shard: str
    cluster: str
    base_url: str


class UnresolvedPath(msgspec.Struct, frozen=True):
    """A path that does not resolve in the proxy's store.

    `shard` has `cluster`, the last known one on the path; `rest` are the names after it. `shard` is empty if not even
    the first name is known. An unknown home workspace can only be on the shard that creates homes: `home` is set then,
    and `rest` are the names after the home itself.
    """

    shard: str = ""
    cluster: str = ""
    base_url: str = ""
    rest: str = ""
    home: bool = False


class MountLoop(msgspec.Struct, frozen=True):
    """A path of mounts that lead to each other."""


Location: TypeAlias = ShardLocation | Mounted | Unavailable | UnresolvedPath | MountLoop


class _Spec(msgspec.Struct, frozen=True):
    base_url: str = msgspec.field(default="", name="baseURL")
    external_url: str = msgspec.field(default="", name="externalURL")


class _Shard(msgspec.Struct, frozen=True):
    spec: _Spec = _Spec()


_decoder = msgspec.json.Decoder(_Shard)


class WorkspaceLocator:
    """Resolves workspaces. `workspaces` and `shards` are the types that Workspaces and Shards are stored under."""

    def __init__(self, workspaces: ResourceType, shards: ResourceType) -> None:
        self._index, self._shards = PathIndex(workspaces), shards
        self._cache: LruCache[str, Location] = LruCache(MAX_LOCATIONS)
        self._transaction = self._count = -1

    def find(self, view: Snapshot, workspace: str) -> Location:
        """Resolve the text after `/clusters/`. A wildcard or a malformed path does not resolve."""
        if view.transaction != self._transaction:
            count = view.replicas.count
            if count != self._count:
                self._cache.clear()
                self._count = count
            self._transaction = view.transaction
        location = self._cache.get(workspace)
        if location is None:
            location = self._find(federated(view), workspace)
            if not isinstance(location, UnresolvedPath):
                # Paths that clients make up do not evict existing ones.
                self._cache.put(workspace, location)
        return location

    def at(self, view: View, shard: str, cluster: str) -> ShardLocation | None:
        """The location of a cluster on a shard; None while the shard's address is unknown."""
        base_url = self.base_url(view, shard)
        return ShardLocation(shard, cluster, base_url) if base_url else None

    def base_url(self, view: View, shard: str) -> str:
        """The base URL of a shard, without a trailing slash; "" for an unknown one."""
        record = federated(view).get(ObjectKey(self._shards, ROOT, "", shard)) if shard else None
        return _decoder.decode(record.value).spec.base_url.rstrip("/") if record is not None else ""

    def places(self, view: View, cluster: str) -> list[ShardLocation]:
        """A cluster on each of the shards, for one that none has any more."""
        records = each_record(federated(view), Scope(self._shards, ROOT))
        urls = ((each.key.name, _decoder.decode(each.value).spec.base_url.rstrip("/")) for each in records)
        return [ShardLocation(shard, cluster, url) for shard, url in urls if url]

    def _find(self, view: View, workspace: str) -> Location:
        if not is_workspace_path(workspace):
            return UnresolvedPath()
        found = self._index.find(view, workspace)
        if found is None:
            return self._mount(view, workspace) or self._deepest(view, workspace)
        if found.unavailable:
            return Unavailable()
        return self.at(view, view.replicas.shard_of(found.cluster), found.cluster) or self._deepest(view, workspace)

    def _mount(self, view: View, workspace: str) -> Location | None:
        """The location that a mount leads to; None for a path that does not end in a mount."""
        mounted = self._index.mounted(view, workspace)
        if mounted is None:
            return None
        onward = destination(self._index, view, workspace, self._external_urls(view))
        if onward is None:
            return MountLoop()
        return mounted if onward == workspace else self._find(view, onward)

    def beyond(self, view: Snapshot, mounted: Mounted) -> Location:
        """The location that a mount leads to: the mount itself, unless it is of a workspace of this installation."""
        onward = workspace_of(mounted.url, self._external_urls(federated(view))) if mounted.ready else ""
        return self.find(view, onward) if onward else mounted

    def _external_urls(self, view: View) -> set[ExternalUrl]:
        """The URLs under which shards publish workspaces to clients."""
        records = each_record(view, Scope(self._shards, ROOT))
        found = (external_url(_decoder.decode(record.value).spec.external_url) for record in records)
        return {url for url in found if url is not None}

    def _deepest(self, view: View, workspace: str) -> UnresolvedPath:
        """The last known cluster on the path, at whose shard the next name can be looked up."""
        found = self._home(view, workspace)
        for cluster, rest in self._index.followed(view, workspace):
            location = self.at(view, view.replicas.shard_of(cluster), cluster) if rest else None
            if location is not None:
                found = UnresolvedPath(location.shard, cluster, location.base_url, rest)
        return found

    def _home(self, view: View, workspace: str) -> UnresolvedPath:
        """Home workspaces are created on the shard of `root`, on their owners' first request."""
        location = self.at(view, view.replicas.shard_of(ROOT), ROOT) if workspace.startswith(f"{HOME}:") else None
        if location is None:
            return UnresolvedPath()
        cluster, rest = next(iter(self._index.followed(view, workspace)))
        return UnresolvedPath(location.shard, cluster, location.base_url, rest, home=True)
