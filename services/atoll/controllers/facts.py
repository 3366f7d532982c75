"""What workspace admission and controllers look up again and again: types, exports, paths, shards.

Reads through a view; what was decoded is kept under the revision of the record it came from, in bounded caches, so
a changed object is never found by memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec

from atoll.machinery.apiserver.call import View
from atoll.machinery.kcp.bindings import Export, read_export
from atoll.machinery.kcp.types import WorkspaceType, read_type
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import ROOT, ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.types import API_EXPORTS, API_RESOURCE_SCHEMAS

T = TypeVar("T")
MAX_FACTS = 1024


class Resolver(Protocol):
    """Paths to clusters."""

    def resolve(self, snapshot: View, workspace: str) -> str | None: ...


class Identities(msgspec.Struct, frozen=True):
    """Identity hashes of root's exports: under them tenancy objects are stored and published."""

    tenancy: str
    topology: str
    shards: str

    @property
    def workspaces(self) -> ResourceType:
        return ResourceType("tenancy.kcp.io", "workspaces", self.tenancy)

    @property
    def workspace_types(self) -> ResourceType:
        return ResourceType("tenancy.kcp.io", "workspacetypes", self.tenancy)

    @property
    def shard_objects(self) -> ResourceType:
        return ResourceType("core.kcp.io", "shards", self.shards)


class Facts:
    """Cached look-ups over one shard's rows."""

    def __init__(self, resolver: Resolver, identities: Identities) -> None:
        self._resolver, self.identities = resolver, identities
        self._types: LruCache[ObjectKey, tuple[int, WorkspaceType]] = LruCache(MAX_FACTS)
        self._exports: LruCache[ObjectKey, tuple[int, Export | None]] = LruCache(MAX_FACTS)

    def cluster_of(self, view: View, path: str) -> str | None:
        """The cluster behind a path or name; empty means root."""
        return self._resolver.resolve(view, path or ROOT)

    def workspace_type(self, view: View, path: str, name: str) -> WorkspaceType | None:
        """A WorkspaceType by workspace path or cluster name, and name."""
        return self._found(view, path, name, self.identities.workspace_types, self._types, _read_type)

    def export(self, view: View, path: str, name: str) -> Export | None:
        """An APIExport by workspace path or cluster name, with the schemas it serves."""
        return self._found(view, path, name, API_EXPORTS, self._exports, _read_export)

    def _found(
        self, view: View, path: str, name: str, type: ResourceType, cache: LruCache[ObjectKey, tuple[int, T]],
        read: Callable[[View, ObjectKey, Object], T],
    ) -> T | None:  # fmt: skip
        cluster = self.cluster_of(view, path)
        if cluster is None:
            return None
        key = ObjectKey(type, cluster, "", name)
        record = view.get(key)
        if record is None:
            return None
        known = cache.get(key)
        if known is not None and known[0] == record.revision:
            return known[1]
        value = read(view, key, decode(record.value))
        cache.put(key, (record.revision, value))
        return value


def _read_type(view: View, key: ObjectKey, obj: Object) -> WorkspaceType:
    return read_type(obj)


def _read_export(view: View, key: ObjectKey, obj: Object) -> Export | None:
    def find_schema(name: str) -> Object | None:
        record = view.get(ObjectKey(API_RESOURCE_SCHEMAS, key.cluster, "", name))
        return decode(record.value) if record is not None else None

    return read_export(obj, find_schema)
