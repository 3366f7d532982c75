"""Waits in an event loop: `harness.clients.api.eventually` for coroutines."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any

#: The shortest and the longest pause between two looks, which cost the server and the test as much as any request.
SHORTEST_S, LONGEST_S = 0.01, 0.25


def pause_s(waited_s: float) -> float:
    """How long to wait before the next look: a tenth of the time that passed since the first."""
    return min(max(waited_s / 10, SHORTEST_S), LONGEST_S)


def source_of(condition: Callable[..., Any]) -> str:
    """The source of a condition, with the texts that it looks for."""
    try:
        return inspect.getsource(condition).strip()
    except (OSError, TypeError):
        return repr(condition)


async def until(look: Callable[[], Awaitable[Any]], what: str, timeout_s: float = 30.0) -> Any:
    """The first truthy result of `look`; fails after `timeout_s`."""
    began = time.monotonic()
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                if found := await look():
                    return found
                await asyncio.sleep(pause_s(time.monotonic() - began))
    except TimeoutError:
        raise AssertionError(f"never came: {what} ({source_of(look)})") from None
