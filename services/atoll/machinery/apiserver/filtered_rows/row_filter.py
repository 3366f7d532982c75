"""What a lens is made of: rows to read, and the choice among them.

Views make a RowFilter from the rows of its sources; `lens` and `cursor` ask it about each row. Pure but for reading
pages.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.storage.contract import EVERYTHING, Cursor, Interest, Page, Position, Record, Scope, Snapshot


class Rows(Protocol):
    """What lists and watches read: a whole store, or what a view shows of it. Each as in `storage.contract.Store`."""

    @property
    def list_window_s(self) -> int: ...

    def snapshot(self) -> AbstractContextManager[Snapshot]: ...

    def page(
        self, scope: Scope, *, at: int = 0, after: Position | None = None, limit: int = 0, size_bytes: int = 1 << 20
    ) -> Page: ...

    def cursor(self, scope: Scope, revision: int, interest: Interest = EVERYTHING) -> Cursor: ...


class Reader(Protocol):
    """What one look-up reads: a snapshot."""

    def get(self, key: ObjectKey) -> Record | None: ...

    def scan(self, scope: Scope, after: Position | None = None, limit: int = 500) -> list[Record]: ...


class RowSource(Rows, Protocol):
    """Rows of a view, of which one can be asked for by its name."""

    def get(self, view: Reader, key: ObjectKey) -> Record | None: ...


class RowFilter(msgspec.Struct, frozen=True):
    """Which rows are shown: those of `clusters` (sorted, none twice) that match.

    `matches` takes the cluster and the value of a row. Choices with equal `mark` show the same.
    """

    clusters: tuple[str, ...]
    mark: Hashable
    matches: Callable[[str, bytes], bool]

    def shows(self, cluster: str, value: bytes) -> bool:
        """Whether a row of any cluster is shown."""
        return cluster in self.clusters and self.matches(cluster, value)


#: Makes the choice from the values of the sources' rows, in the order of the sources and of keys. Raises nothing.
Choose = Callable[[Sequence[bytes]], RowFilter]


class _Metadata(msgspec.Struct):
    name: str
    namespace: str = ""


class _Named(msgspec.Struct):
    metadata: _Metadata


_decoder = msgspec.json.Decoder(_Named)


def key_of(scope: Scope, value: bytes) -> ObjectKey:
    """The key of a row of a scope that names its cluster."""
    found = _decoder.decode(value).metadata
    return ObjectKey(scope.type, scope.cluster, found.namespace, found.name)


def values_at(store: Rows, scope: Scope, at: int = 0) -> Iterator[bytes]:
    """The values of a scope at a revision (0: now), in key order, a page at a time. Raises Compacted."""
    after: Position | None = None
    while True:
        page = store.page(scope, at=at, after=after)
        yield from page.values
        at, after = page.revision, page.after
        if after is None:
            return
