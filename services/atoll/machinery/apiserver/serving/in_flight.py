"""Requests that run as tasks, and the number of those that write.

`resources` and `writes` share one. Invariant: what a task raises is answered, and a request that writes begins only
when it can be audited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from atoll.machinery.apiserver.request import Request, fail
from atoll.machinery.meta.status import Details, TooManyRequests

#: Mutating requests in flight; beyond it 429 with Retry-After.
MAX_MUTATING = 400
_READS = frozenset({"get", "list", "watch"})


class InFlight:
    """The requests of one server that run as tasks or wait for the store."""

    def __init__(self) -> None:
        #: The number of mutating ones.
        self.mutating = 0

    def check(self) -> None:
        """Raises TooManyRequests for one mutating request too many."""
        if self.mutating >= MAX_MUTATING:
            raise TooManyRequests("Too many requests, please try again later.", Details(retry_after_s=1))

    def spawn(self, request: Request, work: Awaitable[None]) -> None:
        """Run the rest of a request as a task."""
        request.exchange.spawn(self._run(request, work))

    async def _run(self, request: Request, work: Awaitable[None]) -> None:
        mutating = request.info.verb not in _READS
        self.mutating += mutating
        try:
            if mutating:
                await request.observer.room()
            await work
        except asyncio.CancelledError:
            raise
        except Exception as error:
            fail(request, error)
        finally:
            self.mutating -= mutating
