"""A cursor over filtered rows: changes of rows and of the filter, in the order of the log.

`rest.watch` follows it like any cursor. Changes of rows come from a cursor on each selected cluster, changes of the
filter from one on each source. A row that a new filter hides is DELETED at the filter's revision; a row that it shows
is ADDED with its current value, under its own revision.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from atoll.machinery.apiserver.filtered_rows.feed_cursor import FeedCursor
from atoll.machinery.apiserver.filtered_rows.row_filter import Choose, Log, RowFilter, key_of, values_at
from atoll.machinery.meta.objects import with_revision
from atoll.machinery.storage.contract import Change, Operation, Scope


class FilteredCursor(FeedCursor):
    """`storage.contract.Cursor`. Raises Compacted where a cursor of the store would."""

    def __init__(self, store: Log, scope: Scope, sources: Sequence[Scope], choose: Choose, revision: int) -> None:
        super().__init__(store, revision)
        self._scope, self._choose = scope, choose
        try:
            self._sources = [dict(self._values(self._open(source, number))) for number, source in enumerate(sources)]
            self._choice = self._chosen()
            self._follow_rows(self._scopes(self._choice.clusters))
        except BaseException:
            self.close()
            raise

    def _chosen(self) -> RowFilter:
        return self._choose([rows[key] for rows in self._sources for key in sorted(rows)])

    def _scopes(self, clusters: Iterable[str]) -> list[Scope]:
        return [replace(self._scope, cluster=cluster) for cluster in clusters]

    def _row(self, change: Change) -> Iterator[Change]:
        cluster, shows = change.key.cluster, self._choice.shows
        before = change.before if change.before is not None and shows(cluster, change.before) else None
        if change.operation is not Operation.DELETED and shows(cluster, change.after):
            operation = Operation.ADDED if before is None else Operation.MODIFIED
            yield replace(change, operation=operation, before=before)
        elif before is not None:
            after = with_revision(before, change.revision)
            yield replace(change, operation=Operation.DELETED, before=before, after=after)

    def _rechosen(self, source: int, change: Change) -> Iterator[Change]:
        rows = self._sources[source]
        if change.operation is Operation.DELETED:
            rows.pop(change.key, None)
        else:
            rows[change.key] = change.after
        old, new = self._choice, self._chosen()
        if old.mark == new.mark:
            return
        self._choice = new
        self._follow_rows(self._scopes(new.clusters))
        yield from self._difference(old, new, change.revision)

    def _difference(self, old: RowFilter, new: RowFilter, revision: int) -> Iterator[Change]:
        for cluster in sorted({*old.clusters, *new.clusters}):
            scope = replace(self._scope, cluster=cluster)
            for value in values_at(self._store, scope, revision):
                was, is_now = old.shows(cluster, value), new.shows(cluster, value)
                if was and not is_now:
                    gone = with_revision(value, revision)
                    yield Change(revision, Operation.DELETED, key_of(scope, value), value, gone)
                elif is_now and not was:
                    yield Change(revision, Operation.ADDED, key_of(scope, value), None, value)
