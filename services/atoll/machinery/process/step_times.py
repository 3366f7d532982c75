"""A coroutine that tells for how long each of its steps held the event loop.

Requests whose user pays for the time of the loop run their tasks in it. Invariant: what is told is the time between two
awaits, whatever the coroutine awaits and however it ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")


class StepTimes(Coroutine[Any, Any, T]):
    """Runs `work` as it is, and calls `took` with the seconds of each step."""

    def __init__(self, work: Coroutine[Any, Any, T], took: Callable[[float], None]) -> None:
        self._work, self._took = work, took

    def send(self, value: Any) -> Any:
        began_s = time.monotonic()
        try:
            return self._work.send(value)
        finally:
            self._took(time.monotonic() - began_s)

    def throw(
        self, kind: type[BaseException] | BaseException, value: object = None, trace: TracebackType | None = None, /
    ) -> Any:
        error = kind if isinstance(kind, BaseException) else value if isinstance(value, BaseException) else kind()
        began_s = time.monotonic()
        try:
            return self._work.throw(error)
        finally:
            self._took(time.monotonic() - began_s)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return self

    def __iter__(self) -> Generator[Any, Any, T]:
        return self

    def __next__(self) -> Any:
        return self.send(None)
