"""Everything that goes down from a mailbox as one list of items: look-up, pages and the cursor of its watch.

The mailbox view sets it on requests for `downsyncitems`. A page has rows of one resource, and what is carried at its
revision decides which. Invariant: a list is the state at its revision, and a watch from there has no gap.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from atoll.machinery.apiserver.filtered_rows.row_filter import Log, Reader, values_at
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.storage.contract import EVERYTHING, Cursor, Interest, Page, Position, Record, Scope, Snapshot
from atoll.virtualworkspaces.edge.carried import (
    CONFIGS,
    Carried,
    CarriedReader,
    Mailbox,
    ref_of,
    revision_of,
    type_name,
)
from atoll.virtualworkspaces.edge.downsync_cursor import DownsyncCursor
from atoll.virtualworkspaces.edge.downsync_item import item, ref_of_name
from atoll.virtualworkspaces.edge.mailbox_rows import PAGE_BYTES


class DownsyncRows:
    """A RowSource of the items of one mailbox; `mailbox` returns it with the kinds that it serves in a snapshot."""

    def __init__(self, store: Log, mailbox: Callable[[Snapshot], Mailbox], reader: CarriedReader) -> None:
        self._store, self._mailbox, self._reader = store, mailbox, reader

    @property
    def list_window_s(self) -> int:
        """Return the list window of the store."""
        return self._store.list_window_s

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """Return a snapshot of the store, for its revision."""
        return self._store.snapshot()

    def _now(self) -> tuple[int, Mailbox]:
        with self._store.snapshot() as snapshot:
            return snapshot.revision, self._mailbox(snapshot)

    def get(self, view: Reader, key: ObjectKey) -> Record | None:
        """Return the item of a name."""
        ref, (_, mailbox) = ref_of_name(key.name), self._now()
        type = mailbox.type(*ref.kind) if ref is not None else None
        if ref is None or type is None:
            return None
        record = view.get(ObjectKey(type, mailbox.cluster, ref.namespace, ref.name))
        carried = self._reader.current(view, mailbox)
        if record is None or not (ref.kind in CONFIGS or carried.lists(ref, record.value)):
            return None
        return Record(key, record.revision, item(mailbox, carried, ref, record.value, record.revision), record.flags)

    def page(
        self, scope: Scope, *, at: int = 0, after: Position | None = None, limit: int = 0, size_bytes: int = 1 << 20
    ) -> Page:
        """Return a page of the items of one resource. Raises RevisionCompacted."""
        revision, mailbox = self._now()
        at = at or revision
        carried = self._carried_at(mailbox, at)
        name = after.name if after is not None else ""
        resource, _, _ = name.partition(":")
        left = [each for each in mailbox.scopes(carried) if _name(each) >= resource]
        if not left:
            return Page(at, [], None)
        ref = ref_of_name(name) if _name(left[0]) == resource else None
        start = Position(mailbox.cluster, ref.namespace, ref.name) if ref is not None else None
        page = self._store.page(left[0], at=at, after=start, limit=limit, size_bytes=min(size_bytes, PAGE_BYTES))
        items = [
            item(mailbox, carried, ref, value, revision_of(value))
            for value in page.values
            if (ref := ref_of(left[0].type, value)).kind in CONFIGS or carried.lists(ref, value)
        ]
        return Page(at, items, self._behind(mailbox, left, page))

    def _behind(self, mailbox: Mailbox, left: list[Scope], page: Page) -> Position | None:
        if (after := page.after) is not None:
            return Position(mailbox.cluster, "", f"{_name(left[0])}:{after.namespace}:{after.name}")
        return Position(mailbox.cluster, "", _name(left[1]) + ":") if len(left) > 1 else None

    def _carried_at(self, mailbox: Mailbox, at: int) -> Carried:
        configs = [value for each in CONFIGS for value in values_at(self._store, mailbox.scope(each), at)]
        return self._reader.of(mailbox, configs)

    def cursor(self, scope: Scope, revision: int, interest: Interest = EVERYTHING) -> Cursor:
        """Return a cursor. Raises RevisionCompacted."""
        return DownsyncCursor(self._store, lambda: self._now()[1], self._reader, revision)


def _name(scope: Scope) -> str:
    return type_name(scope.type.group, scope.type.resource)
