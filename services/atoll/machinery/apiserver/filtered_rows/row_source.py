"""Reads through a filter: single rows and pages.

`reads` and `watches` use it instead of the store. Invariant: a list uses the filter of its own revision, so that a
watch from there (`cursor`) continues without a gap. Nothing is cached between requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager

from atoll.machinery.apiserver.filtered_rows.cursor import FilteredCursor
from atoll.machinery.apiserver.filtered_rows.row_filter import Choose, Log, Reader, RowFilter, values_at
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.storage.contract import EVERYTHING, Cursor, Interest, Page, Position, Record, Scope, Snapshot
from atoll.machinery.storage.pages import each_record


class FilteredRows:
    """A RowSource of rows under their own names in their own clusters.

    The cluster of a given scope or key is the request's, and is ignored.
    """

    def __init__(self, store: Log, sources: Sequence[Scope], choose: Choose) -> None:
        """`sources` each name a cluster."""
        self._store, self._sources, self._choose = store, tuple(sources), choose

    @property
    def list_window_s(self) -> int:
        """Return the store's list window."""
        return self._store.list_window_s

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """Return a snapshot of the store, for its revision."""
        return self._store.snapshot()

    def get(self, view: Reader, key: ObjectKey) -> Record | None:
        """Return the shown row of a name; of several clusters, that of the first."""
        choice = self._choose([value for source in self._sources for value in _current(view, source)])
        for cluster in choice.clusters:
            record = view.get(ObjectKey(key.type, cluster, key.namespace, key.name))
            if record is not None and choice.matches(cluster, record.value):
                return record
        return None

    def page(
        self, scope: Scope, *, at: int = 0, after: Position | None = None, limit: int = 0, size_bytes: int = 1 << 20
    ) -> Page:
        """Return a page as a store does, each within one cluster. Raises RevisionCompacted."""
        if not at:
            with self._store.snapshot() as snapshot:
                at = snapshot.revision
        choice = self._chosen(at)
        left = [each for each in choice.clusters if after is None or each >= after.cluster]
        if not left:
            return Page(at, [], None)
        start = after if after is not None and after.name and after.cluster == left[0] else None
        here = Scope(scope.type, left[0], scope.namespace)
        page = self._store.page(here, at=at, after=start, limit=limit, size_bytes=size_bytes)
        values = [value for value in page.values if choice.matches(left[0], value)]
        behind = page.after or (Position(left[1], "", "") if len(left) > 1 else None)
        return Page(at, values, behind)

    def cursor(self, scope: Scope, revision: int, interest: Interest = EVERYTHING) -> Cursor:
        """Return a cursor as a store does. Raises RevisionCompacted, also if the filter of that revision is lost."""
        return FilteredCursor(
            self._store, Scope(scope.type, "", scope.namespace), self._sources, self._choose, revision
        )

    def _chosen(self, at: int) -> RowFilter:
        return self._choose([value for source in self._sources for value in values_at(self._store, source, at)])


def _current(view: Reader, scope: Scope) -> Iterator[bytes]:
    return (record.value for record in each_record(view, scope))
