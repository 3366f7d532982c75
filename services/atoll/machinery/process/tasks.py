"""Ending tasks that do not end at the first word.

A cancellation that arrives while a library waits for something of its own may be taken for that something's and lost;
nats-py does so while it closes a connection. Whoever stops a task that talks to such a library uses this.
"""

from __future__ import annotations

import asyncio
from typing import Any

AGAIN_S = 0.25


async def stop(task: asyncio.Task[Any]) -> None:
    """Cancel a task until it has ended, and wait for that. Raises what it raised, unless it was cancelled."""
    while not task.done():
        task.cancel()
        await asyncio.wait((task,), timeout=AGAIN_S)
    if not task.cancelled():
        task.result()
