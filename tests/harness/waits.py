"""Waits in an event loop: `harness.clients.api.eventually` for coroutines."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

LOOK_AGAIN_S = 0.02


def source_of(condition: Callable[..., Any]) -> str:
    """The source of a condition, with the texts that it looks for."""
    try:
        return inspect.getsource(condition).strip()
    except (OSError, TypeError):
        return repr(condition)


async def until(look: Callable[[], Awaitable[Any]], what: str, timeout_s: float = 30.0) -> Any:
    """The first truthy result of `look`; fails after `timeout_s`."""
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                if found := await look():
                    return found
                await asyncio.sleep(LOOK_AGAIN_S)
    except TimeoutError:
        raise AssertionError(f"never came: {what} ({source_of(look)})") from None
