"""The end of a shard's own stream, read message by message: what is genuine, and what somebody else put there.

A stream writer reads it at its start and each time the server refuses its sequence, and goes on from the tip. Between
two readings the consumer stays, so that the second takes one request: behind a stream of foreign messages there is
room for ours only at once. Invariant: a message counts only with this shard's signature for its very sequence.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import msgspec
import structlog

from atoll.machinery.meta.objects import Object
from atoll.machinery.stream.connection import Connection
from atoll.machinery.stream.consumer.pull_consumer import Message, PullConsumer, stream_sequence
from atoll.machinery.stream.event_keys import EventKeys, by_id
from atoll.machinery.stream.events import Event, Malformed, decode_delivered
from atoll.machinery.stream.publisher.resume import StreamTip
from atoll.machinery.stream.signatures import SignatureState, VerifiedRoots, verify

log = structlog.get_logger()

#: How far back to look for a genuine message when the last ones are not.
_LOOK_BACK = 64
#: The server forgets a consumer that nobody reads for a minute.
_MAX_AGE_S = 30.0


class ReadPlace(msgspec.Struct, frozen=True):
    """A stream, and the name of the consumer that reads it. A second process that reads by the same name takes away
    what the first one waits for."""

    stream: str
    consumer: str


class StreamTail:
    """Reads the end of one stream on one connection. `on_foreign` is called with the number of foreign messages met."""

    def __init__(
        self, connection: Connection, where: ReadPlace, keys: EventKeys, on_foreign: Callable[[int], None]
    ) -> None:
        self._connection, self._where, self._keys, self._on_foreign = connection, where, keys, on_foreign
        self._roots = VerifiedRoots()
        self._reader: PullConsumer | None = None
        self._opened_at = 0.0
        self._trusted: Mapping[str, str] = {}
        self._begin()

    def _begin(self) -> None:
        self._last: Event | None = None
        self._sequence = self._read = 0
        self._foreign = False

    async def tip(self, info: Object) -> StreamTip:
        """The end of the stream, whose info was just read. Raises ApiError, Unavailable."""
        state = info["state"]
        if not state["messages"]:
            return StreamTip(info["created"], state["last_seq"])
        if self._reader is None or time.monotonic() - self._opened_at > _MAX_AGE_S:
            await self._open(max(state["first_seq"], state["last_seq"] - _LOOK_BACK, 1))
        assert self._reader is not None
        foreign, self._trusted = 0, by_id(self._keys.announced)
        while batch := await self._reader.batch(wait_s=0):
            foreign += sum(not self._note(message) for message in batch)
            if self._read >= state["last_seq"]:
                break
        if foreign:
            self._on_foreign(foreign)
        last_sequence = max(state["last_seq"], self._read)
        return StreamTip(
            info["created"], last_sequence, self._last, self._sequence, self._last is None and self._foreign
        )

    async def close(self) -> None:
        """Delete the consumer."""
        reader, self._reader = self._reader, None
        if reader is not None:
            await reader.close()

    async def _open(self, first: int) -> None:
        await self.close()
        self._begin()
        self._reader = PullConsumer(self._connection, self._where.stream, self._where.consumer)
        self._opened_at = time.monotonic()
        await self._reader.open({"deliver_policy": "by_start_sequence", "opt_start_seq": first})

    def _note(self, message: Message) -> bool:
        """Whether a message is this shard's own."""
        self._read = stream_sequence(message.reply)
        event = self._genuine(message)
        if event is None:
            self._foreign = True
            return False
        self._last, self._sequence = event, self._read
        return True

    def _genuine(self, message: Message) -> Event | None:
        try:
            event = decode_delivered(message.subject, message.headers, message.data)
        except Malformed:
            return None
        state = verify(self._trusted, event, event.signature, self._roots)
        at_place = event.signature is not None and event.signature.sequence == self._read
        return event if state is SignatureState.GENUINE and at_place else None
