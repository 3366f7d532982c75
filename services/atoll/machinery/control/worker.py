"""One worker of a queue: take a key, reconcile it, report the result to the queue.

The manager runs several for each controller; a program outside a shard runs its own next to an informer. A worker whose
reconcile waits for a tenant's webhook is relieved: another one takes its place, and it ends with its key, so that no
tenant holds the workers of all. Invariant: every key taken is returned to the queue, so none is lost by a failure or a
cancelled worker.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import structlog

from atoll.machinery.control.queue import Requeue, WorkQueue
from atoll.machinery.process.relief import relieved_by

log = structlog.get_logger()

K = TypeVar("K", bound=Hashable)
#: How long a worker processes keys that never wait before it yields to the event loop.
SLICE_S = 0.0005
#: Reconciles the object of a key; returns when to reconcile it again, or None.
Reconcile = Callable[[K], Awaitable[Requeue]]
#: Runs another worker beside the others.
Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None]], object]


class Observer(Protocol):
    """Called after each reconcile with its duration in seconds, and whether it failed."""

    def __call__(self, seconds: float, *, failed: bool) -> None: ...


def _ignore(seconds: float, *, failed: bool) -> None:
    return


class _Shift(Generic[K]):
    """The time of one worker at its place."""

    def __init__(self, queue: WorkQueue[K], replace: Callable[[], object] | None) -> None:
        self._queue, self._replace = queue, replace
        self.key: K | None = None
        self.is_over = False

    def relieve(self) -> None:
        """End it, as the key waits for somebody outside."""
        if self._replace is not None and self.key is not None and not self.is_over:
            self.is_over = True
            self._queue.waits_outside(self.key)
            self._replace()


async def work(
    name: str, queue: WorkQueue[K], reconcile: Reconcile[K], observe: Observer = _ignore, spawn: Spawn | None = None
) -> None:
    """Reconcile keys until cancelled, or relieved; run as many of these as keys may be in work at a time.

    An exception of `reconcile` is logged and retried with exponential back-off. `name` identifies the controller in the
    log. Without `spawn` no worker is relieved.
    """
    shift = _Shift(queue, spawn and (lambda: spawn(work(name, queue, reconcile, observe, spawn))))
    relieved_by(shift.relieve)
    slice_start = time.monotonic()
    while not shift.is_over:
        key, _ = await queue.take()
        shift.key = key
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
