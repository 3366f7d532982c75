"""Counts Python calls: a measure of work that is the same on each machine and beside any load.

A call is a Python function entered, or a generator or coroutine resumed. Frames of the event loop, of threads and of
the load itself are left out, and so is the publisher's reading of its own stream: how often those wake depends on time.
"""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any, TypeVar

_LEFT_OUT = (
    "/asyncio/",
    "/uvloop/",
    "/concurrent/",
    "/nats/",
    "/loadtest/",
    "/harness/",
    "/publisher/audit.py",
    "/consumer/pull_consumer.py",
    "/threading.py",
    queue.__file__,
    "<frozen",
)


T = TypeVar("T")


class CallCounter:
    """Counts while `counting` runs, in the thread that calls it and in every one that started after `install`.

    The thread that counts is profiled only then: what prepares an operation is not slowed down.
    """

    def __init__(self) -> None:
        self.calls = 0
        self._on = False
        self._counted: dict[CodeType, bool] = {}
        self._lock = threading.Lock()

    def install(self) -> None:
        threading.setprofile(self._profile)

    def remove(self) -> None:
        threading.setprofile(None)

    @contextmanager
    def counting(self) -> Iterator[Callable[[], int]]:
        """Count; yield a function that returns the number of calls since."""
        before, self._on = self.calls, True
        sys.setprofile(self._profile)
        try:
            yield lambda: self.calls - before
        finally:
            sys.setprofile(None)
            self._on = False

    def uncounted(self, ask: Callable[[], T]) -> T:
        """Return what `ask` returns; what it calls is left out."""
        sys.setprofile(None)
        try:
            return ask()
        finally:
            sys.setprofile(self._profile if self._on else None)

    def _profile(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "call" or not self._on:
            return
        code = frame.f_code
        counted = self._counted.get(code)
        if counted is None:
            counted = self._counted[code] = not any(part in code.co_filename for part in _LEFT_OUT)
        if counted:
            with self._lock:
                self.calls += 1
