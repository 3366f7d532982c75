"""When a cached conclusion about a cluster still holds: the last revisions of the types it derives from.

The authorizer keys all its caches by these stamps, read in the request's own transaction, so a role revoked
in one request is gone in the next, in every worker and without a notification. Reading them for each request
would cost more than deciding; between two revisions nothing changed, and while no cluster changed any of the
types (the wildcard rows say so) no stamp did either, so known stamps stay good.
"""

from __future__ import annotations

from atoll.machinery.apiserver.call import View
from atoll.machinery.meta.lru import LruCache
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
SOURCES = (
    CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, ROLES, ROLE_BINDINGS, LOGICAL_CLUSTERS, API_BINDINGS, API_EXPORTS,
)  # fmt: skip

Stamp = tuple[int, ...]


class Stamps:
    """Stamps of recently asked clusters, exact for the snapshot they are asked with."""

    def __init__(self, limit: int = 4096) -> None:
        self._revision = -1
        self._anywhere: Stamp = ()
        self._known: LruCache[str, Stamp] = LruCache(limit)

    def of(self, snapshot: View, cluster: str) -> Stamp:
        """The last revisions of the sources in a cluster, as this snapshot has them."""
        revision = snapshot.revision
        if revision < self._revision:
            return _read(snapshot, cluster)  # an older view than what is known: no memory of it is kept
        if revision > self._revision:
            self._advance(snapshot, revision)
        stamp = self._known.get(cluster)
        if stamp is None:
            stamp = _read(snapshot, cluster)
            self._known.put(cluster, stamp)
        return stamp

    def _advance(self, snapshot: View, revision: int) -> None:
        anywhere = _read(snapshot, "")
        if anywhere != self._anywhere:
            self._known.clear()
            self._anywhere = anywhere
        self._revision = revision


def _read(snapshot: View, cluster: str) -> Stamp:
    last = snapshot.last
    return tuple([last(source, cluster) for source in SOURCES])
