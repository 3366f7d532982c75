"""A consumer of a shard's changes that checks what it receives. Ours use it, third parties may.

It reads the stream from its mark, judges each event with `chain`, and hands runs of good ones to the
application together with the mark to keep. Where the stream cannot be trusted further it asks the
application to reread by list, and goes on behind what that read. Invariant: the mark that an application
keeps in the transaction that applies never covers an event that was not handed to it or reread.

A program that does without the checks needs no more than nats-py and `events.decode`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec
import structlog

from atoll.machinery.meta.objects import Object
from atoll.machinery.stream import subjects
from atoll.machinery.stream.connection import Access, Connection, keep_connected
from atoll.machinery.stream.consumer.gap_check import Gap, GapCheck, Verdict
from atoll.machinery.stream.consumer.pull_consumer import BatchLimits, PullConsumer, stream_sequence
from atoll.machinery.stream.events import Event, Malformed, decode_delivered

if TYPE_CHECKING:
    from nats.aio.msg import Msg

log = structlog.get_logger()


class Mark(msgspec.Struct, frozen=True):
    """How far a consumer is. All of the shard's changes in its filter up to `revision` are applied;
    `written` is the revision of the message at `sequence` (0 where none is known)."""

    created: str
    lineage: str
    sequence: int
    revision: int
    written: int = 0


class Application(Protocol):
    """What a consumer serves. `apply` and `repair` keep the mark with what they write, in one transaction."""

    def mark(self) -> Mark | None:
        """The mark last kept; None at first."""

    async def apply(self, events: list[Event], mark: Mark) -> None:
        """Apply events, in order, and keep the mark."""

    async def repair(self, gap: Gap) -> int:
        """Reread by list whatever the filter covers, drop what the list does not hold, and give the list's
        revision. Changes at or below it are not delivered any more."""

    async def repaired(self, mark: Mark) -> None:
        """Keep the mark that goes with the last `repair`."""


class ConsumerOptions(msgspec.Struct, frozen=True):
    """What to read: a shard, filters from `subjects`, and the consumer's name. `from_start` begins, without a
    mark, at the first message that the stream still holds instead of by `repair`."""

    shard: str
    filters: tuple[str, ...]
    consumer: str
    from_start: bool = False
    batch: int = 500


class _Broken(Exception):
    def __init__(self, gap: Gap) -> None:
        super().__init__(gap.value)
        self.gap = gap


class Consumer:
    """`run` it as a task; cancel the task to stop."""

    def __init__(self, access: Access, subscription: ConsumerOptions, application: Application) -> None:
        self._access, self._subscription, self._application = access, subscription, application
        self._stream = subjects.stream_name(subjects.CHANGES, subscription.shard)
        self._whole = subscription.filters == subjects.all_subjects(subjects.CHANGES, subscription.shard)
        self._chain = GapCheck(None)
        self._created = ""
        self._sequence = self._written = 0
        self.repairs = 0

    async def run(self) -> None:
        """Consume until cancelled. What the application raises ends it."""
        await keep_connected(self._access, f"atoll consumer {self._subscription.consumer}", self._consume)

    async def _consume(self, connection: Connection) -> None:
        gap: Gap | None = None
        while True:
            try:
                await self._follow(connection, gap)
            except _Broken as error:
                gap = error.gap
                log.warning("consumer must reread", stream=self._stream, reason=gap.value)

    async def _follow(self, connection: Connection, gap: Gap | None) -> None:
        info = await connection.api(f"STREAM.INFO.{self._stream}")
        mark = self._application.mark()
        gap = gap or self._gap(mark, info)
        if gap is not None:
            mark = await self._repair(gap, info)
        limits = BatchLimits(self._subscription.batch)
        reader = PullConsumer(connection, self._stream, self._subscription.consumer, limits)
        try:
            await reader.open(self._start(mark, info))
            while True:
                batch = await reader.batch()
                if batch:
                    await self._take(batch, mark)
                    mark = None
        finally:
            await reader.close()

    def _gap(self, mark: Mark | None, info: Object) -> Gap | None:
        """What the stream's info alone says against going on from the mark."""
        if mark is None:
            return None if self._subscription.from_start else Gap.NEW
        if mark.created != info["created"]:
            return Gap.STREAM
        if info["state"]["last_seq"] < mark.sequence:
            return Gap.REWOUND
        return Gap.TRIMMED if info["state"]["first_seq"] > mark.sequence + 1 else None

    async def _repair(self, gap: Gap, info: Object) -> Mark:
        """The position is taken before the list, so nothing can fall between both."""
        self.repairs += 1
        revision = await self._application.repair(gap)
        mark = Mark(info["created"], "", info["state"]["last_seq"], revision)
        await self._application.repaired(mark)
        return mark

    def _start(self, mark: Mark | None, info: Object) -> Object:
        """Where to begin: at the mark's own message, to see that it is still the same, else right behind."""
        self._created = info["created"]
        config: Object = {"filter_subjects": list(self._subscription.filters)}
        if mark is None:
            self._chain, self._sequence, self._written = GapCheck(None), 0, 0
            return {**config, "deliver_policy": "all"}
        self._chain = GapCheck(mark.revision, mark.lineage)
        self._sequence, self._written = mark.sequence, mark.written
        start = mark.sequence if mark.written else mark.sequence + 1
        return {**config, "deliver_policy": "by_start_sequence", "opt_start_seq": start}

    async def _take(self, batch: list[Msg], mark: Mark | None) -> None:
        good: list[Event] = []
        try:
            for message in batch:
                event = self._check(message, mark)
                if event is not None:
                    good.append(event)
        finally:
            # What was good before a bad one is applied, so that a repair does not take from its history.
            if good:
                await self._application.apply(good, self._mark(good[-1].revision))

    def _mark(self, revision: int) -> Mark:
        return Mark(self._created, self._chain.lineage, self._sequence, revision, self._written)

    def _check(self, message: Msg, mark: Mark | None) -> Event | None:
        """The event if it is to be applied. Raises _Broken."""
        sequence = stream_sequence(message.reply)
        try:
            event = decode_delivered(message.subject, message.headers, message.data)
        except Malformed as error:
            log.warning("message ignored", subject=message.subject, error=str(error))
            self._sequence, self._written = sequence, 0
            return None
        if mark is not None and mark.written and sequence == mark.sequence:
            if event.revision != mark.written:
                raise _Broken(Gap.REWRITTEN)
            return None
        if self._whole and self._sequence and sequence != self._sequence + 1:
            raise _Broken(Gap.SKIPPED)
        verdict = self._chain.judge(message.subject, event)
        if isinstance(verdict, Gap):
            raise _Broken(verdict)
        self._sequence, self._written = sequence, event.revision
        return event if verdict is Verdict.APPLY else None
