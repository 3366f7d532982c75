"""Waves of requests: those that come soon after another leave together, so that their server commits them together.

A `Target` may have one; each write of its clients joins before it is sent. A server whose requests come one by one pays
for each what it pays for all of a turn of its loop: a commit with its syncs, a packet of events, a wake-up of watches.
Invariant: what comes alone leaves at once, and nothing waits longer than the time between two waves.
"""

from __future__ import annotations

import asyncio


class Waves:
    """Waves of one process, `every_s` apart. Belongs to one event loop."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._free_at_s = 0.0
        self._next: asyncio.Event | None = None

    async def join(self) -> None:
        """Return with the next wave; at once if the last one is long enough ago."""
        loop = asyncio.get_running_loop()
        if self._next is None:
            if loop.time() >= self._free_at_s:
                self._free_at_s = loop.time() + self._every_s
                return
            self._next = asyncio.Event()
            loop.call_at(self._free_at_s, self._leave, self._next)
        await self._next.wait()

    def _leave(self, wave: asyncio.Event) -> None:
        self._next, self._free_at_s = None, asyncio.get_running_loop().time() + self._every_s
        wave.set()
