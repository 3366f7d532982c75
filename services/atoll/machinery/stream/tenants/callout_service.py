"""Answers a server that asks who its clients are.

A gateway runs one beside its other work; several share the questions as one queue group. Its caller says who a token
is. Invariant: only whom the caller admits is let in; at most `_AT_ONCE` questions are worked on, the rest waits in the
connection's bounded queue, and the server turns a client away that was not answered for in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

import structlog

from atoll.machinery.stream.connection import Connection, Unavailable
from atoll.machinery.stream.tenants.auth_callout import Admission, Answerer, ConnectRequest
from atoll.machinery.stream.tenants.claims import InvalidClaims
from atoll.machinery.stream.tenants.subscriber_permissions import CALLOUT_SUBJECT, CALLOUT_TIMEOUT_S

if TYPE_CHECKING:
    from nats.aio.msg import Msg

log = structlog.get_logger()

_QUEUE = "event-gateways"
_AT_ONCE = 64
_ANSWER_TIMEOUT_S = CALLOUT_TIMEOUT_S - 0.5
_BOX_HEADER = "Nats-Server-Xkey"


#: Who a token is; None for one that admits nobody.
Authenticate: TypeAlias = Callable[[ConnectRequest], Awaitable[Admission | None]]


class CalloutService:
    """Listens on one connection. `close` ends what is under way."""

    def __init__(self, connection: Connection, answerer: Answerer, authenticate: Authenticate) -> None:
        self._connection, self._answerer, self._authenticate = connection, answerer, authenticate
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._running: set[asyncio.Task[None]] = set()

    async def listen(self) -> None:
        """Begin to answer; the server knows once it has answered a later request. Raises Unavailable."""
        await self._connection.subscribe(CALLOUT_SUBJECT, self._take, _QUEUE)

    async def close(self) -> None:
        """End what is under way. The connection is the caller's to close."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _take(self, message: Msg) -> None:
        await self._room.acquire()
        task = asyncio.create_task(self._handle(message))
        self._running.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._room.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("callout failed", error=repr(error))

    async def _handle(self, message: Msg) -> None:
        try:
            request = self._answerer.open(message.data, (message.headers or {}).get(_BOX_HEADER, ""))
        except InvalidClaims as error:
            log.warning("callout ignored", reason=str(error))
            return
        admission = await self._authenticated(request)
        if admission is None:
            answer = self._answerer.refuse(request, "the token admits nobody")
        else:
            answer = self._answerer.admit(request, admission)
        try:
            await self._connection.publish(message.reply, answer)
        except Unavailable as error:
            log.debug("callout not answered", error=str(error))

    async def _authenticated(self, request: ConnectRequest) -> Admission | None:
        if not request.token:
            return None
        try:
            async with asyncio.timeout(_ANSWER_TIMEOUT_S):
                return await self._authenticate(request)
        except TimeoutError:
            return None
