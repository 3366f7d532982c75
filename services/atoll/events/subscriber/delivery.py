"""The messages of a subscription: pulled from each of its streams, acknowledged, given back.

`subscriber` runs it on one connection after the other; what was received and not handed out outlives a connection.
Invariant: a message is acknowledged only by `acknowledge`, and those of one stream are handed out in its order.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from atoll.events.subscriber.stream_queue import StreamQueue
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.times import parse_time
from atoll.machinery.stream.connection import Connection, Unavailable
from atoll.machinery.stream.consumer.pull_consumer import BatchLimits, Message, PullConsumer, stream_sequence
from atoll.machinery.stream.tenants.subscriptions import StreamPart, Subscription

_LIMITS = BatchLimits(100)
#: Acknowledgements that are sent once more on the next connection: the last ones may have been lost.
_SENT_AGAIN = 128
_NOT_HANDLED = b"-NAK"
#: Beyond the server's patience.
_GRACE_S = 5.0


class Delivered(msgspec.Struct, frozen=True):
    """A message of one of the subscription's streams."""

    stream: str
    sequence: int
    message: Message


class Delivery:
    """Reads all streams of a subscription."""

    def __init__(self) -> None:
        self._queues: dict[str, StreamQueue] = {}
        self._acknowledged: deque[str] = deque(maxlen=_SENT_AGAIN)
        self._connection: Connection | None = None
        self._pulls: list[asyncio.Task[None]] = []
        self._wake, self._room = asyncio.Event(), asyncio.Event()
        self._changed = False
        #: By stream, the revision of the moment at which the server last heard of the subscriber, as it began.
        self.began: dict[str, int] = {}

    async def listen(self, connection: Connection, subscription: Subscription) -> None:
        """Hear from now on that the subscription changed. Raises Unavailable."""
        self._changed = False
        await connection.subscribe(subscription.control, self._control)

    async def messages(
        self, connection: Connection, subscription: Subscription, ends_at_s: float
    ) -> AsyncGenerator[Delivered, None]:
        """Hand out messages until `ends_at_s`, or until the server says that the subscription changed. Raises
        Unavailable, ApiError."""
        self._connection = connection
        for reply in tuple(self._acknowledged):
            await connection.publish(reply, b"")
        try:
            for part in subscription.streams:
                await self._look(connection, subscription, part)
                self._pulls.append(asyncio.create_task(self._pull(connection, subscription.consumer, part)))
            async with aclosing(self._handed_out(ends_at_s)) as found:
                async for delivered in found:
                    yield delivered
        finally:
            self._connection = None
            await self._end_pulls()

    async def acknowledge(self, delivered: Delivered) -> None:
        """The message was handled. Without a connection, the next one says so."""
        self._queues[delivered.stream].done(delivered.sequence)
        self._acknowledged.append(delivered.message.reply)
        await self._send(delivered.message.reply, b"")

    async def give_back(self, delivered: Delivered | None) -> None:
        """Have the server deliver again at once what was not handled: this message, and what was not handed out."""
        # A request that stays would take them again, for a subscriber that is gone.
        await self._end_pulls()
        messages = [delivered.message] if delivered is not None else []
        messages += [message for queue in self._queues.values() for message in queue.rest()]
        for message in messages:
            await self._send(message.reply, _NOT_HANDLED)

    async def _look(self, connection: Connection, subscription: Subscription, part: StreamPart) -> None:
        """See how far the consumer is, before anything is pulled on this connection."""
        info: Object = await connection.api(f"CONSUMER.INFO.{part.stream}.{subscription.consumer}")
        last = parse_time(info["ack_floor"].get("last_active") or info["created"]) or 0.0
        self.began.setdefault(part.stream, int(last * 1_000_000))
        patience_s = float(subscription.ack_wait.removesuffix("s")) + _GRACE_S
        queue = self._queues.setdefault(part.stream, StreamQueue())
        queue.expect(info["num_ack_pending"], info["delivered"]["stream_seq"], time.monotonic() + patience_s)

    async def _end_pulls(self) -> None:
        """Take back the requests; what they had brought is in the queues."""
        pulls, self._pulls = self._pulls, []
        for pull in pulls:
            pull.cancel()
        await asyncio.gather(*pulls, return_exceptions=True)

    async def _handed_out(self, ends_at_s: float) -> AsyncGenerator[Delivered, None]:
        while not self._changed and (now_s := time.monotonic()) < ends_at_s:
            self._wake.clear()
            found = False
            for stream, queue in self._queues.items():
                if (next_one := queue.take(now_s)) is not None:
                    found = True
                    self._room.set()
                    yield Delivered(stream, *next_one)
            if found:
                continue
            for pull in self._pulls:
                if pull.done():
                    pull.result()
            waits = [each for queue in self._queues.values() if (each := queue.wait_s(now_s))]
            try:
                async with asyncio.timeout(min([ends_at_s - now_s, *waits])):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _pull(self, connection: Connection, name: str, part: StreamPart) -> None:
        """Fill a queue, one batch after the other is handed out."""
        queue, consumer = self._queues[part.stream], PullConsumer(connection, part.stream, name, _LIMITS)
        await consumer.attach()
        try:
            while True:
                for message in await consumer.batch():
                    queue.add(stream_sequence(message.reply), message)
                self._wake.set()
                while len(queue) and not queue.wait_s(time.monotonic()):
                    self._room.clear()
                    await self._room.wait()
        finally:
            self._wake.set()
            for message in await consumer.drain():
                queue.add(stream_sequence(message.reply), message)
            await consumer.close()

    async def _control(self, message: Message) -> None:
        self._changed = True
        self._wake.set()

    async def _send(self, reply: str, word: bytes) -> None:
        if self._connection is None:
            return
        try:
            await self._connection.publish(reply, word)
        except Unavailable:
            return
