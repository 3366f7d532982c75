"""Retries of a write after a conflict with another writer.

The loopback client, controllers, the shard's registration and the kubectl plug-ins read, change and write in one
attempt. Invariant: at most ATTEMPTS attempts, without a delay: each reads the state that made the last one fail.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")

#: As many as client-go's `retry.DefaultRetry`.
ATTEMPTS = 5


async def retry_on_conflict(attempt: Callable[[], Awaitable[T]], *conflicts: type[Exception]) -> T:
    """Return the result of the first attempt that raises none of `conflicts`. Raises the error of the last one."""
    for _ in range(ATTEMPTS - 1):
        with suppress(*conflicts):
            return await attempt()
    return await attempt()
