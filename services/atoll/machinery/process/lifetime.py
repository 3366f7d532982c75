"""The lifetime of a process: until it is signalled to stop, or until required background work has failed.

A process makes one `Lifetime` (a shard, a site, a front proxy, a cache server, a host of a third party's view), starts
its background work with it, waits for the end, drains its requests, closes it, and calls `check`. Invariant: background
work that fails is logged and stops the process in order; no process continues without a part of itself.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any

import structlog

log = structlog.get_logger()


class WorkFailed(Exception):
    """Required background work failed; the text is the cause."""


class Lifetime:
    """Bound to the running event loop."""

    def __init__(self) -> None:
        self._failed = ""
        self._over = asyncio.Event()
        self._beside: list[asyncio.Task[None]] = []

    def heed_signals(self) -> None:
        """Stop on SIGTERM and SIGINT."""
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, self.end)

    def end(self) -> None:
        """Stop the process. Idempotent."""
        self._over.set()

    async def over(self) -> None:
        """Wait until the process is to stop."""
        await self._over.wait()

    def beside(self, *works: Coroutine[Any, Any, None]) -> None:
        """Run background work until `close`; its failure stops the process."""
        for work in works:
            task = asyncio.create_task(work)
            task.add_done_callback(self._ended)
            self._beside.append(task)

    async def unless_over(self, work: Coroutine[Any, Any, None]) -> bool:
        """Do work, or cancel it and return False when the process is to stop. Raises the error of the work."""
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
        """Cancel the background work and wait until it has ended."""
        for task in self._beside:
            task.cancel()
        await asyncio.gather(*self._beside, return_exceptions=True)

    def check(self) -> None:
        """Raise WorkFailed if a failure stopped the process. A failure after the stop is only logged."""
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
