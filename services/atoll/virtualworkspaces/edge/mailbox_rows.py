"""The objects of one kind that a syncer may read: those that go down, and those that came up.

The mailbox view sets it on requests for kinds other than `downsyncitems`. Invariant: what is carried at the revision of
a list decides what it shows, and a watch from there has no gap.
"""

from __future__ import annotations

from collections.abc import Sequence

from atoll.machinery.apiserver.filtered_rows import FilteredRows, Log, RowFilter
from atoll.machinery.apiserver.filtered_rows.row_filter import Reader
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.storage.contract import Page, Position, Record, Scope
from atoll.virtualworkspaces.edge.carried import CONFIGS, Carried, CarriedReader, Mailbox, came_up, ref_of

#: Rows of one page, whatever is shown of them: each is looked at, at some 10 us, and the loop is held meanwhile.
PAGE_BYTES = 64 * 1024


def is_readable(carried: Carried, type: ResourceType, value: bytes) -> bool:
    """Whether a syncer may read a stored object."""
    ref = ref_of(type, value)
    return carried.lists(ref, value) or came_up(ref, value)


class MailboxRows(FilteredRows):
    """A RowSource of the objects of `type`."""

    def __init__(self, store: Log, mailbox: Mailbox, reader: CarriedReader, type: ResourceType) -> None:
        self._mailbox, self._reader, self._type = mailbox, reader, type
        super().__init__(store, [mailbox.scope(each) for each in CONFIGS], self._filter)

    def _filter(self, configs: Sequence[bytes]) -> RowFilter:
        carried, type = self._reader.of(self._mailbox, configs), self._type
        return RowFilter(
            (self._mailbox.cluster,), carried.mark, lambda cluster, value: is_readable(carried, type, value)
        )

    def page(
        self, scope: Scope, *, at: int = 0, after: Position | None = None, limit: int = 0, size_bytes: int = PAGE_BYTES
    ) -> Page:
        """Return a page, of PAGE_BYTES at most. Raises RevisionCompacted."""
        return super().page(scope, at=at, after=after, limit=limit, size_bytes=min(size_bytes, PAGE_BYTES))

    def get(self, view: Reader, key: ObjectKey) -> Record | None:
        """Return the object of a name, if it may be read."""
        record = view.get(key)
        if record is None:
            return None
        carried = self._reader.current(view, self._mailbox)
        return record if is_readable(carried, key.type, record.value) else None
