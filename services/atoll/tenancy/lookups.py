"""Cached look-ups of WorkspaceTypes, APIExports and workspace paths, for admission and controllers.

Reads through a view: rows of this shard first, then replicas of other shards. Decoded objects are cached by the
revision of their record, in bounded caches. Invariant: a stale object is never returned. An object that another shard
has not published yet is not found; callers retry when it arrives and never treat absence as permission.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypedDict, TypeVar, cast

import msgspec

from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.federation.federated_view import federated
from atoll.machinery.kcp.apis.apibindings import Export, read_export
from atoll.machinery.kcp.sharding import replication_level
from atoll.machinery.kcp.workspaces.workspacetypes import WorkspaceType, read_type
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import ROOT, ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.partial import Partial, SomeAnnotations
from atoll.machinery.meta.types import API_EXPORTS, API_RESOURCE_SCHEMAS, LOGICAL_CLUSTERS
from atoll.machinery.meta.wellknown import PATH, SINGLETON

T = TypeVar("T")
_Cache: TypeAlias = LruCache[ObjectKey, tuple[tuple[int, int], T]]
MAX_FACTS = 1024


class Resolver(Protocol):
    """Resolves workspace paths to logical clusters."""

    def resolve(self, snapshot: View, workspace: str) -> str | None: ...

    def awaited(self, snapshot: View, workspace: str) -> tuple[str, str] | None: ...

    def require_none(self, workspace: str) -> None: ...

    def seek(self, workspace: str) -> None: ...


class SystemIdentities(msgspec.Struct, frozen=True):
    """Identity hashes of root's exports, under which tenancy, topology and shard objects are stored and published."""

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
    def partitions(self) -> ResourceType:
        return ResourceType("topology.kcp.io", "partitions", self.topology)

    @property
    def partition_sets(self) -> ResourceType:
        return ResourceType("topology.kcp.io", "partitionsets", self.topology)

    @property
    def shard_objects(self) -> ResourceType:
        return ResourceType("core.kcp.io", "shards", self.shards)


class _PathAnnotation(msgspec.Struct, frozen=True):
    path: str = msgspec.field(default="", name=PATH)


_pathed = msgspec.json.Decoder(Partial[SomeAnnotations[_PathAnnotation]])


class _Reading(NamedTuple, Generic[T]):
    """How objects of a type are decoded, and the other type (`of`) in the same cluster on which the result depends."""

    type: ResourceType
    read: Callable[[View, ObjectKey, Object], T]
    of: ResourceType | None = None


class Lookups:
    """Cached look-ups over one shard's rows and its replicas. `default_level`: that of exports written without one."""

    def __init__(
        self, resolver: Resolver, identities: SystemIdentities, default_level: str = replication_level.GLOBAL
    ) -> None:
        self._resolver, self.identities, self.default_level = resolver, identities, default_level
        self._types: _Cache[WorkspaceType] = LruCache(MAX_FACTS)
        self._exports: _Cache[Export] = LruCache(MAX_FACTS)

    def cluster_of(self, view: View, path: str) -> str | None:
        """Return the logical cluster of a path or cluster name (empty: root); None if it is not found."""
        return self._resolver.resolve(view, path or ROOT)

    def sought_cluster_of(self, view: View, path: str) -> str | None:
        """Return what `cluster_of` does, for admission: on a shard that does not keep the rows of every workspace, a
        path is first sought on the others. Raises SearchPending."""
        found = self.cluster_of(view, path)
        if found is None:
            self._resolver.seek(path)
        return found

    def cluster_to_authorize(self, view: View, path: str) -> str | None:
        """Return what `cluster_of` does, for a decision that rests on the cluster's LogicalCluster: what other shards
        say of it was read. Raises SearchPending, and ServiceUnavailable while it was not."""
        found = self.cluster_of(view, path)
        if found is None or not federated(view).revision_of(ObjectKey(LOGICAL_CLUSTERS, found, "", SINGLETON)):
            self._resolver.require_none(path or ROOT)
        return found

    def awaited(self, view: View, path: str) -> tuple[str, str] | None:
        """Return cluster and name of the Workspace whose change may change a path's resolution; None for a name."""
        return self._resolver.awaited(view, path)

    def workspace_type(self, view: View, path: str, name: str) -> WorkspaceType | None:
        """Return a WorkspaceType by workspace path or cluster name, and name; None if it is not found."""
        return self._read_cached(view, path, name, self._types, _Reading(self.identities.workspace_types, _read_type))

    def export(self, view: View, path: str, name: str, seen_from: str = "") -> Export | None:
        """Return an APIExport by workspace path or cluster name, with the schemas it serves; None if it is not found.

        `seen_from` is the cluster that needs the export, or its path if it does not exist yet: an export of level
        `organization` is not found for clusters of another organization. If it is empty, as for the export's own shard,
        the level is not checked.
        """
        found = self._read_cached(view, self._home(view, path, seen_from), name, self._exports, _EXPORT)
        if found is None or not found.organization or seen_from in ("", found.cluster):
            return found
        path = seen_from if ":" in seen_from else self.path_of(view, seen_from)
        return found if replication_level.is_within(path, found.organization) else None

    def _home(self, view: View, path: str, seen_from: str) -> str:
        """Return the cluster that needs an export if the path is its own: it has a path before the Workspaces on it
        arrived from their shards. Otherwise the path."""
        if ":" not in path or ":" in seen_from or not seen_from or self.cluster_of(view, path) is not None:
            return path
        return seen_from if self.path_of(view, seen_from) == path else path

    def is_out_of_reach(self, view: View, path: str, name: str, seen_from: str) -> bool:
        """Whether an export exists, and its level keeps it from a cluster."""
        return self.export(view, path, name) is not None and self.export(view, path, name, seen_from) is None

    def path_of(self, view: View, cluster: str) -> str:
        """Return the canonical path of a cluster; its name if the path is unknown."""
        record = federated(view).get(ObjectKey(LOGICAL_CLUSTERS, cluster, "", SINGLETON))
        annotations = _pathed.decode(record.value).metadata.annotations if record is not None else None
        return (annotations.path if annotations is not None else "") or cluster

    def is_here(self, view: View, cluster: str) -> bool:
        """Whether a cluster belongs to this shard. An unknown cluster does not."""
        return bool(view.gate(cluster).generation) or (
            view.get(ObjectKey(LOGICAL_CLUSTERS, cluster, "", SINGLETON)) is not None
        )

    def _read_cached(self, view: View, path: str, name: str, cache: _Cache[T], reading: _Reading[T]) -> T | None:
        """Return the decoded object; decoded again after a change of it or of a `reading.of` object in its cluster."""
        type, of, view = reading.type, reading.of, federated(view)
        cluster = self.cluster_of(view, path)
        if cluster is None:
            return None
        key = ObjectKey(type, cluster, "", name)
        revision = view.revision_of(key)
        stamp = revision, view.last(of, cluster) if of is not None and revision else 0
        known = cache.get(key)
        if revision and known is not None and known[0] == stamp:
            return known[1]
        # An unsubmitted object of a batch has no revision.
        record = view.get(key)
        if record is None:
            return None
        value = reading.read(view, key, decode(record.value))
        if revision:
            cache.put(key, (stamp, value))
        return value


def _read_type(view: View, key: ObjectKey, obj: Object) -> WorkspaceType:
    return read_type(obj)


class _Version(TypedDict):
    name: str
    storage: bool


class _SchemaSpec(TypedDict):
    names: Object
    versions: list[_Version]


class _SchemaMetadata(TypedDict):
    uid: str


class _Schema(TypedDict):
    """What `read_export` reads of an APIResourceSchema; the schemas themselves are a hundred times as large."""

    metadata: _SchemaMetadata
    spec: _SchemaSpec


_schema = msgspec.json.Decoder(_Schema)


def _read_export(view: View, key: ObjectKey, obj: Object) -> Export:
    def find_schema(name: str) -> Object | None:
        record = view.get(ObjectKey(API_RESOURCE_SCHEMAS, key.cluster, "", name))
        return cast(Object, _schema.decode(record.value)) if record is not None else None

    return read_export(key.cluster, obj, find_schema)


_EXPORT = _Reading(API_EXPORTS, _read_export, API_RESOURCE_SCHEMAS)
