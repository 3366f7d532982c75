"""A cache bounded in bytes whose entries share parts: a part counts once, however many entries hold it.

Look-ups whose answers are mostly the same for many tenants keep theirs in it. `Shared` finds a part by its content
while somebody holds it. Invariant: what is cached weighs no more than the limit, the newest entry aside. Not
thread-safe; each event loop owns its own.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar
from weakref import WeakValueDictionary

from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.objects import encode_json


class Part(Protocol):
    """What several entries may hold. It does not change, and weak references to it are possible."""

    @property
    def size_bytes(self) -> int: ...


class Entry(Protocol):
    """One entry. It does not change."""

    @property
    def own_bytes(self) -> int:
        """Bytes that it takes without its parts."""

    def parts(self) -> Iterable[Part]:
        """Return the parts that it holds; one may come several times."""


K = TypeVar("K")
E = TypeVar("E", bound=Entry)
P = TypeVar("P", bound=Part)


class SharedLru(LruCache[K, E]):
    """Drops the least recently used entries above `limit_bytes`."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(limit_bytes, self._enter)
        #: How many times cached entries hold each part, by its id.
        self._holders: Counter[int] = Counter()

    @property
    def size_bytes(self) -> int:
        """The bytes of all entries and of their parts."""
        return self._total

    def drop(self, key: K) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._total -= self._leave(entry)

    def clear(self) -> None:
        super().clear()
        self._holders.clear()

    def _enter(self, entry: E) -> int:
        """Note what a new entry holds; return what it adds to the total."""
        added = entry.own_bytes
        for part in entry.parts():
            if not self._holders[id(part)]:
                added += part.size_bytes
            self._holders[id(part)] += 1
        return added

    def _leave(self, entry: E) -> int:
        """Forget what an entry held; return what that frees."""
        removed = entry.own_bytes
        for part in entry.parts():
            self._holders[id(part)] -= 1
            if not self._holders[id(part)]:
                del self._holders[id(part)]
                removed += part.size_bytes
        return removed


class Shared(Generic[P]):
    """Parts by their content, as long as somebody holds them."""

    def __init__(self) -> None:
        self._found: WeakValueDictionary[bytes, P] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._found)

    def of(self, content: object, make: Callable[[], P]) -> P:
        """Return the part with a content (JSON values); `make` makes it if nobody holds one."""
        key = hashlib.blake2b(encode_json(content), digest_size=16).digest()
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = make()
        return found
