"""A consumer of a shard's state: every replicated object, kept current, swept after each full reread.

Whoever needs of a shard what it replicates (routes, bindings, permissions) feeds a projection with this. It
follows the state stream alone. From a mark that still holds it goes on; else, and when the shard refills its
stream, it reads everything as a new generation and has the application drop what that did not bring. Invariant:
a mark is kept only with a generation that is complete, so a crash while rereading rereads.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

import msgspec
import structlog

from atoll.machinery.meta.objects import Object
from atoll.machinery.stream import subjects
from atoll.machinery.stream.connection import Access, Connection, keep_connected
from atoll.machinery.stream.consumer.gaps import Gap
from atoll.machinery.stream.consumer.pull_consumer import WAIT_S, BatchLimits, PullConsumer, stream_sequence
from atoll.machinery.stream.definitions import TOMBSTONE_TTL_S
from atoll.machinery.stream.events import Event, Malformed, Phase, decode_delivered

if TYPE_CHECKING:
    from nats.aio.msg import Msg

log = structlog.get_logger()

#: Deletions older than the tombstones are forgotten; an hour is left for clocks that differ.
_MARK_LIVES_S = TOMBSTONE_TTL_S - 3600
_REFRESH_S = 3600.0
_REFILL_WAIT_S = 0.1


class ConsumerOptions(msgspec.Struct, frozen=True):
    """What to read: a shard's state stream, filters from `subjects`, the consumer's name, and messages a batch."""

    shard: str
    filters: tuple[str, ...]
    consumer: str
    batch: int = 500


class StateMark(msgspec.Struct, frozen=True):
    """How far a projection is. The message at `sequence` carried revision `written`; `time_s` is when the mark was
    known to be current, in seconds since 1970; `filling` is that of the message."""

    created: str
    lineage: str
    sequence: int
    written: int
    time_s: float
    filling: int = 0


class StateSink(Protocol):
    """A projection. `apply` and `sweep` keep the mark they are given with what they write, in one transaction."""

    def mark(self) -> StateMark | None:
        """The mark last kept; None at first."""

    async def begin(self, gap: Gap) -> None:
        """A new generation begins: forget the mark, and note from now on what `apply` brings. Called again where what
        was read of it so far is found to be left over from an earlier filling of the stream."""

    async def apply(self, events: list[Event], mark: StateMark | None) -> None:
        """Put what is ADDED, MODIFIED or MOVED, drop what is DELETED, each only if its revision is above that of
        the row. None for a mark: the generation is not complete, keep none."""

    async def sweep(self, mark: StateMark) -> None:
        """The generation is complete: drop every row that it did not bring, keep the mark."""


class StateConsumer:
    """`run` it as a task; cancel the task to stop. The subscription's filters are those of the state stream."""

    def __init__(self, access: Access, subscription: ConsumerOptions, application: StateSink) -> None:
        self._access, self._subscription, self._application = access, subscription, application
        self._stream = subjects.stream_name(subjects.STATE, subscription.shard)
        self._created = self._lineage = ""
        self._sequence = self._written = self._filling = 0
        self._refilling = self._complete = False
        self._kept_at_s = 0.0
        self._reader: PullConsumer | None = None
        self._current_at_s = time.monotonic()
        self.generations = 0

    @property
    def pending(self) -> int:
        """Messages that wait at the server, as far as known."""
        return self._reader.pending if self._reader is not None else 0

    @property
    def behind_s(self) -> float:
        """Since when the projection may not be what the shard last published; 0 while it is."""
        return 0.0 if self._is_current else time.monotonic() - self._current_at_s

    @property
    def _is_current(self) -> bool:
        return self._reader is not None and self._complete and not self._reader.pending

    async def run(self) -> None:
        """Consume until cancelled. What the application raises ends it."""
        await keep_connected(self._access, f"atoll consumer {self._subscription.consumer}", self._consume)

    async def _consume(self, connection: Connection) -> None:
        info = await connection.api(f"STREAM.INFO.{self._stream}")
        mark = self._application.mark()
        gap = self._gap(mark, info)
        while True:
            gap = await self._follow(connection, mark if gap is None else None, gap, info)
            info = await connection.api(f"STREAM.INFO.{self._stream}")

    def _gap(self, mark: StateMark | None, info: Object) -> Gap | None:
        if mark is None:
            return Gap.NEW
        if mark.created != info["created"]:
            return Gap.STREAM
        if info["state"]["last_seq"] < mark.sequence:
            return Gap.REWOUND
        return Gap.STALE if time.time() - mark.time_s > _MARK_LIVES_S else None

    async def _follow(self, connection: Connection, mark: StateMark | None, gap: Gap | None, info: Object) -> Gap:
        """Read on until something tells that all must be read again; gives what."""
        self._created, self._refilling = info["created"], False
        if gap is not None:
            await self._begin(gap)
        limits = BatchLimits(self._subscription.batch)
        reader = PullConsumer(connection, self._stream, self._subscription.consumer, limits)
        try:
            await reader.open(self._start(mark))
            self._reader = reader
            while True:
                # The server's count of what is pending includes messages it cannot read: only silence says the end.
                batch = await reader.batch(self._wait_s())
                broken = await self._take(batch, mark)
                if broken is not None:
                    return broken
                if not batch and not self._complete and not self._refilling:
                    await self._sweep()
        finally:
            if self._is_current:
                self._current_at_s = time.monotonic()
            self._reader = None
            await reader.close()

    def _wait_s(self) -> float:
        if self._complete:
            return WAIT_S
        return _REFILL_WAIT_S if self._refilling else 0.0

    async def _begin(self, gap: Gap) -> None:
        log.info("state is read anew", stream=self._stream, reason=gap.value)
        self.generations += 1
        self._complete = False
        await self._application.begin(gap)

    def _start(self, mark: StateMark | None) -> Object:
        config: Object = {"filter_subjects": list(self._subscription.filters)}
        if mark is None:
            self._sequence, self._written, self._filling, self._lineage = 0, 0, 0, ""
            return {**config, "deliver_policy": "all"}
        self._sequence, self._written, self._filling = mark.sequence, mark.written, mark.filling
        self._lineage, self._complete = mark.lineage, True
        # At the mark's own message, which may be absent (replaced since) but not another one.
        return {**config, "deliver_policy": "by_start_sequence", "opt_start_seq": max(mark.sequence, 1)}

    async def _take(self, batch: list[Msg], mark: StateMark | None) -> Gap | None:
        good: list[Event] = []
        broken: Gap | None = None
        for message in batch:
            event = self._decode(message)
            if event is not None and event.filling > self._filling and not self._complete:
                await self._begin_filling(event)
                good.clear()
            broken = self._judge(stream_sequence(message.reply), event, mark)
            if broken is not None:
                break
            if event is not None and event.key is not None and event.intact:
                good.append(event)
        await self._keep(good)
        return broken

    async def _begin_filling(self, event: Event) -> None:
        """What was read so far is left over from an earlier filling: a purge does not reach a stream that sources this
        shard's, nor does its end. The generation counts from here."""
        if self._sequence:
            await self._begin(Gap.RESYNC)
        self._filling, self._lineage = event.filling, ""

    def _decode(self, message: Msg) -> Event | None:
        try:
            event = decode_delivered(message.subject, message.headers, message.data)
        except Malformed as error:
            log.warning("message ignored", subject=message.subject, error=str(error))
            return None
        if not event.intact:
            # Reading it again would bring the same bytes; the shard's own checks have to mend the record.
            log.error("event fails its checksum", subject=message.subject, revision=event.revision)
        return event

    def _judge(self, sequence: int, event: Event | None, mark: StateMark | None) -> Gap | None:
        if event is None:
            return None
        if mark is not None and sequence == mark.sequence and event.revision != mark.written:
            return Gap.REWRITTEN
        if self._lineage and event.lineage != self._lineage:
            return Gap.LINEAGE
        if self._complete and (event.phase is Phase.BEGIN or event.filling > self._filling):
            return Gap.RESYNC
        if event.phase is not Phase.NONE:
            self._refilling = event.phase is not Phase.END
        self._lineage, self._sequence, self._written = event.lineage, sequence, event.revision
        return None

    async def _keep(self, events: list[Event]) -> None:
        stale = self._complete and time.time() - self._kept_at_s > _REFRESH_S
        if events or stale:
            await self._application.apply(events, self._mark() if self._complete else None)

    async def _sweep(self) -> None:
        self._complete = True
        await self._application.sweep(self._mark())

    def _mark(self) -> StateMark:
        self._kept_at_s = time.time()
        return StateMark(self._created, self._lineage, self._sequence, self._written, self._kept_at_s, self._filling)
