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


class BackgroundWorkFailed(Exception):
    """Required background work failed; the text is the cause."""


class Lifetime:
    """Bound to the running event loop."""

    def __init__(self) -> None:
        self._failed = ""
        self._stopping = asyncio.Event()
        self._background: list[asyncio.Task[None]] = []

    def stop_on_signals(self) -> None:
        """Stop on SIGTERM and SIGINT."""
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, self.stop)

    def stop(self) -> None:
        """Stop the process. Idempotent."""
        self._stopping.set()

    async def stopped(self) -> None:
        """Wait until the process is to stop."""
        await self._stopping.wait()

    def run_in_background(self, *works: Coroutine[Any, Any, None]) -> None:
        """Run background work until `close`; its failure stops the process."""
        for work in works:
            task = asyncio.create_task(work)
            task.add_done_callback(self._ended)
            self._background.append(task)

    async def run_until_stopped(self, work: Coroutine[Any, Any, None]) -> bool:
        """Do work, or cancel it and return False when the process is to stop. Raises the error of the work."""
        task, stopping = asyncio.create_task(work), asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait((task, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                return False
            task.result()
            return True
        finally:
            task.cancel()
            stopping.cancel()
            await asyncio.gather(task, stopping, return_exceptions=True)

    async def close(self) -> None:
        """Cancel the background work and wait until it has ended."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)

    def check(self) -> None:
        """Raise BackgroundWorkFailed if a failure stopped the process. A failure after the stop is only logged."""
        if self._failed:
            raise BackgroundWorkFailed(self._failed)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        log.error("background work failed", exc_info=error)
        if not self._stopping.is_set():
            self._failed = str(error) or type(error).__name__
            self.stop()
