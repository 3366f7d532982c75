"""Stops tasks that may swallow a cancellation.

A library may take a cancellation that arrives while it waits for a task of its own for that task's, and lose it;
nats-py does so while it closes a connection. Callers that stop a task of such a library use `stop`.
"""

from __future__ import annotations

import asyncio
from typing import Any

RETRY_S = 0.25


async def stop(task: asyncio.Task[Any]) -> None:
    """Cancel a task repeatedly until it has ended. Raises the task's own error."""
    while not task.done():
        task.cancel()
        await asyncio.wait((task,), timeout=RETRY_S)
    if not task.cancelled():
        task.result()
