"""What was made of objects, kept by the revisions they were read at.

Catalogues and controllers that look at many rows, of which few change, keep in it what they need of each. Invariant: a
look-up gives what the row says in the view asked with, never what it said before: its revision is compared, and what a
batch has not submitted yet has none and is read each time. Bounded; not thread-safe, each event loop owns its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from atoll.machinery.apiserver.call.call import View
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import Object, decode

T = TypeVar("T")


class RevisionCache(Generic[T]):
    """What `read` makes of objects, for the `limit` asked for last."""

    def __init__(self, read: Callable[[Object], T], limit: int) -> None:
        self._read = read
        self._known: LruCache[ObjectKey, tuple[int, T]] = LruCache(limit)

    def of(self, view: View, key: ObjectKey, revision: int) -> T:
        """Of an object that is there, at the revision that the view gives for it."""
        known = self._known.get(key)
        if revision and known is not None and known[0] == revision:
            return known[1]
        record = view.get(key)
        assert record is not None, "its revision was read in the same view"
        made = self._read(decode(record.value))
        if revision:
            self._known.put(key, (revision, made))
        return made
