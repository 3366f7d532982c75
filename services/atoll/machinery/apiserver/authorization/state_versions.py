"""State versions: the last changes of the types in a cluster that authorization derives from.

The authorizer keys all its caches by them. They are read in the request's own transaction, so a revoked role is refused
by the next request, in every worker, without a notification. Reading them for each request would cost more than
deciding, so they are cached: nothing changes within a revision, and while the stamp of the types is unchanged no
cluster's version has changed. The version of a cluster on another shard is the state of its replicas here; it
changes only with the number of replicated transactions. Invariant: a cluster of this shard is never versioned or read
by replicas.
"""

from __future__ import annotations

from collections.abc import Hashable

from atoll.machinery.apiserver.call.call import View
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import ObjectKey, ResourceType, is_system_cluster
from atoll.machinery.meta.types import (
    API_BINDINGS,
    API_EXPORTS,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    LOGICAL_CLUSTERS,
    ROLE_BINDINGS,
    ROLES,
)

RBAC_GROUP = "rbac.authorization.k8s.io"

#: All types that a decision reads.
SOURCES = (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, ROLES, ROLE_BINDINGS, LOGICAL_CLUSTERS, API_BINDINGS, API_EXPORTS)
#: Those of them that other shards publish.
_PUBLISHED = (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, LOGICAL_CLUSTERS, API_EXPORTS)

StateVersion = tuple[int, ...]
#: Last element of a version: the cluster is of this shard (with a LogicalCluster, or the system's), unknown, or remote.
_LOCAL, _ABSENT, _REMOTE = 1, 0, -1


def is_remote(version: StateVersion) -> bool:
    """Return whether a version is of a cluster of another shard, known by its replicas."""
    return version[-1] == _REMOTE


def is_local(version: StateVersion) -> bool:
    """Return whether a version is of a cluster of this shard."""
    return version[-1] == _LOCAL


def types_in(version: StateVersion) -> set[ResourceType]:
    """Return the types of `SOURCES` of which a cluster has, or had, objects."""
    sources = _PUBLISHED if is_remote(version) else SOURCES
    return {type for type, last in zip((*sources, None), version, strict=True) if last and type is not None}


MAX_CLUSTERS = 4096


class StateVersions:
    """Versions of recently requested clusters, exact for the snapshot of the request."""

    def __init__(self) -> None:
        self._revision = -1
        self._anywhere: Hashable = None
        self._local: LruCache[str, StateVersion] = LruCache(MAX_CLUSTERS)
        self._count = -1
        self._remote: LruCache[str, StateVersion] = LruCache(MAX_CLUSTERS)

    def of(self, snapshot: View, cluster: str) -> StateVersion:
        """The version of a cluster in a snapshot."""
        if snapshot.revision == self._revision:
            cached = self._local.get(cluster)
            if cached is not None and cached[-1] == _LOCAL:
                return cached
        version = self._of_rows(snapshot, cluster)
        if version[-1] == _ABSENT and cluster:
            return self._of_replicas(snapshot, cluster) or version
        return version

    def _of_rows(self, snapshot: View, cluster: str) -> StateVersion:
        revision = snapshot.revision
        if revision < self._revision:
            return _read(snapshot, cluster)  # an older snapshot than the cached versions: not cached
        if revision > self._revision:
            self._advance(snapshot, revision)
        version = self._local.get(cluster)
        if version is None:
            version = _read(snapshot, cluster)
            self._local.put(cluster, version)
        return version

    def _advance(self, snapshot: View, revision: int) -> None:
        anywhere = snapshot.stamp(SOURCES)
        if anywhere != self._anywhere:
            self._local.clear()
            self._anywhere = anywhere
        self._revision = revision

    def _of_replicas(self, snapshot: View, cluster: str) -> StateVersion:
        """The version of a cluster by its replicas; empty without any."""
        replicas = snapshot.replicas
        if replicas.empty:
            return ()
        if replicas.count < self._count:
            return _read_replicas(snapshot, cluster)
        if replicas.count > self._count:
            self._remote.clear()
            self._count = replicas.count
        version = self._remote.get(cluster)
        if version is None:
            version = _read_replicas(snapshot, cluster)
            self._remote.put(cluster, version)
        return version


def _read(snapshot: View, cluster: str) -> StateVersion:
    return (*snapshot.lasts(SOURCES, cluster), _LOCAL if _is_local_cluster(snapshot, cluster) else _ABSENT)


def _is_local_cluster(snapshot: View, cluster: str) -> bool:
    return is_system_cluster(cluster) or bool(snapshot.revision_of(ObjectKey(LOGICAL_CLUSTERS, cluster, "", "cluster")))


def _read_replicas(snapshot: View, cluster: str) -> StateVersion:
    replicas = snapshot.replicas
    if not replicas.shard_of(cluster):
        return ()
    return (*(replicas.last(source, cluster) for source in _PUBLISHED), _REMOTE)
