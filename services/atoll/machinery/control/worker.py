"""One worker of a queue: take a key, reconcile it, report the result to the queue.

The manager runs several for each controller; a program outside a shard runs its own next to an informer. Invariant:
every key taken is returned to the queue, so none is lost by a failure or a cancelled worker.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Protocol, TypeVar

import structlog

from atoll.machinery.control.queue import Requeue, WorkQueue

log = structlog.get_logger()

K = TypeVar("K", bound=Hashable)
#: How long a worker processes keys that never wait before it yields to the event loop.
SLICE_S = 0.0005
#: Reconciles the object of a key; returns when to reconcile it again, or None.
Reconcile = Callable[[K], Awaitable[Requeue]]


class Observer(Protocol):
    """Called after each reconcile with its duration in seconds, and whether it failed."""

    def __call__(self, seconds: float, *, failed: bool) -> None: ...


def _ignore(seconds: float, *, failed: bool) -> None:
    return


async def work(name: str, queue: WorkQueue[K], reconcile: Reconcile[K], observe: Observer = _ignore) -> None:
    """Reconcile keys until cancelled; run as many of these as keys may be in work at a time.

    An exception of `reconcile` is logged and retried with exponential back-off. `name` identifies the controller in the
    log.
    """
    slice_start = time.monotonic()
    while True:
        key, _ = await queue.take()
        started = time.monotonic()
        failed = False
        try:
            requeue_after = await reconcile(key)
        except Exception as error:
            failed = True
            delay_s = queue.failed(key)
            log.warning(
                "reconcile failed",
                controller=name,
                key=str(key),
                retry_s=round(delay_s, 3),
                error=f"{type(error).__name__}: {error}",
            )
        except BaseException:
            queue.done(key, 0.0)
            raise
        else:
            queue.done(key, requeue_after)
        ended = time.monotonic()
        observe(ended - started, failed=failed)
        # A reconcile without work never waits. Yielding after each lets the queue grow while other tasks write; never
        # yielding blocks those tasks.
        if ended - slice_start > SLICE_S:
            await asyncio.sleep(0)
            slice_start = time.monotonic()
