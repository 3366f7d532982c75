"""The interfaces of rows, and the filter on them.

Virtual workspaces make a RowFilter from the rows of its sources; `row_source` and `cursor` call it for each row. Pure,
except for reading pages.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

from atoll.machinery.meta import partial
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.storage.contract import (
    EVERYTHING,
    Cursor,
    Interest,
    LogCursor,
    Page,
    Position,
    Record,
    Scope,
    Snapshot,
)


class Rows(Protocol):
    """The source of lists and watches: a store, or a virtual workspace's part of it. As in `storage.contract.Store`."""

    @property
    def list_window_s(self) -> int: ...

    def snapshot(self) -> AbstractContextManager[Snapshot]: ...

    def page(
        self, scope: Scope, *, at: int = 0, after: Position | None = None, limit: int = 0, size_bytes: int = 1 << 20
    ) -> Page: ...

    def cursor(self, scope: Scope, revision: int, interest: Interest = EVERYTHING) -> Cursor: ...


class Log(Rows, Protocol):
    """Rows of a store, or of a worker's."""

    def cursor(self, scope: Scope, revision: int, interest: Interest = EVERYTHING) -> LogCursor: ...


class Reader(Protocol):
    """The source of one look-up: a snapshot."""

    def get(self, key: ObjectKey) -> Record | None: ...

    def scan(self, scope: Scope, after: Position | None = None, limit: int = 500) -> list[Record]: ...


class RowSource(Rows, Protocol):
    """Rows of a virtual workspace, with look-up by name."""

    def get(self, view: Reader, key: ObjectKey) -> Record | None: ...


class RowFilter(msgspec.Struct, frozen=True):
    """Shows the rows of `clusters` (sorted, without duplicates) that match.

    `matches` takes the cluster and the value of a row. Filters with equal `mark` show the same rows.
    """

    clusters: tuple[str, ...]
    mark: Hashable
    matches: Callable[[str, bytes], bool]

    def shows(self, cluster: str, value: bytes) -> bool:
        """Whether a row of a cluster is shown."""
        return cluster in self.clusters and self.matches(cluster, value)


#: Makes the filter from the values of the sources' rows, in the order of sources and keys. Raises nothing.
Choose = Callable[[Sequence[bytes]], RowFilter]


def key_of(scope: Scope, value: bytes) -> ObjectKey:
    """Return the key of a row of a scope, which names its cluster."""
    found = partial.name(value)
    return ObjectKey(scope.type, scope.cluster, found.namespace, found.name)


def values_at(store: Rows, scope: Scope, at: int = 0) -> Iterator[bytes]:
    """Yield the values of a scope at a revision (0: latest), in key order, page by page. Raises RevisionCompacted."""
    after: Position | None = None
    while True:
        page = store.page(scope, at=at, after=after)
        yield from page.values
        at, after = page.revision, page.after
        if after is None:
            return
