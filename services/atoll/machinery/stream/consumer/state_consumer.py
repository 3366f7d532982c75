"""Consumes a shard's state stream: every replicated object, kept current, swept after each full reread.

`replication` feeds its replicas with this. From a mark that still holds, it goes on. Otherwise, and when the shard
refills its stream, it reads everything as a new generation and has the sink drop the rows that the generation did not
bring. Invariant: a mark is kept only with a generation that is complete, so a crash during a reread rereads.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import msgspec
import structlog

from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import Object
from atoll.machinery.stream import subjects
from atoll.machinery.stream.connection import (
    Access,
    ApiError,
    Connection,
    Denied,
    Reconnection,
    TooOld,
    Unavailable,
    keep_connected,
)
from atoll.machinery.stream.consumer.gaps import Gap
from atoll.machinery.stream.consumer.origin_check import OriginCheck, TrustedKeys, ignore, is_sourced
from atoll.machinery.stream.consumer.pull_consumer import WAIT_S, BatchLimits, PullConsumer, stream_sequence
from atoll.machinery.stream.consumer.recent_events import RecentEvents
from atoll.machinery.stream.consumer.selection import SelectedSubjects, Selection, is_of_state
from atoll.machinery.stream.definitions import TOMBSTONE_TTL_S
from atoll.machinery.stream.events import Event, Malformed, Phase, decode_delivered

if TYPE_CHECKING:
    from nats.aio.msg import Msg

log = structlog.get_logger()

#: Deletions older than the tombstones are lost; an hour is allowed for differing clocks.
_MARK_LIVES_S = TOMBSTONE_TTL_S - 3600
_REFRESH_S = 3600.0
_REFILL_WAIT_S = 0.1
#: Between two readings of newly selected objects: this many times what the last one took, and this long at most. That
#: long is not waited for where none was read for a while: what one object leads to is read at once.
_SELECT_SHARE, _SELECT_WAIT_S = 9, 1.0


class ConsumerOptions(msgspec.Struct, frozen=True):
    """What to read: a shard's state stream, filters from `subjects`, the consumer's name, and messages a batch.

    `keys` returns the keys that the shard's events are verified with; None: they are not. `refused` is called with the
    reason for each event that is not believed. `selection` are single objects that are read beside the filters.
    """

    shard: str
    filters: tuple[str, ...]
    consumer: str
    batch: int = 500
    keys: TrustedKeys | None = None
    refused: Callable[[str], None] = ignore
    selection: Selection | None = None


class StateMark(msgspec.Struct, frozen=True):
    """How far a sink is. The message at `sequence` carried revision `written`, its filling and the sequence that its
    shard `signed`; `time_s` is when the mark was last known to be current, in seconds since 1970."""

    created: str
    lineage: str
    sequence: int
    written: int
    time_s: float
    filling: int = 0
    signed: int = 0


class StateSink(Protocol):
    """Where the events go. `apply` and `sweep` store the mark they get with the rows they write, in one transaction."""

    def mark(self) -> StateMark | None:
        """The mark last kept; None at first."""

    async def begin(self, gap: Gap) -> None:
        """A new generation begins: forget the mark, and note which rows `apply` brings from now on. Called again if the
        events so far turn out to be left over from an earlier filling of the stream."""

    async def apply(self, events: list[Event], mark: StateMark | None) -> None:
        """Write ADDED, MODIFIED and MOVED objects, drop DELETED ones, each only if its revision is above the row's.
        A mark of None: the generation is not complete, store none."""

    async def sweep(self, mark: StateMark) -> None:
        """The generation is complete: drop every row that it did not bring, keep the mark."""


class CannotSelect(Exception):
    """The credential may not create a consumer with several filters, which a selection needs."""


async def may_select(access: Access, options: ConsumerOptions) -> bool:
    """Whether the credential may create a consumer with several filters; also while nobody can say."""
    stream = subjects.stream_name(subjects.STATE, options.shard)
    try:
        connection = await Connection.open(access.at(options.shard), f"atoll consumer {options.consumer}")
        try:
            reader = PullConsumer(connection, stream, options.consumer, BatchLimits(options.batch))
            await reader.open({"filter_subjects": list(options.filters), "deliver_policy": "new"})
            await reader.close()
        finally:
            await connection.close()
    except Denied:
        return False
    except (Unavailable, ApiError, TooOld) as error:
        log.debug("nobody says whether a consumer may have several filters", error=str(error))
    return True


class StateConsumer:
    """`run` it as a task; cancel the task to stop. The subscription's filters are those of the state stream."""

    def __init__(self, access: Access, options: ConsumerOptions, sink: StateSink) -> None:
        self._access, self._options, self._sink = access.at(options.shard), options, sink
        self._stream = subjects.stream_name(subjects.STATE, options.shard)
        self._origin = OriginCheck(self._stream, options.keys, options.refused)
        #: For objects that are read once when they are selected, out of the stream's order.
        self._origin_of_selected = OriginCheck(self._stream, options.keys, options.refused)
        self._selected = SelectedSubjects(options.shard, options.filters, options.selection)
        self._recent, self._filters = RecentEvents(), tuple[str, ...]()
        self._select_at_s = 0.0
        self._reselection: asyncio.TimerHandle | None = None
        self._created = self._lineage = ""
        self._sequence = self._written = self._filling = 0
        self._refilling = self._complete = False
        self._kept_at_s = 0.0
        self._reader: PullConsumer | None = None
        self._current_at_s = time.monotonic()
        self._retries = Reconnection(f"atoll consumer {options.consumer}")
        self.generations = 0

    @property
    def pending(self) -> int:
        """Messages pending at the server, as far as known."""
        return self._reader.pending if self._reader is not None else 0

    @property
    def behind_s(self) -> float:
        """For how many seconds the sink may have been out of date; 0 while it is current."""
        return 0.0 if self._is_current else time.monotonic() - self._current_at_s

    @property
    def _is_current(self) -> bool:
        return self._reader is not None and self._complete and not self._reader.pending and not self._selected.changed

    @property
    def has_selected(self) -> bool:
        """Whether every selected object was read, and is followed."""
        return self._complete and not self._selected.changed

    @property
    def is_contended(self) -> bool:
        """Whether another process that stays reads with the same consumer."""
        return self._retries.is_contended

    def follows(self, key: ObjectKey) -> bool:
        """Whether an object is followed one by one, selected or not yet released."""
        return self._selected.follows(key)

    async def run(self) -> None:
        """Consume until cancelled. An error of the sink ends it. Raises CannotSelect."""
        await keep_connected(self._access, self._retries.reader, self._consume, self._retries)

    def keys_changed(self) -> None:
        """Look now, not after the next batch, whether the key of refused events is known."""
        lacks_keys = self._origin.lacks_keys or (self._complete and self._origin_of_selected.lacks_keys)
        if self._reader is not None and lacks_keys:
            self._reader.wake()

    def selection_changed(self) -> None:
        """Look now, not after the next batch, which objects are selected."""
        if self._reader is not None and self._complete and self._selected.changed:
            self._reader.wake()

    async def _consume(self, connection: Connection) -> None:
        info = await connection.api(f"STREAM.INFO.{self._stream}")
        mark = self._sink.mark()
        gap = self._gap(mark, info)
        while True:
            gap = await self._follow(connection, mark if gap is None else None, gap, info)
            info = await connection.api(f"STREAM.INFO.{self._stream}")
            if gap is None:
                mark = self._position(time.time())
                gap = self._gap(mark, info)
            if gap is None:
                await self._select(connection, info)

    def _gap(self, mark: StateMark | None, info: Object) -> Gap | None:
        if mark is None:
            return Gap.NEW
        if mark.created != info["created"]:
            return Gap.STREAM
        if info["state"]["last_seq"] < mark.sequence:
            return Gap.REWOUND
        return Gap.STALE if time.time() - mark.time_s > _MARK_LIVES_S else None

    async def _follow(
        self, connection: Connection, mark: StateMark | None, gap: Gap | None, info: Object
    ) -> Gap | None:
        """Read on until something tells that all must be read again; gives what. None: the selection changed."""
        self._created, self._refilling = info["created"], False
        place = (mark.filling, max(mark.signed - 1, 0)) if mark is not None else (0, 0)
        self._origin.begin(sourced=is_sourced(info), filling=place[0], signed=place[1])
        if gap is not None:
            await self._begin(gap)
            await self._selected.follow_all()
        if self._selected.filters() != self._filters:
            self._recent.clear()
        self._filters = self._selected.filters()
        limits = BatchLimits(self._options.batch)
        reader = PullConsumer(connection, self._stream, self._options.consumer, limits)
        try:
            await _open(reader, self._start(mark))
            self._reader = reader
            while not self._is_to_select or await self._select_recent():
                # The server's count of pending messages includes unreadable ones: only silence shows the end.
                batch = await reader.batch(self._wait_s())
                broken = await self._take(batch, mark)
                if broken is not None:
                    return broken
                if self._origin.learned() or self._origin_of_selected.learned():
                    return Gap.KEYS
                if not batch and reader.has_ended and not self._complete and not self._refilling:
                    await reader.verify()
                    await self._sweep()
            return None
        finally:
            if self._is_current:
                self._current_at_s = time.monotonic()
            self._reader = None
            await reader.close()

    @property
    def _is_to_select(self) -> bool:
        is_idle = self._complete and not self._refilling
        return is_idle and self._selected.changed and time.monotonic() >= self._select_at_s

    async def _select(self, connection: Connection, info: Object) -> None:
        """Read what came to the selection, as far as it belongs to the state that is followed."""
        began = time.monotonic()
        keys = await self._selected.unread()
        for page in self._selected.pages(keys, self._options.batch):
            await self._read_selected(connection, info, self._selected.subjects(page))
            self._selected.read(page)
        self._selected.read(())
        self._pause(began)

    async def _select_recent(self) -> bool:
        """Take what came to the selection from the events that were read last. Return whether all of it was there, and
        it is followed by the consumer as it is: else what is left must be read."""
        began = time.monotonic()
        found = self._recent.of(await self._selected.unread())
        if found:
            await self._sink.apply(list(found.values()), None)
        self._selected.read(found)
        if self._selected.has_unread or self._selected.filters() != self._filters:
            return False
        self._pause(began)
        return True

    def _pause(self, began: float) -> None:
        """Read or take no more for a while, from `began` on."""
        # Where needs change all the time, most of the time is left for following; a few in a row are read at once.
        now = time.monotonic()
        pause_s = _SELECT_SHARE * (now - began)
        self._select_at_s = min(max(self._select_at_s, now - _SELECT_WAIT_S) + pause_s, now + _SELECT_WAIT_S)

    async def _read_selected(self, connection: Connection, info: Object, subjects: list[str]) -> None:
        self._origin_of_selected.begin(sourced=is_sourced(info))
        reader = PullConsumer(connection, self._stream, self._options.consumer, BatchLimits(self._options.batch))
        try:
            await _open(reader, {"filter_subjects": subjects, "deliver_policy": "all"})
            while batch := await reader.batch(0.0):
                found = (self._decode(message, self._origin_of_selected) for message in batch)
                events = [
                    each for each in found if each is not None and is_of_state(each, self._lineage, self._filling)
                ]
                await self._sink.apply(events, None)
        finally:
            await reader.close()

    def _wait_s(self) -> float:
        if self._complete and self._selected.changed:
            # A request to the server lasts longer than that.
            pause_s = max(self._select_at_s - time.monotonic(), 0.0)
            if self._reselection is not None:
                self._reselection.cancel()
            self._reselection = asyncio.get_running_loop().call_later(pause_s, self.selection_changed)
        if self._complete:
            return WAIT_S
        return _REFILL_WAIT_S if self._refilling else 0.0

    async def _begin(self, gap: Gap) -> None:
        log.info("state stream reread", stream=self._stream, reason=gap.value)
        self.generations += 1
        self._complete = False
        self._recent.clear()
        await self._sink.begin(gap)

    def _start(self, mark: StateMark | None) -> Object:
        config: Object = {"filter_subjects": list(self._filters)}
        if mark is None:
            self._sequence, self._written, self._filling, self._lineage = 0, 0, 0, ""
            return {**config, "deliver_policy": "all"}
        self._sequence, self._written, self._filling = mark.sequence, mark.written, mark.filling
        self._lineage, self._complete = mark.lineage, True
        # At the mark's own message, which may be absent (replaced) but not a different one.
        return {**config, "deliver_policy": "by_start_sequence", "opt_start_seq": max(mark.sequence, 1)}

    async def _take(self, batch: list[Msg], mark: StateMark | None) -> Gap | None:
        good: list[Event] = []
        broken: Gap | None = None
        for message in batch:
            event = self._decode(message, self._origin)
            if event is not None and event.filling > self._filling and not self._complete:
                await self._begin_filling(event)
                good.clear()
            broken = self._find_gap(stream_sequence(message.reply), event, mark)
            if broken is not None:
                break
            if event is not None and event.key is not None and event.intact:
                good.append(event)
        await self._keep(good)
        self._recent.add(good)
        return broken

    async def _begin_filling(self, event: Event) -> None:
        """The events so far are left over from an earlier filling: neither a purge nor its end reaches a stream that
        sources this shard's. The generation begins here."""
        if self._sequence:
            await self._begin(Gap.RESYNC)
        self._filling, self._lineage = event.filling, ""

    def _decode(self, message: Msg, origin: OriginCheck) -> Event | None:
        try:
            event = decode_delivered(message.subject, message.headers, message.data)
        except Malformed as error:
            log.warning("malformed message ignored", subject=message.subject, error=str(error))
            return None
        if not origin.believes(event, stream_sequence(message.reply)):
            return None
        if not event.intact:
            # Reading it again would deliver the same bytes; the shard's audit has to repair the record.
            log.error("event fails its checksum", subject=message.subject, revision=event.revision)
        return event

    def _find_gap(self, sequence: int, event: Event | None, mark: StateMark | None) -> Gap | None:
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
            await self._sink.apply(events, self._mark() if self._complete else None)

    async def _sweep(self) -> None:
        self._complete = True
        await self._sink.sweep(self._mark())

    def _mark(self) -> StateMark:
        self._kept_at_s = time.time()
        return self._position(self._kept_at_s)

    def _position(self, now: float) -> StateMark:
        place = (self._sequence, self._written, now, self._filling, self._origin.signed)
        return StateMark(self._created, self._lineage, *place)


async def _open(reader: PullConsumer, config: Object) -> None:
    """Create the consumer. Raises CannotSelect, which no other connection mends."""
    try:
        await reader.open(config)
    except Denied as error:
        if len(config["filter_subjects"]) > 1:
            raise CannotSelect(str(error)) from error
        raise
