"""What the author of a view says: the kind it shows, the objects its rows are made of, and how.

`projection` asks for rows, `server` serves the kind. Invariant: a row is a function of objects of its own logical
cluster and of nothing else, so that it can be made again at any time and no workspace is seen through another's row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from atoll.machinery.client.resource import Resource
from atoll.machinery.meta.objects import Object

__all__ = ["Key", "Look", "Object", "Source", "View"]


class Key(NamedTuple):
    """Where a row, or an object that it is made of, is. `namespace` is empty for cluster-scoped kinds."""

    cluster: str
    namespace: str
    name: str


class Source(msgspec.Struct, frozen=True):
    """A resource that rows are made of, as the APIExport's view shows it: exported, or claimed."""

    group: str
    version: str
    plural: str

    @property
    def resource(self) -> Resource:
        """For requests."""
        return Resource(self.group, self.version, self.plural)


#: An object of a source as it is known now, None if there is none. What it gives is not to be changed.
Look = Callable[[Source, Key], Object | None]
#: The content of a row: everything but apiVersion, kind and metadata, of which labels and annotations alone count.
#: None: there is no such row. Called again when an object that `touches` it changed. What it raises is logged, and it
#: is called again later; until then the row stays as it was.
MakeRow = Callable[[Key, Look], Object | None]
#: The keys of the rows that an object has a part in.
Touches = Callable[[Source, Key, Object], Iterable[Key]]


def same_key(source: Source, key: Key, obj: Object) -> Iterable[Key]:
    """An object has a part in the row of its own namespace and name."""
    return (key,)


class View(msgspec.Struct, frozen=True, kw_only=True):
    """A read-only view.

    `name` is the last part of its URL, `definition` an APIResourceSchema of the kind it shows (that of the APIExport).
    `touches` must find a row from each object that `row` looks at, and keep to the object's cluster.
    """

    name: str
    definition: Object
    sources: tuple[Source, ...]
    row: MakeRow
    touches: Touches = same_key
