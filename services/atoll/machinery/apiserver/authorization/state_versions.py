"""When a cached conclusion about a cluster still holds: the last changes of the types it derives from.

The authorizer keys all its caches by these versions, read in the request's own transaction, so a role revoked
in one request is gone in the next, in every worker and without a notification. Reading them for each request
would cost more than deciding; between two revisions nothing changed, and while no cluster changed any of the
types (the wildcard rows say so) no version did either, so known versions hold. A cluster that lies on another shard
is stamped by what arrived of it here, counted as it was applied; between two counts nothing arrived. Invariant: what
stands here is never stamped, nor read, by what another shard says of it.
"""

from __future__ import annotations

from atoll.machinery.apiserver.call.call import View
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import ObjectKey, is_system_cluster
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

#: Everything a decision reads.
SOURCES = (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, ROLES, ROLE_BINDINGS, LOGICAL_CLUSTERS, API_BINDINGS, API_EXPORTS)
#: What of it other shards publish.
_PUBLISHED = (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, LOGICAL_CLUSTERS, API_EXPORTS)

StateVersion = tuple[int, ...]
#: How a version ends: the cluster has a LogicalCluster on this shard (or is the system's), has none, or lies elsewhere.
_LOCAL, _ABSENT, _REMOTE = 1, 0, -1


def is_remote(version: StateVersion) -> bool:
    """Whether it is the version of a cluster that lies on another shard, and is known from replicas."""
    return version[-1] == _REMOTE


def is_local(version: StateVersion) -> bool:
    """Whether it is the version of a cluster of this shard."""
    return version[-1] == _LOCAL


class StateVersions:
    """StateVersions of recently asked clusters, exact for the snapshot they are asked with."""

    def __init__(self, limit: int = 4096) -> None:
        self._revision = -1
        self._anywhere: StateVersion = ()
        self._known: LruCache[str, StateVersion] = LruCache(limit)
        self._count = -1
        self._arrived: LruCache[str, StateVersion] = LruCache(limit)

    def of(self, snapshot: View, cluster: str) -> StateVersion:
        """The last changes of the sources in a cluster, as this snapshot has them."""
        if snapshot.revision == self._revision:
            known = self._known.get(cluster)
            if known is not None and known[-1] == _LOCAL:
                return known
        version = self._here(snapshot, cluster)
        if version[-1] == _ABSENT and cluster:
            return self._elsewhere(snapshot, cluster) or version
        return version

    def _here(self, snapshot: View, cluster: str) -> StateVersion:
        revision = snapshot.revision
        if revision < self._revision:
            return _read(snapshot, cluster)  # an older view than what is known: no memory of it is kept
        if revision > self._revision:
            self._advance(snapshot, revision)
        version = self._known.get(cluster)
        if version is None:
            version = _read(snapshot, cluster)
            self._known.put(cluster, version)
        return version

    def _advance(self, snapshot: View, revision: int) -> None:
        anywhere = _lasts(snapshot, "")
        if anywhere != self._anywhere:
            self._known.clear()
            self._anywhere = anywhere
        self._revision = revision

    def _elsewhere(self, snapshot: View, cluster: str) -> StateVersion:
        """The version of a cluster that other shards tell of; empty where none does."""
        replicas = snapshot.replicas
        if replicas.empty:
            return ()
        if replicas.count < self._count:
            return _arrived(snapshot, cluster)
        if replicas.count > self._count:
            self._arrived.clear()
            self._count = replicas.count
        version = self._arrived.get(cluster)
        if version is None:
            version = _arrived(snapshot, cluster)
            self._arrived.put(cluster, version)
        return version


def _read(snapshot: View, cluster: str) -> StateVersion:
    return (*_lasts(snapshot, cluster), _LOCAL if _stands(snapshot, cluster) else _ABSENT)


def _stands(snapshot: View, cluster: str) -> bool:
    return is_system_cluster(cluster) or bool(snapshot.revision_of(ObjectKey(LOGICAL_CLUSTERS, cluster, "", "cluster")))


def _lasts(snapshot: View, cluster: str) -> StateVersion:
    last = snapshot.last
    return tuple([last(source, cluster) for source in SOURCES])


def _arrived(snapshot: View, cluster: str) -> StateVersion:
    replicas = snapshot.replicas
    if not replicas.shard_of(cluster):
        return ()
    return (*(replicas.last(source, cluster) for source in _PUBLISHED), _REMOTE)
