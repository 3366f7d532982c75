"""Reads the changes stream from a position, checks each event, and turns each gap into a RESYNC.

`changes` makes one for each iteration. Where the stream cannot be trusted any further, the reader takes the position at
its end and delivers a RESYNC with it. The caller then lists: every change up to that revision is in the list, every
later one is delivered. Invariant: the position of an event never covers a change that was neither delivered nor
announced by a RESYNC.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import msgspec
import structlog

from atoll.events import event as public
from atoll.events.event import Position
from atoll.events.gap_check import EventAction, GapCheck, HintCheck
from atoll.machinery.meta.objects import Object
from atoll.machinery.stream.connection import Access, ApiError, Connection, Reconnection, TooOld, Unavailable
from atoll.machinery.stream.consumer.gaps import Gap
from atoll.machinery.stream.consumer.origin_check import OriginCheck, is_sourced
from atoll.machinery.stream.consumer.pull_consumer import BatchLimits, Message, PullConsumer, stream_sequence
from atoll.machinery.stream.events import Event, Malformed, decode_delivered

log = structlog.get_logger()


class Selection(msgspec.Struct, frozen=True):
    """What to read: a stream, subject filters of it, and the name of the consumer that reads.

    `headers_only`: payloads are not sent. Then an event says only that its object changed, as signature and checksum
    are over the payload: whoever writes into the stream could make it up. `is_wanted` decides by the subject, before
    anything is decoded; it needs filters that select the whole stream, whose sequences tell that none is missing.
    `batch` is how many messages are asked for at a time: others of the event loop wait for as many of them.
    """

    stream: str
    filters: tuple[str, ...]
    consumer: str
    headers_only: bool = False
    is_wanted: Callable[[str], bool] | None = None
    batch: int = 500

    @property
    def is_whole(self) -> bool:
        """Whether every message of the stream is selected, so that sequences have no holes."""
        return self.filters[0].endswith(".>")


class _GapFound(Exception):
    def __init__(self, gap: Gap) -> None:
        super().__init__(gap.value)
        self.gap = gap


class ChangeReader:
    """One iteration. Without a position it begins at the oldest message, or by a RESYNC."""

    def __init__(
        self, access: Access, selection: Selection, position: Position | None, origin: OriginCheck, *, from_oldest: bool
    ) -> None:
        self._access, self._selection, self._origin = access, selection, origin
        self._position, self._from_oldest = position, from_oldest
        self._check = GapCheck(None)
        self._created = ""
        self._sequence = self._written = 0
        self._reader: PullConsumer | None = None
        #: Why nothing is read now; empty while the stream is.
        self.interruption = "not connected yet"

    @property
    def pending(self) -> int:
        """Messages pending at the server, as far as known."""
        return self._reader.pending if self._reader is not None else 0

    @property
    def position(self) -> Position | None:
        """The position of all that was delivered and passed by. None at first."""
        position = self._position
        if position is None or self._sequence <= position.sequence:
            return position
        # The revision of what was passed by is not known.
        return msgspec.structs.replace(position, sequence=self._sequence, revision=0, written=self._written)

    async def events(self) -> AsyncGenerator[public.Event, None]:
        """Deliver until closed, on one connection after the other."""
        name = f"atoll consumer {self._selection.consumer}"
        retries = Reconnection(name)
        while True:
            retries.begin()
            try:
                connection = await Connection.open(self._access, name)
                try:
                    async with aclosing(self._read(connection)) as events:
                        async for event in events:
                            yield event
                finally:
                    await connection.close()
            except (Unavailable, ApiError, TooOld) as error:
                self.interruption = str(error)
                await retries.failed(error)

    async def _read(self, connection: Connection) -> AsyncGenerator[public.Event, None]:
        gap: Gap | None = None
        while True:
            info = await connection.api(f"STREAM.INFO.{self._selection.stream}")
            gap = gap or self._gap(info)
            if gap is not None:
                log.warning("changes missing, resync", stream=self._selection.stream, reason=gap.value)
                self._position = await self._end_of_stream(connection, info)
                yield public.Event(public.RESYNC, self._position.revision, self._position.encode(), reason=gap.value)
            try:
                async with aclosing(self._follow(connection, info)) as events:
                    async for event in events:
                        yield event
            except _GapFound as found:
                gap = found.gap

    def _gap(self, info: Object) -> Gap | None:
        """The gap that the stream's info alone reveals."""
        position = self._position
        if position is None:
            return None if self._from_oldest else Gap.NEW
        if position.created != info["created"]:
            return Gap.STREAM
        if info["state"]["last_seq"] < position.sequence:
            return Gap.REWOUND
        return Gap.TRIMMED if info["state"]["first_seq"] > position.sequence + 1 else None

    async def _end_of_stream(self, connection: Connection, info: Object) -> Position:
        """The position of the stream's last message. The stream is in revision order, so all changes up to its revision
        were committed before: a list that is made now has them."""
        reader = self._consumer(connection, 1)
        try:
            await reader.open({"deliver_policy": "last"})
            batch = await reader.batch(wait_s=0)
        finally:
            await reader.close()
        created, sequence = info["created"], info["state"]["last_seq"]
        if not batch:
            return Position(created, "", sequence, 0, 0)
        event = self._decode(batch[0])
        if event is None:
            return Position(created, "", stream_sequence(batch[0].reply), 0, 0)
        return Position(created, event.lineage, stream_sequence(batch[0].reply), event.revision, event.revision)

    async def _follow(self, connection: Connection, info: Object) -> AsyncGenerator[public.Event, None]:
        """Deliver from the position on. Raises _GapFound."""
        begin = self._position
        reader = self._consumer(connection, self._selection.batch)
        try:
            await reader.open(self._start(info))
            self._reader, self.interruption = reader, ""
            while True:
                for message in await reader.batch():
                    event = self._accept(message, begin)
                    if event is not None:
                        yield self._deliver(event)
        finally:
            self._reader = None
            await reader.close()

    def _consumer(self, connection: Connection, messages: int) -> PullConsumer:
        return PullConsumer(connection, self._selection.stream, self._selection.consumer, BatchLimits(messages))

    def _start(self, info: Object) -> Object:
        """Where to begin: at the position's own message, to see that it is still the same, else right behind it."""
        self._created, position = info["created"], self._position
        self._origin.begin(sourced=is_sourced(info))
        config: Object = {"filter_subjects": list(self._selection.filters)}
        if self._selection.headers_only:
            config["headers_only"] = True
        self._check = self._checks(position)
        if position is None:
            self._sequence, self._written = 0, 0
            return {**config, "deliver_policy": "all"}
        self._sequence, self._written = position.sequence, position.written
        start = position.sequence if position.written else position.sequence + 1
        return {**config, "deliver_policy": "by_start_sequence", "opt_start_seq": max(start, 1)}

    def _checks(self, position: Position | None) -> GapCheck:
        floor, lineage = (position.revision or None, position.lineage) if position is not None else (None, "")
        if self._selection.headers_only:
            return HintCheck(floor, lineage, chained=self._selection.is_wanted is None)
        return GapCheck(floor, lineage)

    def _accept(self, message: Message, begin: Position | None) -> Event | None:
        """The event if it is to be delivered. Raises _GapFound."""
        sequence, is_first = stream_sequence(message.reply), False
        if begin is not None and begin.written and sequence == begin.sequence:
            is_first = True
        elif self._selection.is_whole and self._sequence and sequence != self._sequence + 1:
            raise _GapFound(Gap.SKIPPED)
        event = self._decode(message) if is_first or self._wants(message.subject) else None
        if event is None:
            self._sequence, self._written = sequence, 0
            return None
        if is_first:
            if begin is not None and event.revision != begin.written:
                raise _GapFound(Gap.REWRITTEN)
            return None
        result = self._check.check(message.subject, event)
        if isinstance(result, Gap):
            raise _GapFound(result)
        self._sequence, self._written = sequence, event.revision
        return event if result is EventAction.APPLY else None

    def _wants(self, subject: str) -> bool:
        return self._selection.is_wanted is None or self._selection.is_wanted(subject)

    def _deliver(self, event: Event) -> public.Event:
        self._position = Position(self._created, self._check.lineage, self._sequence, event.revision, self._written)
        return public.Event(
            event.operation.name,
            event.revision,
            self._position.encode(),
            event.key,
            event.payload,
            event.sealed,
            event.previous,
        )

    def _decode(self, message: Message) -> Event | None:
        try:
            event = decode_delivered(message.subject, message.headers, message.data)
        except Malformed as error:
            log.warning("malformed message ignored", subject=message.subject, error=str(error))
            return None
        return event if self._origin.believes(event, stream_sequence(message.reply)) else None
