"""Bounds on concurrent calls, so that a slow host cannot take the room of all others.

`guard` takes a slot for each call. Invariant: a host never has more than its share of slots; a call that finds too many
waiting fails at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class TooManyCalls(Exception):
    """Too many calls are waiting already."""


class CallSlots:
    """Slots for calls: `per_host` to one host, `total` in all, and `waiting` more in the queue of each host."""

    def __init__(self, per_host: int, total: int, waiting: int) -> None:
        self._per_host, self._waiting = per_host, waiting
        self._total = asyncio.Semaphore(total)
        self._waiting_total = 0
        self._max_waiting_total = total * 4
        self._hosts: dict[str, tuple[asyncio.Semaphore, list[int]]] = {}

    @asynccontextmanager
    async def slot(self, host: str) -> AsyncIterator[None]:
        """Hold a slot for one call. Raises TooManyCalls at once if too many wait."""
        slots, users = self._hosts.setdefault(host, (asyncio.Semaphore(self._per_host), [0]))
        if users[0] >= self._per_host + self._waiting or self._waiting_total >= self._max_waiting_total:
            raise TooManyCalls(host)
        users[0] += 1
        self._waiting_total += 1
        try:
            async with slots, self._total:
                self._waiting_total -= 1
                try:
                    yield
                finally:
                    self._waiting_total += 1
        finally:
            self._waiting_total -= 1
            users[0] -= 1
            if not users[0]:
                del self._hosts[host]
