"""A time limit that many waits share: `asyncio.timeout` with one timer for all of them.

The writing service bounds every submit with it: a timer for each costs more than the submit's queue. Invariant: a wait
that reaches the limit is cancelled and raises TimeoutError; a cancellation from elsewhere passes through.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Protocol


class Expiring(Protocol):
    """A wait without a task of its own."""

    def expire(self) -> None:
        """End the wait: its limit is reached."""


class SharedTimeout:
    """Bounds waits of one event loop to `limit_s` seconds each: `with limit.wait(): await ...`.

    A wait without a task lasts from `begin` to `end`.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        #: Waits with their ends, the oldest first: all have the same length.
        self._ends: dict[Expiring, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def wait(self) -> _Wait:
        """Return the context manager of one wait. It raises TimeoutError past the limit."""
        return _Wait(self)

    def begin(self, wait: Expiring) -> None:
        """Note a wait that begins now; past the limit it is forgotten, and expires."""
        loop = asyncio.get_running_loop()
        self._ends[wait] = loop.time() + self._limit_s
        if self._timer is None:
            self._timer = loop.call_later(self._limit_s, self._expire)

    def end(self, wait: Expiring) -> None:
        """Forget a wait."""
        self._ends.pop(wait, None)

    def _expire(self) -> None:
        """Cancel the waits that are over; come back for the oldest of the others."""
        loop = asyncio.get_running_loop()
        self._timer = None
        for wait, end_s in list(self._ends.items()):
            if end_s > loop.time():
                self._timer = loop.call_at(end_s, self._expire)
                return
            self.end(wait)
            wait.expire()


class _Wait:
    __slots__ = ("_cancelling", "_is_expired", "_shared", "_task")

    _task: asyncio.Task[object]

    def __init__(self, shared: SharedTimeout) -> None:
        self._shared = shared
        self._is_expired = False

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None, "only a task can be cancelled"
        self._task, self._cancelling = task, task.cancelling()
        self._shared.begin(self)

    def expire(self) -> None:
        self._is_expired = True
        self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._shared.end(self)
        if self._is_expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error
