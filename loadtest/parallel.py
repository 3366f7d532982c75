"""Many pieces of work, some at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

#: How many requests of a preparation run at a time.
PARALLEL = 16
T = TypeVar("T")
R = TypeVar("R")


async def each(items: Iterable[T], work: Callable[[T], Awaitable[R]]) -> list[R]:
    """Do something with each of many, some at a time; return the results in order."""
    slots = asyncio.Semaphore(PARALLEL)

    async def one(item: T) -> R:
        async with slots:
            return await work(item)

    async with asyncio.TaskGroup() as tasks:
        found = [tasks.create_task(one(item)) for item in items]
    return [task.result() for task in found]
