"""How long a process lives: until it is told to leave, or until something that it is nothing without has failed.

A process makes one `Lifetime` (a shard, a whole site, a front proxy, a cache server, a view of third parties), hands it
what runs beside its listener, waits for the end, finishes its requests, closes it, and has `check` say how it ended.
Invariant: work that fails is told of and ends the process in order; none goes on with a part of itself missing.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any

import structlog

log = structlog.get_logger()


class WorkFailed(Exception):
    """Something ended that a process is nothing without; says what."""


class Lifetime:
    """Lives on the running loop."""

    def __init__(self) -> None:
        self._failed = ""
        self._over = asyncio.Event()
        self._beside: list[asyncio.Task[None]] = []

    def heed_signals(self) -> None:
        """End on SIGTERM and SIGINT, from now on."""
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, self.end)

    def end(self) -> None:
        """Tell the process to leave. More than once is the same as once."""
        self._over.set()

    async def over(self) -> None:
        """Return when the process is to leave."""
        await self._over.wait()

    def beside(self, *works: Coroutine[Any, Any, None]) -> None:
        """Run what never ends by itself until `close`; its failure is the end."""
        for work in works:
            task = asyncio.create_task(work)
            task.add_done_callback(self._ended)
            self._beside.append(task)

    async def unless_over(self, work: Coroutine[Any, Any, None]) -> bool:
        """Do it, or give it up and return False when the process is to leave. Raises what it raises."""
        task, over = asyncio.create_task(work), asyncio.create_task(self._over.wait())
        try:
            await asyncio.wait((task, over), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                return False
            task.result()
            return True
        finally:
            task.cancel()
            over.cancel()
            await asyncio.gather(task, over, return_exceptions=True)

    async def close(self) -> None:
        """Cancel what runs beside, and wait until all of it has ended."""
        for task in self._beside:
            task.cancel()
        await asyncio.gather(*self._beside, return_exceptions=True)

    def check(self) -> None:
        """Raises WorkFailed if the end came by a failure. What fails while the process leaves is only logged."""
        if self._failed:
            raise WorkFailed(self._failed)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        log.error("background work failed", exc_info=error)
        if not self._over.is_set():
            self._failed = str(error) or type(error).__name__
            self.end()
