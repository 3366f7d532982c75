"""What keeps a peer that does not answer from being waited for again and again, and a slow one from taking all room.

`guard` asks before each call and tells how it ended. Invariant: a failing peer costs at most one waiting call at a time
once it failed often enough in a row; a host never holds more than its lane; what finds no room fails at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from atoll.machinery.meta.lru import LruCache

#: Failures in a row until calls fail at once, and for how long they do.
FAILURES, PAUSE_S = 5, 10.0
MAX_PEERS = 2048


class _State(msgspec.Struct):
    failures: int = 0
    closed_at_s: float = 0.0
    reason: str = ""
    probing: bool = False


class Circuits:
    """One circuit for each way of calling a peer (URL and trust), so that one tenant's mistakes are its own."""

    def __init__(self) -> None:
        self._states: LruCache[object, _State] = LruCache(MAX_PEERS)

    def open_reason(self, key: object, now_s: float) -> str:
        """Why a call must fail at once; empty if it may go. After the pause one call may try."""
        state = self._states.get(key)
        if state is None or state.failures < FAILURES:
            return ""
        if now_s < state.closed_at_s or state.probing:
            return state.reason
        state.probing = True
        return ""

    def succeeded(self, key: object) -> None:
        self._states.drop(key)

    def failed(self, key: object, now_s: float, reason: str) -> None:
        """The peer did not answer."""
        state = self._states.get(key) or _State()
        state.failures += 1
        state.closed_at_s, state.reason, state.probing = now_s + PAUSE_S, reason, False
        self._states.put(key, state)

    def gave_up(self, key: object) -> None:
        """The caller left before the call ended: nothing is known of the peer."""
        state = self._states.get(key)
        if state is not None:
            state.probing = False


class NoRoom(Exception):
    """Too many calls wait already."""


class Lanes:
    """Room for calls: so many to one host, so many in all, and so many waiting for each."""

    def __init__(self, per_host: int, total: int, waiting: int) -> None:
        self._per_host, self._waiting = per_host, waiting
        self._total = asyncio.Semaphore(total)
        self._waiting_total = 0
        self._max_waiting_total = total * 4
        self._hosts: dict[str, tuple[asyncio.Semaphore, list[int]]] = {}

    @asynccontextmanager
    async def room(self, host: str) -> AsyncIterator[None]:
        """Hold a place for one call. Raises NoRoom at once where too many wait."""
        lane, users = self._hosts.setdefault(host, (asyncio.Semaphore(self._per_host), [0]))
        if users[0] >= self._per_host + self._waiting or self._waiting_total >= self._max_waiting_total:
            raise NoRoom(host)
        users[0] += 1
        self._waiting_total += 1
        try:
            async with lane, self._total:
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
