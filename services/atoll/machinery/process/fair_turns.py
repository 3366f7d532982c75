"""Turns of the event loop, shared out between those on whose behalf work goes on.

`writing.commit` takes one before it asks the webhooks of a request, and before it goes on with their answers: many of
both may come in one turn, and all of them at once would hold up every other request. Invariant: in one turn of the
loop at most `per_turn` go on, and of those that wait each tenant one before any tenant another. Who waits is bounded
by the caller.
"""

from __future__ import annotations

import asyncio
from collections import deque


class FairTurns:
    """The turns of one event loop."""

    def __init__(self, per_turn: int = 1) -> None:
        self._per_turn = self._left = per_turn
        #: By tenant; the one that is first goes on next.
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._is_due = False

    async def take(self, tenant: str) -> None:
        """Return when it is the tenant's turn: at once where nobody else goes on in this turn of the loop."""
        loop = asyncio.get_running_loop()
        if not self._is_due:
            self._is_due = True
            loop.call_soon(self._begin)
        if self._left and not self._waiting:
            self._left -= 1
            return
        place: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault(tenant, deque()).append(place)
        await place

    def _begin(self) -> None:
        """Begin a turn of the loop: let the first ones go on."""
        is_used, self._left = self._left < self._per_turn, self._per_turn
        while self._left and self._waiting:
            tenant = next(iter(self._waiting))
            queue = self._waiting.pop(tenant)
            place = queue.popleft()
            if queue:
                self._waiting[tenant] = queue
            if not place.done():
                place.set_result(None)
                self._left -= 1
        self._is_due = bool(self._waiting) or is_used or self._left < self._per_turn
        if self._is_due:
            asyncio.get_running_loop().call_soon(self._begin)
