"""A bounded cache of values derived from objects, by their revisions.

Catalogues and controllers use it for sets of rows of which few change. Invariant: a look-up returns the value of the
row in the given view: revisions are compared, and a batch's own writes, which have none, are read each time. Not
thread-safe; each event loop owns its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from atoll.machinery.apiserver.call.call import View
from atoll.machinery.meta.lru import LruCache, one
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import Object, decode

T = TypeVar("T")


class RevisionCache(Generic[T]):
    """Values that `read` makes of objects; `limit` in units of `weight`, the least recently used are dropped."""

    def __init__(self, read: Callable[[Object], T], limit: int, weight: Callable[[object], int] = one) -> None:
        self._read = read
        self._cached: LruCache[ObjectKey, tuple[int, T]] = LruCache(limit, weight)

    def of(self, view: View, key: ObjectKey, revision: int) -> T:
        """Return the value of an existing object at its revision in the view."""
        cached = self._cached.get(key)
        if revision and cached is not None and cached[0] == revision:
            return cached[1]
        record = view.get(key)
        assert record is not None, "its revision was read in the same view"
        made = self._read(decode(record.value))
        if revision:
            self._cached.put(key, (revision, made))
        return made
