"""Filtered rows over the clusters of all shards, for views that show objects of remote providers.

`bound_schemas` reads through it. Rows of local clusters come from the store, those of remote clusters are the replicas
that their shard published last. Invariant: which rows are visible follows the local rows, revision by revision; the
content of a remote row is the latest replica, so this is only for immutable objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from atoll.machinery.apiserver.federation.federated_view import federated
from atoll.machinery.apiserver.filtered_rows import Choose, FilteredRows, Log
from atoll.machinery.apiserver.filtered_rows.row_filter import Reader
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.storage.contract import EVERYTHING, Interest, LogCursor, Page, Position, Record, Scope, Snapshot
from atoll.machinery.storage.pages import PAGE, position_after


class CrossShardRows(FilteredRows):
    """Filtered rows over clusters of all shards."""

    def __init__(self, store: Log, sources: Sequence[Scope], choose: Choose) -> None:
        super().__init__(_AllShards(store), sources, choose)
        self._local = store

    def get(self, view: Reader, key: ObjectKey) -> Record | None:
        """Return the visible row of a name, from the first cluster that has one."""
        with self._local.snapshot() as snapshot:
            return super().get(federated(snapshot), key)


class _AllShards:
    """`Log` of the local store and of the replicas."""

    def __init__(self, store: Log) -> None:
        self._store = store

    @property
    def list_window_s(self) -> int:
        return self._store.list_window_s

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        return self._store.snapshot()

    def page(
        self, scope: Scope, *, at: int = 0, after: Position | None = None, limit: int = 0, size_bytes: int = 1 << 20
    ) -> Page:
        with self._store.snapshot() as snapshot:
            if (
                scope.cluster
                and snapshot.replicas.shard_of(scope.cluster)
                and not snapshot.gate(scope.cluster).generation
            ):
                count = min(limit, PAGE) or PAGE
                found = snapshot.replicas.scan(scope, after, count)
                more = position_after(found[-1].key) if len(found) == count else None
                return Page(at or snapshot.revision, [record.value for record in found], more)
        return self._store.page(scope, at=at, after=after, limit=limit, size_bytes=size_bytes)

    def cursor(self, scope: Scope, revision: int, interest: Interest = EVERYTHING) -> LogCursor:
        # The local log has no entries of remote clusters; its position advances all the same.
        return self._store.cursor(scope, revision, interest)
