"""Create, update, patch and delete of one object, for `resources`.

Almost every write is planned in the request's own snapshot, as a read is answered, and its submit answered when the
store did, without a task. What takes long, waits or has to be planned again goes on as a task. Invariant: a write that
nobody waits for any more is still counted until the store answered it or its limit passed.
"""

from __future__ import annotations

import asyncio
from functools import partial

from atoll.machinery.apiserver.call.call import Call, Plan, Reply
from atoll.machinery.apiserver.request import Request, fail
from atoll.machinery.apiserver.serving.in_flight import InFlight
from atoll.machinery.apiserver.writing.commit import Planner, WriteService, outcome_unknown, require_another_attempt
from atoll.machinery.storage.contract import Snapshot, StoreError


class Writes:
    """Serves the writes of one object."""

    def __init__(self, service: WriteService, in_flight: InFlight) -> None:
        self.service, self.in_flight = service, in_flight

    def write(self, request: Request, call: Call, snapshot: Snapshot) -> None:
        """Plan and submit; answer now or later. Raises ApiError."""
        self.in_flight.check()
        planner, call = self.service.planner(call), self.service.first_attempt(call)
        plan = self.service.begin(call, planner, snapshot) if request.observer.has_room else None
        if plan is None:
            self.commit(request, call, planner)
        elif plan.mutations:
            _Submit(self, request, call, planner, plan).start()
        else:
            self.reply(request, plan.answer.reply(()))

    def commit(self, request: Request, call: Call, planner: Planner, tried: int = 0) -> None:
        """Go on as a task, after so many attempts."""
        self.in_flight.spawn(request, self._commit(request, call, planner, tried))

    async def _commit(self, request: Request, call: Call, planner: Planner, tried: int) -> None:
        reply = await self.service.commit(call, planner, partial(request.authorize_again, call), tried)
        if (work := request.reply_read(reply)) is not None:
            await work

    def reply(self, request: Request, reply: Reply) -> None:
        """Reply now, or in a task if the reply is large and to be packed."""
        if (work := request.reply_read(reply)) is not None:
            self.in_flight.spawn(request, work)


class _Submit:
    """One submit that no task waits for."""

    __slots__ = ("_call", "_is_expired", "_outcome", "_plan", "_planner", "_request", "_writes")

    _outcome: asyncio.Future[list[int]]

    def __init__(self, writes: Writes, request: Request, call: Call, planner: Planner, plan: Plan) -> None:
        self._writes, self._request, self._call, self._planner, self._plan = writes, request, call, planner, plan
        self._is_expired = False

    def start(self) -> None:
        """Queue it. Raises StoreError."""
        service = self._writes.service
        self._outcome = service.store.queue(self._plan.mutations, self._plan.guards)
        self._writes.in_flight.mutating += 1
        service.submit_limit.begin(self)
        self._request.exchange.follow(self._outcome, self._done)

    def expire(self) -> None:
        """End it past the limit of submits."""
        self._is_expired = True
        self._outcome.cancel()

    def _done(self, outcome: asyncio.Future[list[int]]) -> None:
        writes, request = self._writes, self._request
        writes.in_flight.mutating -= 1
        writes.service.submit_limit.end(self)
        try:
            if outcome.cancelled():
                self._cancelled()
            elif (error := outcome.exception()) is None:
                writes.reply(request, self._plan.answer.reply(outcome.result()))
            elif isinstance(error, StoreError):
                require_another_attempt(self._call, self._plan, error, 0)
                writes.commit(request, self._call, self._planner, tried=1)
            else:
                raise error
        except Exception as error:
            fail(request, error)

    def _cancelled(self) -> None:
        """Raises Timeout past the limit; else the client has gone."""
        if self._is_expired:
            raise outcome_unknown()
        self._request.exchange.abort()
