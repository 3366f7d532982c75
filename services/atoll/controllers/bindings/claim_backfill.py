"""Relabel stored objects after permission claims of the cluster's bindings changed.

The claims controller calls it when claims change, and for single objects written during the change. Objects are found
by prefix scans and written through admission, which sets the labels; correctly labelled objects are skipped. Bounded: a
page is read in its own snapshot, and a batch blocks the event loop for few objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from atoll.machinery.apiserver.conversion import bare
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import partial
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import decode
from atoll.machinery.meta.status import ApiError
from atoll.machinery.storage import contract
from atoll.machinery.storage.contract import Record, Scope
from atoll.machinery.storage.pages import each_page_in_snapshots
from atoll.tenancy.claim_labels import ClaimLabels

PAGE, BATCH = 500, 25


class ClaimBackfill:
    """Rewrites objects with wrong claim labels."""

    def __init__(self, loopback: Loopback, labels: ClaimLabels) -> None:
        self._loopback, self._labels = loopback, labels

    async def types(self, cluster: str, types: Iterable[ResourceType] | None) -> dict[ResourceType, str]:
        """Relabel a cluster's objects of some types (None: all). Returns the failures by type."""
        if types is None:
            with self._loopback.store.snapshot() as snapshot:
                types = [usage.type for usage in snapshot.usage(cluster)]
        failures: dict[ResourceType, str] = {}
        for type in sorted(types):
            if failure := await self._scope(Scope(type, cluster)):
                failures[type] = failure
        return failures

    async def one(self, key: ObjectKey) -> None:
        """Relabel one object. Raises the validation errors of its kind."""
        with self._loopback.store.snapshot() as snapshot:
            record = snapshot.get(key)
            kind = self._kind(snapshot, key)
            labelling = self._labels.of(snapshot, key.cluster)
        if record is None or kind is None or not labelling.misses(key.type, partial.labels(record.value)):
            return
        # A concurrent write passed admission; its log entry shows the resulting labels.
        await self._loopback.try_update(_target(kind, key), decode(record.value), whole=True)

    async def _scope(self, scope: Scope) -> str:
        """Relabel all objects of a scope. Returns why one could not be written; empty if all were."""
        failure = ""
        for records in filter(None, each_page_in_snapshots(self._loopback.store, scope)):
            with self._loopback.store.snapshot() as snapshot:
                kind = self._kind(snapshot, records[0].key)
                labelling = self._labels.of(snapshot, scope.cluster)
            if kind is None:
                # The type is not served here, so no reader selects by its labels.
                break
            missing = [r for r in records if labelling.misses(scope.type, partial.labels(r.value))]
            for some in _slices(missing):
                failure = await self._some(kind, some) or failure
        return failure

    async def _some(self, kind: Kind, records: Sequence[Record]) -> str:
        batch = self._loopback.batch()
        try:
            for record in records:
                batch.update(_target(kind, record.key), decode(record.value), whole=True)
            await batch.submit()
        except (contract.StoreError, ApiError):
            # One object changed, was deleted or rejected: a batch is atomic.
            return await self._each(records)
        return ""

    async def _each(self, records: Sequence[Record]) -> str:
        failure = ""
        for record in records:
            try:
                await self.one(record.key)
            except ApiError as error:
                failure = failure or f'"{record.key.name}": {error.message}'
        return failure

    def _kind(self, snapshot: contract.Snapshot, key: ObjectKey) -> Kind | None:
        kind = self._loopback.core.catalogs.of(snapshot, key.cluster).of_type(key.type)
        return bare(kind) if kind is not None and kind.conversion is not None else kind


def _target(kind: Kind, key: ObjectKey) -> Target:
    return Target(kind, key.cluster, key.namespace, key.name)


def _slices(records: Sequence[Record]) -> Iterator[Sequence[Record]]:
    return (records[at : at + BATCH] for at in range(0, len(records), BATCH))
