"""The thread of commits where the disk is slow, so that an fsync does not hold the event loop.

`writer` hands it one transaction at a time. An executor does the same at three times the cost of the handover.
Invariant: transactions run in the order in which they were handed over, and each result returns to the loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")


class CommitThread(Generic[T]):
    """Runs commits, which raise nothing. Starts with the first, ends with `stop`."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[tuple[asyncio.AbstractEventLoop, Callable[[], T], Callable[[T], None]] | None]
        self._jobs = SimpleQueue()
        self._thread: threading.Thread | None = None

    def run(self, loop: asyncio.AbstractEventLoop, commit: Callable[[], T], done: Callable[[T], None]) -> None:
        """Run `commit` in the thread, then `done` with its result in the loop."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="commit", daemon=True)
            self._thread.start()
        self._jobs.put((loop, commit, done))

    def stop(self) -> None:
        """Wait for the last commit to end."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            loop, commit, done = job
            loop.call_soon_threadsafe(done, commit())
