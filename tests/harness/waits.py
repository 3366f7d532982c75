"""Waiting, in an event loop, for what others do: `harness.clients.api.eventually` for coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

LOOK_AGAIN_S = 0.02


async def until(look: Callable[[], Awaitable[Any]], what: str, timeout_s: float = 30.0) -> Any:
    """The first truthy value that `look` gives; fails after `timeout_s`."""
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                if found := await look():
                    return found
                await asyncio.sleep(LOOK_AGAIN_S)
    except TimeoutError:
        raise AssertionError(f"never came: {what}") from None
