"""The author's interface of a view: its kind, the sources of its rows, and the function that computes them.

`projection` computes the rows, `server` serves the kind. Invariant: a row is a function of objects of its own logical
cluster only, so it can be computed again at any time and reveals nothing of another workspace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from atoll.machinery.client.resource import Resource
from atoll.machinery.meta.objects import Object

__all__ = ["Key", "Look", "Object", "Source", "View"]


class Key(NamedTuple):
    """The identity of a row or source object. `namespace` is empty for cluster-scoped kinds."""

    cluster: str
    namespace: str
    name: str


class Source(msgspec.Struct, frozen=True):
    """A source resource of rows, as the APIExport's view serves it: exported or claimed."""

    group: str
    version: str
    plural: str

    @property
    def resource(self) -> Resource:
        """The resource for requests."""
        return Resource(self.group, self.version, self.plural)


#: Look up the current object of a source, None if it does not exist. The result must not be changed.
Look = Callable[[Source, Key], Object | None]
#: Compute a row: everything but apiVersion, kind and metadata, of which only labels and annotations are used. None
#: deletes the row. Called again when an object that `touches` it changed. Exceptions are logged and retried; the row
#: stays unchanged until a retry succeeds.
MakeRow = Callable[[Key, Look], Object | None]
#: The keys of the rows that an object affects.
Touches = Callable[[Source, Key, Object], Iterable[Key]]


def same_key(source: Source, key: Key, obj: Object) -> Iterable[Key]:
    """Map an object to the row of its own namespace and name."""
    return (key,)


class View(msgspec.Struct, frozen=True, kw_only=True):
    """A read-only view.

    `name` is the last part of its URL, `definition` an APIResourceSchema of its kind (that of the APIExport). `touches`
    must find a row from each object that `row` looks up, and stay in the object's cluster.
    """

    name: str
    definition: Object
    sources: tuple[Source, ...]
    row: MakeRow
    touches: Touches = same_key
