"""Reads a stream through a pull consumer: batches as they arrive, one request outstanding.

The audit, the state consumer and `atoll.events` read with this. Invariant: a request asks for no more than the
limits, so a slow reader holds one batch and the server keeps the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

import msgspec
import structlog

from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.stream.connection import ApiError, Connection, ConsumerTaken, Unavailable

if TYPE_CHECKING:
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

log = structlog.get_logger()

#: A delivered message, as nats-py has it.
Message: TypeAlias = "Msg"

_CONSUMER_NOT_FOUND = 10014
#: How long one request for messages waits at the server.
WAIT_S = 20.0
_GRACE_S = 5.0
_NOTHING = ("404", "408")
#: A request also ends at its bound in bytes, with messages left behind it.
_FULL = ("Batch Completed", "Exceeds MaxBytes")
_DELETED = "Consumer Deleted"


def _bounded(status: Mapping[str, str]) -> bool:
    """Whether a request ended because it was full, not for lack of messages. Raises Unavailable, ConsumerTaken."""
    words = " ".join(status.values())
    if status.get("Status") in _NOTHING:
        return False
    if any(reason in words for reason in _FULL):
        return True
    if _DELETED in words:
        raise ConsumerTaken("the consumer was deleted")
    raise Unavailable(f"the consumer says: {words}")


def stream_sequence(reply: str) -> int:
    """The stream sequence of a delivered message, from its reply subject. Raises ValueError for any other subject."""
    tokens = reply.split(".")
    if tokens[:2] != ["$JS", "ACK"] or len(tokens) not in (9, 12):
        raise ValueError(f"not delivered by a consumer: {reply!r}")
    return int(tokens[5] if len(tokens) == 9 else tokens[7])


def _delivered(reply: str) -> int:
    """How many messages its consumer had delivered with this one, from its reply subject."""
    tokens = reply.split(".")
    return int(tokens[6] if len(tokens) == 9 else tokens[8])


def _left_behind(reply: str) -> int:
    """The number of messages pending after a delivered one, from its reply subject."""
    tokens: list[str] = reply.split(".")
    place = 8 if len(tokens) == 9 else 10
    return int(tokens[place])


class BatchLimits(msgspec.Struct, frozen=True):
    """The most that one request may deliver. `size_bytes` must hold the largest message."""

    messages: int = 500
    size_bytes: int = 16 << 20


BATCH_LIMITS = BatchLimits()


class PullConsumer:
    """One consumer of one stream. `open` or `attach`, then `batch` until done, then `close`."""

    def __init__(self, connection: Connection, stream: str, name: str, bounds: BatchLimits = BATCH_LIMITS) -> None:
        self._connection, self._stream, self._name, self._bounds = connection, stream, name, bounds
        self._queue: asyncio.Queue[Msg | Exception | None] = asyncio.Queue()
        self._subscription: Subscription | None = None
        self._outstanding = 0
        #: Messages pending at the server after the last one delivered.
        self.pending = 0
        self._inbox = ""
        self._requests = 0
        self._made = False
        #: The time of the consumer that was made, and the messages of it that came.
        self._created, self._delivered = "", 0
        self._creation: tuple[str, Object] = "", {}

    async def attach(self) -> None:
        """Read a consumer that somebody else made and keeps. Raises Unavailable."""
        self._inbox = self._connection.inbox()
        self._subscription = await self._connection.subscribe(f"{self._inbox}.*", self._queue.put)
        self._connection.on_lost(self._queue.put_nowait)

    async def open(self, config: Object) -> Object:
        """Create the consumer, replacing one of the same name; return its info. Raises ApiError, Unavailable."""
        await self._delete()
        await self.attach()
        self._made = True
        base = {
            "name": self._name,
            "ack_policy": "none",
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": 60_000_000_000,
        }
        subject, selecting = self._selecting(config)
        body = {"stream_name": self._stream, "config": {**base, **selecting}}
        self._creation = subject, body
        info = await self._connection.api(subject, body)
        self.pending, self._created = info.get("num_pending", 0), info["created"]
        return info

    async def verify(self) -> None:
        """Raise ConsumerTaken if another process had messages that were for this one. For a consumer that was made
        here, once its last request ended: what is not followed by another tells no gap."""
        # Whoever may create a consumer is told of one that is as it would be, without a right to look at it.
        info = await self._connection.api(*self._creation)
        if info["created"] != self._created or info["delivered"]["consumer_seq"] != self._delivered:
            raise ConsumerTaken("another process reads with the consumer")

    def _selecting(self, config: Object) -> tuple[str, Object]:
        """The subject that creates the consumer, and its settings.

        A single filter is part of that subject too, so that permissions can restrict what is read.
        """
        filters: list[str] = config.get("filter_subjects") or []
        subject = f"CONSUMER.CREATE.{self._stream}.{self._name}"
        if len(filters) != 1:
            return subject, config
        rest = {name: value for name, value in config.items() if name != "filter_subjects"}
        return f"{subject}.{filters[0]}", {**rest, "filter_subject": filters[0]}

    async def close(self) -> None:
        """Delete the consumer if it was made here. Never raises: one that stays is gone after a minute."""
        self._connection.forget(self._queue.put_nowait)
        if self._subscription is not None:
            await self._connection.unsubscribe(self._subscription)
        if self._made and not self._connection.closed.is_set():
            try:
                await self._delete()
            except (Unavailable, ApiError) as error:
                log.debug("consumer not deleted", consumer=self._name, error=str(error))

    async def drain(self) -> list[Msg]:
        """Take back the request, and return what the server had sent by then and no `batch` returned, in stream order.

        To be used once, before `close`. Without a connection it is what arrived before."""
        if self._subscription is not None:
            await self._connection.drain(self._subscription)
            self._subscription = None
        found = []
        while not self._queue.empty():
            message = self._queue.get_nowait()
            if message is not None and not isinstance(message, Exception) and message.reply:
                found.append(message)
        return found

    async def batch(self, wait_s: float = WAIT_S) -> list[Msg]:
        """Return at least one message, in stream order; empty if none arrived within `wait_s` (0: if none is there now;
        an earlier, longer request is waited for first), or on `wake`. Raises Unavailable; ConsumerTaken if others had
        messages of it."""
        found: list[Msg] = []
        more = True
        while more and not found:
            if self._outstanding <= 0:
                await self._ask(wait_s)
            more = await self._collect(found)
        if found and self._made:
            self._count(found)
        if not found and self._outstanding <= 0:
            # The server cannot read the messages that it still counts.
            self.pending = 0
        return found

    def _count(self, found: list[Msg]) -> None:
        """Of a consumer that is read by one alone, messages are numbered without a gap."""
        self._delivered += len(found)
        if _delivered(found[-1].reply) != self._delivered:
            raise ConsumerTaken("another process reads with the consumer")

    @property
    def has_ended(self) -> bool:
        """Whether the last request ended, so that nothing is on its way."""
        return self._outstanding <= 0

    def wake(self) -> None:
        """End a wait for messages."""
        self._queue.put_nowait(None)

    async def _collect(self, found: list[Msg]) -> bool:
        """Take the messages that have arrived, or wait for the first. False on `wake`, and once the server reports no
        more."""
        while self._outstanding > 0 and (not found or not self._queue.empty()):
            message = await self._next()
            if message is None:
                return False
            if isinstance(message, Exception):
                raise message
            if message.reply:
                found.append(message)
                self.pending = _left_behind(message.reply)
                self._outstanding -= 1
            elif message.subject == f"{self._inbox}.{self._requests}":
                self._outstanding = 0
                return _bounded(message.headers or {})
        return True

    async def _next(self) -> Msg | Exception | None:
        try:
            async with asyncio.timeout(WAIT_S + _GRACE_S):
                return await self._queue.get()
        except TimeoutError as error:
            raise Unavailable("the consumer went silent") from error

    async def _ask(self, wait_s: float) -> None:
        body: Object = {"batch": self._bounds.messages, "max_bytes": self._bounds.size_bytes}
        body |= {"expires": int(wait_s * 1e9)} if wait_s else {"no_wait": True}
        self._requests += 1
        self._outstanding = self._bounds.messages
        subject = f"{self._connection.api_prefix}.CONSUMER.MSG.NEXT.{self._stream}.{self._name}"
        await self._connection.publish(subject, encode_json(body), f"{self._inbox}.{self._requests}")

    async def _delete(self) -> None:
        try:
            await self._connection.api(f"CONSUMER.DELETE.{self._stream}.{self._name}")
        except ApiError as error:
            if error.code != _CONSUMER_NOT_FOUND:
                raise
