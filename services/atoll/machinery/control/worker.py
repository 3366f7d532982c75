"""One worker of a queue: take a key, reconcile it, say how that went.

The manager runs some for each controller; a program outside a shard runs its own beside an informer. Invariant: a key
that was taken is given back in every case, so none is lost by a failure or a cancelled worker.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Protocol, TypeVar

import structlog

from atoll.machinery.control.queue import WorkQueue

log = structlog.get_logger()

K = TypeVar("K", bound=Hashable)
#: How long a worker goes on through keys that have nothing to wait for before others have their turn.
SLICE_S = 0.0005
#: Brings what a key stands for closer to what it should be; gives seconds until another look, or None.
Reconcile = Callable[[K], Awaitable[float | None]]


class Observer(Protocol):
    """Told after each turn how many seconds it took, and whether it failed."""

    def __call__(self, seconds: float, *, failed: bool) -> None: ...


def _nobody(seconds: float, *, failed: bool) -> None:
    return


async def work(name: str, queue: WorkQueue[K], reconcile: Reconcile[K], observe: Observer = _nobody) -> None:
    """Take keys until cancelled; start as many of these as keys may be in work at a time.

    An exception of `reconcile` is logged and means another turn, later and later. `name` stands in the log.
    """
    turn = time.monotonic()
    while True:
        key, _ = await queue.take()
        started = time.monotonic()
        failed = False
        try:
            again_s = await reconcile(key)
        except Exception as error:
            failed = True
            delay_s = queue.failed(key)
            log.warning(
                "reconcile failed",
                controller=name,
                key=str(key),
                again_s=round(delay_s, 3),
                error=f"{type(error).__name__}: {error}",
            )
        except BaseException:
            queue.done(key, 0.0)
            raise
        else:
            queue.done(key, again_s)
        ended = time.monotonic()
        observe(ended - started, failed=failed)
        # Reconciles that found nothing to do never waited: a turn of the loop for each would leave the queue to grow
        # while others write, and none at all would keep the others waiting.
        if ended - turn > SLICE_S:
            await asyncio.sleep(0)
            turn = time.monotonic()
