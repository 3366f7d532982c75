"""DELETE on a collection: the selected objects, deleted one by one as by single deletes.

`limit` and `continue` choose a page of the selection; the reply's metadata holds the next token. A selection that takes
longer than the list window continues from the latest state: the verb does not promise one revision. Invariant: objects
of one slice of the list are in memory.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

import msgspec

from atoll.machinery.apiserver.call.call import Call
from atoll.machinery.apiserver.rest import list as listing
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.partial import ObjectName, Partial
from atoll.machinery.storage.contract import RevisionCompacted, Store

#: Objects that are deleted at the same time; they share commits.
BATCH = 32

_named = msgspec.json.Decoder(Partial[ObjectName])


class SelectedObject(NamedTuple):
    """An object to delete. `value` is as stored, or converted."""

    namespace: str
    name: str
    value: bytes


class CollectionSelection:
    """The selection of a deletecollection, read a slice at a time while earlier slices are deleted."""

    def __init__(self, call: Call, store: Store, convert: listing.Convert | None) -> None:
        self._request = listing.checked(call, store.list_window_s)
        self._listing = listing.Listing(store, self._request, convert)
        self._first: list[bytes] = []

    @classmethod
    async def open(cls, call: Call, store: Store, convert: listing.Convert | None = None) -> CollectionSelection:
        """Begin to read. `convert` converts stored objects; the call's kind is then the bare one.

        Raises BadRequest, Invalid, Expired for the options, ApiError for a failed conversion.
        """
        selected = cls(call, store, convert)
        selected._first = await selected._slice(first=True)
        return selected

    async def batches(self) -> AsyncIterator[list[SelectedObject]]:
        """Yield the objects in key order, at most BATCH and one slice at a time."""
        values, self._first = self._first, []
        while True:
            for start in range(0, len(values), BATCH):
                yield [_selected(value) for value in values[start : start + BATCH]]
            if self._listing.done:
                return
            values = await self._slice()

    def metadata(self) -> Object:
        """Return `metadata` of the reply's list. Valid after the last item."""
        return self._listing.metadata()

    async def _slice(self, *, first: bool = False) -> list[bytes]:
        try:
            return await self._listing.next_slice()
        except RevisionCompacted as error:
            if first:
                raise listing.expired(self._request) from error
            self._listing.revision = 0
            return await self._listing.next_slice()


def _selected(value: bytes) -> SelectedObject:
    metadata = _named.decode(value).metadata
    return SelectedObject(metadata.namespace, metadata.name, value)
