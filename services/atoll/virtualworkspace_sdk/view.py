"""The author's interface of a view: its kind, the sources of its rows, how a row is computed, and how one is written.

`projection` computes the rows, `writer` carries out writes, `server` serves the kind. Invariant: a row is a function of
objects of its own logical cluster, and of those that share theirs with it, so it can be computed again at any time and
reveals nothing else of another workspace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

import msgspec

from atoll.machinery.client.resource import Resource
from atoll.machinery.meta.objects import Object

__all__ = ["Change", "Key", "Look", "Object", "Source", "View", "Write", "WriteRefused"]

WRITE_VERBS = ("create", "update", "patch", "delete")


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


class Look(Protocol):
    """Reads source objects for one row."""

    @property
    def clusters(self) -> tuple[str, ...]:
        """The logical clusters that may be read: the row's own, then in a joining view those that share with it."""

    def __call__(self, source: Source, key: Key) -> Object | None:
        """Return the current object, None if it does not exist; it must not be changed. Raises ValueError for an object
        of any other cluster."""


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """A write of a row by a user who may do it: valid, patched, defaulted.

    `old` is None for a create, `new` for a delete. `subresource` is `status` or empty.
    """

    key: Key
    new: Object | None
    old: Object | None
    subresource: str = ""


class Change(msgspec.Struct, frozen=True):
    """A change of one source object of the row's own cluster, as part of a write of the row.

    Without `old` it creates `new`, without `new` it deletes `old`, with both it replaces `old`, and only if that is
    still current. `new` needs `kind` and what the author sets; name, namespace and apiVersion follow from the rest.
    """

    source: Source
    key: Key
    new: Object | None
    old: Object | None = None
    subresource: str = ""


class WriteRefused(Exception):
    """Raised by an author's function: the write is refused (403) with this text."""


#: Compute a row: everything but apiVersion, kind and metadata, of which only labels and annotations are used. None
#: deletes the row. Called again when an object that `touches` it changed. Exceptions are logged and retried; the row
#: stays unchanged until a retry succeeds.
MakeRow = Callable[[Key, Look], Object | None]
#: The keys of the rows that an object affects.
Touches = Callable[[Source, Key, Object], Iterable[Key]]
#: The changes that carry out a write, done one after another; the first that fails ends it, so that a write must
#: be possible again after any of them. Called again after a conflict if the client set no resourceVersion.
MakeChanges = Callable[[Write, Look], Iterable[Change]]


def same_key(source: Source, key: Key, obj: Object) -> Iterable[Key]:
    """Map an object to the row of its own namespace and name."""
    return (key,)


class View(msgspec.Struct, frozen=True, kw_only=True):
    """A view of one kind; read-only without `write`.

    `name` is the last part of its URL, `definition` an APIResourceSchema of its kind (that of the APIExport). `touches`
    must find a row from each object that `row` looks up, within the object's cluster. `joins`: a row may use objects
    of workspaces that share theirs with the row's workspace; their keys are then those of the row's with another
    cluster, or what `touches` returns.
    """

    name: str
    definition: Object
    sources: tuple[Source, ...]
    row: MakeRow
    touches: Touches = same_key
    write: MakeChanges | None = None
    joins: bool = False
