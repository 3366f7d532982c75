"""Renewals of syncers' Leases, which are sent on together, once a second.

A renewal that goes alone finds each process on its way asleep and its code out of the caches, and takes a commit of its
own: with many edge clusters four times the CPU of one among others. `handler` has each wait here. Invariants: a renewal
waits for a second at most; those of one moment go in the order in which they came, a few in a turn of the event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque

from atoll.machinery.apiserver.call.requestinfo import RequestInfo
from atoll.machinery.edge.names import MAILBOX_VIEW

#: Seconds between two moments, which are whole ones of the clock, so that proxies have the same.
INTERVAL_S = 1.0
#: Renewals that go in one turn of the event loop; other requests are served in between.
AT_ONCE = 16


def is_renewal(info: RequestInfo) -> bool:
    """Whether a request renews the Lease of a syncer."""
    return info.service == MAILBOX_VIEW and info.method == "PATCH" and "/leases/" in info.path


class Renewals:
    """Those that wait. Belongs to one event loop."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def turn(self) -> None:
        """Return at the next moment."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_later(INTERVAL_S - time.time() % INTERVAL_S, self._go, loop)
        waiter = loop.create_future()
        self._waiting.append(waiter)
        await waiter

    def _go(self, loop: asyncio.AbstractEventLoop) -> None:
        for _ in range(min(len(self._waiting), AT_ONCE)):
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
        if self._waiting:
            loop.call_soon(self._go, loop)
