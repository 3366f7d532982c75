"""Rows of other shards through a lens: what a view shows of providers' clusters that lie elsewhere.

`boundschemas` reads through it. Rows of a cluster here come from the store as always; those of a cluster elsewhere are
what its shard published last. Invariant: which of them are shown follows this shard's own rows, revision by revision;
what is shown of a row elsewhere is what is known of it now, so this is for objects that never change.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from atoll.machinery.apiserver.federation.federated_view import federated
from atoll.machinery.apiserver.filtered_rows import Choose, FilteredRows, Rows
from atoll.machinery.apiserver.filtered_rows.row_filter import Reader
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.storage.contract import EVERYTHING, Cursor, Interest, Page, Position, Record, Scope, Snapshot
from atoll.machinery.storage.pages import PAGE, position_after


class CrossShardRows(FilteredRows):
    """A lens over clusters of all shards."""

    def __init__(self, store: Rows, sources: Sequence[Scope], choose: Choose) -> None:
        super().__init__(_Everywhere(store), sources, choose)
        self._here = store

    def get(self, view: Reader, key: ObjectKey) -> Record | None:
        """The shown row of a name, that of the first cluster where several have it."""
        with self._here.snapshot() as snapshot:
            return super().get(federated(snapshot), key)


class _Everywhere:
    """`Rows` of this shard's store, and of what others published."""

    def __init__(self, store: Rows) -> None:
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

    def cursor(self, scope: Scope, revision: int, interest: Interest = EVERYTHING) -> Cursor:
        # There is nothing of a cluster elsewhere in the log of this shard, and its position moves on all the same.
        return self._store.cursor(scope, revision, interest)
