"""The latest state of a store, each read in a snapshot of its own: for batches that hold none."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.storage.contract import Gate, Position, Record, Scope, Store
from atoll.machinery.storage.limits import Limit, TotalObjects


class LatestState:
    """What a batch reads of `contract.Snapshot`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def revision(self) -> int:
        with self._store.snapshot() as snapshot:
            return snapshot.revision

    def get(self, key: ObjectKey) -> Record | None:
        with self._store.snapshot() as snapshot:
            return snapshot.get(key)

    def revision_of(self, key: ObjectKey) -> int:
        with self._store.snapshot() as snapshot:
            return snapshot.revision_of(key)

    def last(self, type: ResourceType, cluster: str) -> int:
        with self._store.snapshot() as snapshot:
            return snapshot.last(type, cluster)

    def stamp(self, types: Sequence[ResourceType]) -> Hashable:
        with self._store.snapshot() as snapshot:
            return snapshot.stamp(types)

    def lasts(self, types: Sequence[ResourceType], cluster: str) -> tuple[int, ...]:
        with self._store.snapshot() as snapshot:
            return snapshot.lasts(types, cluster)

    def gate(self, cluster: str) -> Gate:
        with self._store.snapshot() as snapshot:
            return snapshot.gate(cluster)

    def limits(self, type: ResourceType, cluster: str, namespace: str) -> list[Limit]:
        with self._store.snapshot() as snapshot:
            return snapshot.limits(type, cluster, namespace)

    def total(self, cluster: str) -> TotalObjects:
        with self._store.snapshot() as snapshot:
            return snapshot.total(cluster)

    def scan(self, scope: Scope, after: Position | None, limit: int) -> list[Record]:
        with self._store.snapshot() as snapshot:
            return snapshot.scan(scope, after, limit)

    def revisions(self, scope: Scope, after: Position | None, limit: int) -> list[tuple[ObjectKey, int]]:
        with self._store.snapshot() as snapshot:
            return snapshot.revisions(scope, after, limit)

    def labelled(
        self, label: str, value: str, type: ResourceType | None, limit: int, after: ObjectKey | None
    ) -> list[ObjectKey]:
        with self._store.snapshot() as snapshot:
            return snapshot.labelled(label, value, type, limit, after)
