"""Requests that run as tasks, and the number of those that write.

`resources` and `writes` share one. Invariant: what a task raises is answered, and a request that writes begins only
when it can be audited.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Coroutine
from functools import partial

from atoll.machinery.apiserver.request import Request, fail
from atoll.machinery.meta.status import Details, TooManyRequests

#: Mutating requests in flight; beyond it 429 with Retry-After.
MAX_MUTATING = 400
#: Mutating requests of one workspace that run as tasks: those that wait for webhooks, and long ones.
MAX_TASKS = 128
_READS = frozenset({"get", "list", "watch"})


class InFlight:
    """The requests of one server that run as tasks or wait for the store."""

    def __init__(self) -> None:
        #: The number of mutating ones.
        self.mutating = 0
        #: The mutating ones that run as tasks, by logical cluster.
        self._tasks: Counter[str] = Counter()

    def check(self) -> None:
        """Raises TooManyRequests for one mutating request too many."""
        if self.mutating >= MAX_MUTATING:
            raise _too_many()

    def spawn(self, request: Request, work: Coroutine[object, object, None]) -> None:
        """Run the rest of a request as a task. Beyond MAX_TASKS of its workspace it is answered 429 at once."""
        if request.info.verb in _READS:
            request.spawn(_run(request, work))
        elif self._tasks[request.cluster] >= MAX_TASKS:
            # The webhooks of one workspace, if they do not answer, would take the places of all others.
            work.close()
            fail(request, _too_many())
        else:
            task = request.spawn(_run(request, _with_room(request, work)))
            # Counted before it begins: many requests may come in one turn of the loop.
            self.mutating += 1
            self._tasks[request.cluster] += 1
            task.add_done_callback(partial(self._ended, request.cluster))

    def _ended(self, cluster: str, _: asyncio.Task[None]) -> None:
        self.mutating -= 1
        self._tasks[cluster] -= 1
        if not self._tasks[cluster]:
            del self._tasks[cluster]


async def _with_room(request: Request, work: Awaitable[None]) -> None:
    await request.observer.room()
    await work


async def _run(request: Request, work: Awaitable[None]) -> None:
    try:
        await work
    except asyncio.CancelledError:
        raise
    except Exception as error:
        fail(request, error)


def _too_many() -> TooManyRequests:
    return TooManyRequests("Too many requests, please try again later.", Details(retry_after_s=1))
