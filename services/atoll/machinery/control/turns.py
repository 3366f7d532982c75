"""Ready keys of a queue, of each tenant one in turn, so that the thousands of one hold up nobody else's.

A `WorkQueue` made with `in_turn` keeps its ready keys here. Invariant: between two keys of a tenant each other tenant
that has any gets one; of one tenant they come in the order in which they were added.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Turns(Generic[K]):
    """A queue of keys; both operations take constant time. `tenant_of` says whose a key is."""

    def __init__(self, tenant_of: Callable[[K], Hashable]) -> None:
        self._tenant_of = tenant_of
        #: By tenant, none of them empty; the tenant that is first is next.
        self._keys: dict[Hashable, deque[K]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, key: K) -> None:
        """Add a key behind those of its tenant."""
        self._keys.setdefault(self._tenant_of(key), deque()).append(key)
        self._count += 1

    def popleft(self) -> K:
        """Take the next key; its tenant comes after all others then. Raises StopIteration if there is none."""
        tenant = next(iter(self._keys))
        keys = self._keys.pop(tenant)
        key = keys.popleft()
        if keys:
            self._keys[tenant] = keys
        self._count -= 1
        return key
