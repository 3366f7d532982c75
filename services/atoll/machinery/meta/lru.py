"""A dictionary with a bound that evicts the least recently used entry.

Authentication, authorization, catalogues and look-ups keep their caches in it. Not thread-safe; each event loop owns
its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


def one(value: object) -> int:
    """The weight of an entry of a cache that is bounded by their number."""
    return 1


class LruCache(Generic[K, V]):
    """Holds at most `limit` units of weight (one for each entry by default), but always the newest entry."""

    def __init__(self, limit: int, weight: Callable[[V], int] = one) -> None:
        self._limit = limit
        self._weight = weight
        self._entries: dict[K, V] = {}
        self._total = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        """The value, now the most recently used; None if absent."""
        value = self._entries.pop(key, None)
        if value is not None:
            self._entries[key] = value
        return value

    def put(self, key: K, value: V) -> None:
        self.drop(key)
        self._entries[key] = value
        self._total += self._weight(value)
        while self._total > self._limit and len(self._entries) > 1:
            self.drop(next(iter(self._entries)))

    def drop(self, key: K) -> None:
        """Remove a key, if present."""
        value = self._entries.pop(key, None)
        if value is not None:
            self._total -= self._weight(value)

    def values(self) -> list[V]:
        """Return all values, the least recently used first."""
        return list(self._entries.values())

    def clear(self) -> None:
        self._entries.clear()
        self._total = 0
