"""The cursor of a watch of items: changes of carried objects and of what is carried, in the order of the log.

Where SyncerConfig or EdgeSyncConfig changes at revision r, the items that it shows and hides come before its own, with
revision r-1, so that a client that is cut in between resumes behind none of them. A change of a definition or a binding
may change under which types objects are stored, and is followed too; a definition that goes down comes after these.
Invariant: nothing of what is carried is held between two reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from msgspec.structs import replace

from atoll.machinery.apiserver.filtered_rows.feed_cursor import READ_LIMIT, FeedCursor
from atoll.machinery.apiserver.filtered_rows.row_filter import Log
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.types import API_BINDINGS, CRDS
from atoll.machinery.storage.contract import Change, Operation, Scope
from atoll.virtualworkspaces.edge.carried import CONFIGS, Carried, CarriedReader, Mailbox, ref_of
from atoll.virtualworkspaces.edge.downsync_item import item, metadata_item

#: Sources behind CONFIGS.
_DEFINING = (CRDS, API_BINDINGS)


class DownsyncCursor(FeedCursor):
    """`storage.contract.Cursor`; `mailbox` returns it with the kinds that it serves now."""

    def __init__(self, store: Log, mailbox: Callable[[], Mailbox], reader: CarriedReader, revision: int) -> None:
        super().__init__(store, revision)
        self._now, self._reader = mailbox, reader
        self._mailbox = mailbox()
        #: What is carried at the position, within one `read`.
        self._kept: Carried | None = None
        self._followed = frozenset[Scope]()
        try:
            self._configs = [self._open(self._mailbox.scope(each), source) for source, each in enumerate(CONFIGS)]
            for source, type in enumerate(_DEFINING, len(CONFIGS)):
                self._open(Scope(type, self._mailbox.cluster), source)
            self._followed = self._scopes(self._carried)
            self._follow_rows(self._followed)
        except BaseException:
            self.close()
            raise

    @property
    def _carried(self) -> Carried:
        if self._kept is None:
            self._kept = self._of(map(self._values, self._configs))
        return self._kept

    def _of(self, rows: Iterable[Iterable[tuple[ObjectKey, bytes]]]) -> Carried:
        return self._reader.of(self._mailbox, [value for each in rows for _, value in sorted(each)])

    def _before(self, source: int, change: Change) -> Carried:
        """Return what was carried before a change of a source."""
        if self._kept is not None or source >= len(CONFIGS):
            return self._carried
        rows = [dict(self._values(feed)) for feed in self._configs]
        rows[source].pop(change.key, None)
        if change.before is not None:
            rows[source][change.key] = change.before
        return self._of(each.items() for each in rows)

    def _scopes(self, carried: Carried) -> frozenset[Scope]:
        """Return the scopes of what is carried, those of types that are served no more included: what they had goes."""
        kept = (scope for scope in self._followed if (scope.type.group, scope.type.resource) in carried.set.versions)
        found = self._mailbox.scopes(carried)
        return frozenset((*kept, *(each for each in found if (each.type.group, each.type.resource) not in CONFIGS)))

    def read(self, limit: int = READ_LIMIT) -> list[Change]:
        """Return the next changes. Raises RevisionCompacted."""
        try:
            return super().read(limit)
        finally:
            self._kept = None

    def _row(self, change: Change) -> Iterator[Change]:
        ref, carried = ref_of(change.key.type, change.after), self._carried
        was = change.before is not None and carried.lists(ref, change.before)
        if change.operation is not Operation.DELETED and carried.lists(ref, change.after):
            yield self._item(change, Operation.MODIFIED if was else Operation.ADDED, change.revision)
        elif was:
            yield self._item(change, Operation.DELETED, change.revision)

    def _rechosen(self, source: int, change: Change) -> Iterator[Change]:
        old, before = self._before(source, change), self._followed
        self._kept, self._mailbox = None, self._now()
        after, of_config = self._scopes(self._carried), source < len(CONFIGS)
        if of_config and before == after and old.set == self._carried.set:
            # As with each report of the syncer: its status alone is another.
            yield self._item(change, change.operation, change.revision)
            return
        self._follow_rows({*before, *after})
        for scope in sorted({*before, *after}, key=lambda each: each.type):
            yield from self._difference(scope, old if scope in before else None, change)
        self._followed = after
        self._follow_rows(after)
        if of_config:
            yield self._item(change, change.operation, change.revision)
        elif Scope(change.key.type, self._mailbox.cluster) in before & after:
            # A definition that goes down itself.
            yield from self._row(change)

    def _difference(self, scope: Scope, old: Carried | None, change: Change) -> Iterator[Change]:
        """Yield the items of a type that a change of a source shows, hides, or brings into another version."""
        (feed,) = (each for each in self._feeds if each.scope == scope)
        new, revision = self._carried, change.revision - 1
        kind = scope.type.group, scope.type.resource
        is_converted = old is not None and old.set.versions.get(kind) != new.set.versions.get(kind)
        for key, value in self._values(feed):
            ref = ref_of(scope.type, value)
            was, is_now = old is not None and old.lists(ref, value), new.lists(ref, value)
            if was == is_now and not (was and is_converted):
                continue
            operation = Operation.DELETED if not is_now else Operation.MODIFIED if was else Operation.ADDED
            found = Change(change.revision, operation, key, value if was else None, value)
            yield self._item(found, operation, revision)

    def _item(self, change: Change, operation: Operation, revision: int) -> Change:
        """Return a change of an object as one of its item; where that goes, with the last object that was carried."""
        mailbox, ref, before = self._mailbox, ref_of(change.key.type, change.after), change.before
        shown = before if operation is Operation.DELETED and before is not None else change.after
        return replace(
            change,
            operation=operation,
            before=metadata_item(mailbox, ref, before) if before is not None else None,
            after=item(mailbox, self._carried, ref, shown, revision),
        )
