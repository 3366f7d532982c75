"""A view over local rows and replicas: remote clusters answer from the rows that their shards published.

Code that reads clusters beside the request's own uses it: workspace facts and paths, authorizers, bound exports,
virtual workspaces. Handlers of the ordinary API never do. Invariant: a cluster answers either from local rows or from
replicas, never both; it is local if it has a gate or a LogicalCluster here, is a system cluster, or has no replicas.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import islice

from atoll.machinery.apiserver.call.call import View
from atoll.machinery.meta.cached_property import cached_property
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.storage.contract import ClusterRoute, Gate, Position, Record, ReplicaView, Scope, Store
from atoll.machinery.storage.encoding.keys import relative_key
from atoll.machinery.storage.limits import Limit, TotalObjects
from atoll.machinery.storage.pages import PAGE, pages, position_after

_SYSTEM = "system:"


def federated(view: View) -> View:
    """Return the view with replicas; the view itself if there are none, or if it is federated already."""
    return view if isinstance(view, FederatedView) or view.replicas.empty else FederatedView(view)


class FederatedView:
    """A view and the replicas in it. As short-lived as the view."""

    def __init__(self, view: View) -> None:
        self._view, self._replicas = view, view.replicas
        self._local: dict[str, bool] = {}

    @property
    def revision(self) -> int:
        return self._view.revision

    @property
    def replicas(self) -> ReplicaView:
        return self._replicas

    def is_local(self, cluster: str) -> bool:
        """Whether a cluster answers from local rows."""
        found = self._local.get(cluster)
        if found is None:
            found = self._local[cluster] = self._is_local(cluster)
        return found

    def _is_local(self, cluster: str) -> bool:
        if cluster.startswith(_SYSTEM) or self._view.gate(cluster).generation:
            return True
        if not self._replicas.shard_of(cluster):
            return True
        # A batch that creates a cluster has no gate for it yet.
        return self._view.get(ObjectKey(LOGICAL_CLUSTERS, cluster, "", "cluster")) is not None

    def get(self, key: ObjectKey) -> Record | None:
        return (self._view if self.is_local(key.cluster) else self._replicas).get(key)

    def revision_of(self, key: ObjectKey) -> int:
        return (self._view if self.is_local(key.cluster) else self._replicas).revision_of(key)

    def last(self, type: ResourceType, cluster: str) -> int:
        """Return a stamp that changes with the type in the cluster, and when the cluster becomes remote.

        Not a revision: for a remote cluster it is the apply count; for all clusters the sum of both, which rises with
        either.
        """
        if not cluster:
            return self._view.last(type, "") + self._replicas.last(type, "")
        return (self._view if self.is_local(cluster) else self._replicas).last(type, cluster)

    def lasts(self, types: Sequence[ResourceType], cluster: str) -> tuple[int, ...]:
        if cluster and self.is_local(cluster):
            return self._view.lasts(types, cluster)
        return tuple([self.last(type, cluster) for type in types])

    def stamp(self, types: Sequence[ResourceType]) -> Hashable:
        return self._view.stamp(types)

    def gate(self, cluster: str) -> Gate:
        """Return the local gate: a remote cluster is closed here, because this shard never writes to it."""
        return self._view.gate(cluster)

    def limits(self, type: ResourceType, cluster: str, namespace: str) -> list[Limit]:
        return self._view.limits(type, cluster, namespace)

    def total(self, cluster: str) -> TotalObjects:
        return self._view.total(cluster)

    def scan(self, scope: Scope, after: Position | None = None, limit: int = PAGE) -> list[Record]:
        if scope.cluster:
            return (self._view if self.is_local(scope.cluster) else self._replicas).scan(scope, after, limit)
        found = [*self._view.scan(scope, after, limit), *self._foreign_records(scope, after, limit)]
        return sorted(found, key=lambda record: _order(record.key))[:limit]

    def _foreign_records(self, scope: Scope, after: Position | None, limit: int) -> list[Record]:
        """Return the first records of remote clusters."""
        found: list[Record] = []
        while len(found) < limit:
            page = self._replicas.scan(scope, after, PAGE)
            found += [record for record in page if not self.is_local(record.key.cluster)]
            if len(page) < PAGE:
                break
            after = position_after(page[-1].key)
        return found[:limit]

    def revisions(self, scope: Scope, after: Position | None = None, limit: int = PAGE) -> list[tuple[ObjectKey, int]]:
        """Return revisions of the shards that hold the objects; those of two shards may be equal."""
        if scope.cluster:
            return (self._view if self.is_local(scope.cluster) else self._replicas).revisions(scope, after, limit)
        foreign = [(record.key, record.revision) for record in self._foreign_records(scope, after, limit)]
        found = [*self._view.revisions(scope, after, limit), *foreign]
        return sorted(found, key=lambda row: _order(row[0]))[:limit]

    def labelled(
        self, label: str, value: str, type: ResourceType | None = None, limit: int = 0, after: ObjectKey | None = None
    ) -> list[ObjectKey]:
        """Return local objects first, then remote ones."""
        found: list[ObjectKey] = []
        if after is None or self.is_local(after.cluster):
            found, after = self._view.labelled(label, value, type, limit, after), None
        foreign = self._foreign_labelled((label, value), type, after)
        return found + list(islice(foreign, limit - len(found) if limit else None))

    def _foreign_labelled(
        self, pair: tuple[str, str], type: ResourceType | None, after: ObjectKey | None
    ) -> Iterator[ObjectKey]:
        found = pages(lambda last: self._replicas.labelled(*pair, type, PAGE, last or after), lambda key: key)
        return (key for page in found for key in page if not self.is_local(key.cluster))


def _order(key: ObjectKey) -> bytes:
    """Keys of one type in the order of the store."""
    return relative_key(key.cluster, key.namespace, key.name)


class Latest:
    """Replicas, each look-up in its own transaction: for batches, which hold none.

    Lives for one loop turn, in which no replica arrives: whether there are any is read once.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    @cached_property
    def empty(self) -> bool:
        with self._store.snapshot() as snapshot:
            return snapshot.replicas.empty

    @property
    def count(self) -> int:
        with self._store.snapshot() as snapshot:
            return snapshot.replicas.count

    def shard_of(self, cluster: str) -> str:
        with self._store.snapshot() as snapshot:
            return snapshot.replicas.shard_of(cluster)

    def route_of(self, cluster: str) -> ClusterRoute | None:
        with self._store.snapshot() as snapshot:
            return snapshot.replicas.route_of(cluster)

    def get(self, key: ObjectKey) -> Record | None:
        with self._store.snapshot() as snapshot:
            return snapshot.replicas.get(key)

    def revision_of(self, key: ObjectKey) -> int:
        with self._store.snapshot() as snapshot:
            return snapshot.replicas.revision_of(key)

    def last(self, type: ResourceType, cluster: str) -> int:
        with self._store.snapshot() as snapshot:
            return snapshot.replicas.last(type, cluster)

    def scan(self, scope: Scope, after: Position | None = None, limit: int = PAGE) -> list[Record]:
        with self._store.snapshot() as snapshot:
            return snapshot.replicas.scan(scope, after, limit)

    def revisions(self, scope: Scope, after: Position | None = None, limit: int = PAGE) -> list[tuple[ObjectKey, int]]:
        with self._store.snapshot() as snapshot:
            return snapshot.replicas.revisions(scope, after, limit)

    def labelled(
        self, label: str, value: str, type: ResourceType | None = None, limit: int = 0, after: ObjectKey | None = None
    ) -> list[ObjectKey]:
        with self._store.snapshot() as snapshot:
            return snapshot.replicas.labelled(label, value, type, limit, after)

    def rows_of(self, origin: str, scope: Scope, after: Position | None = None, limit: int = PAGE) -> list[Record]:
        with self._store.snapshot() as snapshot:
            return snapshot.replicas.rows_of(origin, scope, after, limit)

    def row_of(self, origin: str, key: ObjectKey) -> tuple[Record, int] | None:
        with self._store.snapshot() as snapshot:
            return snapshot.replicas.row_of(origin, key)

    def types_of(self, origin: str, cluster: str) -> list[ResourceType]:
        with self._store.snapshot() as snapshot:
            return snapshot.replicas.types_of(origin, cluster)

    def outdated(
        self, origin: str, generation: int, after: ObjectKey | None = None, limit: int = PAGE
    ) -> tuple[list[ObjectKey], ObjectKey | None]:
        with self._store.snapshot() as snapshot:
            return snapshot.replicas.outdated(origin, generation, after, limit)
