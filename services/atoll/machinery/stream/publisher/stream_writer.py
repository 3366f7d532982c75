"""A stream writer carries the log into one of the two streams: resume, tail, send, save its cursor.

The publisher runs one for changes and one for state on each connection. What differs between the two (which entries
need a message, what a restart means) is in `changes` and `state`. Invariant: entries are handled in revision order,
each once; the cursor never covers an entry whose message is not acknowledged.
"""

from __future__ import annotations

import abc
import asyncio
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
import structlog

from atoll.machinery.stream import events, subjects
from atoll.machinery.stream.connection import Connection, Unresponsive
from atoll.machinery.stream.definitions import RetentionLimits, definition
from atoll.machinery.stream.event_keys import EventKeys
from atoll.machinery.stream.events import Event, Operation, Phase, key_path, statement_of
from atoll.machinery.stream.publisher import stream_admin
from atoll.machinery.stream.publisher.end_check import EndCheck
from atoll.machinery.stream.publisher.log_events import control, from_entry
from atoll.machinery.stream.publisher.log_source import LaterIdentity, LogIdentity, LogSource, SourceEntry, StreamPolicy
from atoll.machinery.stream.publisher.publish_window import (
    AckPosition,
    OutgoingMessage,
    OutOfSequence,
    PublishWindow,
    WindowLimits,
)
from atoll.machinery.stream.publisher.quiet_entries import QuietEntries
from atoll.machinery.stream.publisher.resume import ResumePlan, StreamCursor, StreamTip, has_twin, resume_plan
from atoll.machinery.stream.publisher.stream_tail import ReadPlace, StreamTail
from atoll.machinery.stream.signatures import RUN, header_lines, sign

log = structlog.get_logger()

_SAVE_EVERY_S = 1.0
_SAVE_EVERY_ACKS = 1000
_BATCH = 500
#: The shortest time between two wake-ups while commits keep coming; an isolated commit is sent at once.
_PACE_S = 0.003
_FRUITLESS = 4
_RUN_BYTES = 1 << 20


class WriterStats(msgspec.Struct):
    """Counters of one stream writer since the process started."""

    published: int = 0
    skipped: int = 0
    restarts: int = 0
    resumed: int = 0
    damaged_records: int = 0
    damaged_messages: int = 0
    foreign_messages: int = 0


class Outgoing(msgspec.Struct, frozen=True):
    """An event to send, with headers for the server; once it is acknowledged, entries up to `done` are. Without an
    event, these entries need none."""

    done: int
    event: Event | None = None
    extra: tuple[str, ...] = ()


class LogFeed:
    """The log as both writers read it. They are mostly at the same revision, so the second read is cached.

    `identity` is the log's; its epoch rises where a second process has the same one.
    """

    def __init__(
        self,
        source_log: LogSource,
        policy: StreamPolicy,
        keys: EventKeys,
        limits: WindowLimits,
        bounds: RetentionLimits,
    ) -> None:
        self.log, self.policy, self.keys, self.limits, self.bounds = source_log, policy, keys, limits, bounds
        self.identity: LogIdentity = source_log.identity
        self.quiet = QuietEntries(policy.may_replicate)
        #: A second process of the shard must not read by the same consumers.
        self.process = secrets.token_hex(4)
        self._cached_at = (-1, -1)
        self._answer: Sequence[SourceEntry] = ()

    def raise_epoch(self) -> None:
        """Take the next epoch. The store keeps the one of its opening: the next one is higher by the clock."""
        self.identity = LaterIdentity.after(self.identity)

    def tail(self, revision: int) -> Sequence[SourceEntry]:
        """Return the next entries above a revision, at most a batch. Raises what the log raises."""
        key = (revision, self.log.last())
        if key != self._cached_at:
            self._answer, self._cached_at = self.log.tail(revision, _BATCH), key
        return self._answer


class StreamWriter(abc.ABC):
    """Writes one stream. Lives as long as the process; `run` once a connection."""

    kind: str
    #: Whether the stream is written again when another key signs: messages that stay for ever outlive the old key.
    renews_signatures: bool
    #: Whether the process says in the stream, before anything else, that it writes there now.
    fences: bool
    #: Whether it is roused by what the other writer reads, and not by each commit.
    follows: bool

    def __init__(self, feed: LogFeed) -> None:
        self._feed = feed
        self._log, self._policy, self._limits, self._keys = feed.log, feed.policy, feed.limits, feed.keys
        self._identity = feed.identity
        shard = self._identity.shard
        self._definition = definition(self.kind, shard, feed.bounds)
        self._connection: Connection | None = None
        self.stream = subjects.stream_name(self.kind, shard)
        self.stats = WriterStats()
        #: Called after each save; the publisher reports the lower revision of both writers to compaction.
        self.on_saved: Callable[[], None] = _nothing
        self._cursor = self._load()
        self._window: PublishWindow | None = None
        self._created = ""
        self._consumers_informed = False
        self._informed_after = 0
        self._rebuild_wanted = ""
        self._rewritten_until = 0
        self._mismatches = 0
        self._key = self._cursor.key if self._cursor else ""
        #: The number of the stream's present filling; 0 for the first, and on changes.
        self._filling = 0
        self._saved_at, self._saved_acks, self._woke = 0.0, 0, 0.0
        #: Whether the stream has a message of this process with its epoch.
        self._fenced = False
        #: The highest sequence that a message of this process was sent for.
        self._sent_until = 0

    @property
    def revision(self) -> int:
        """Everything up to here is acknowledged by the stream, or needs no message. 0 before the first."""
        if self._rebuild_wanted:
            return 0
        if self._window is not None:
            return self._window.acked.revision if self._consumers_informed else self._informed_after
        return self._cursor.revision if self._cursor else 0

    @property
    def passed(self) -> int:
        """As `revision`; of one that follows, while it publishes, past entries that it need not look at."""
        revision = self.revision
        publishes = self._consumers_informed and not self._rebuild_wanted
        return self._feed.quiet.end(revision) if self.follows and publishes else revision

    def consumer(self, purpose: str) -> str:
        """Return the name of this process's consumer of the stream for a purpose."""
        return f"atoll-{purpose}-{self.kind}-{self._feed.process}"

    def rebuild(self, reason: str) -> None:
        """Write the stream again from the log or the objects, now or as soon as there is a connection."""
        self._rebuild_wanted = reason
        if self._window is not None:
            self._window.fail(OutOfSequence(reason))

    async def resize(self, max_bytes: int) -> None:
        """Bound the stream: now, or as soon as there is a connection. Raises Unavailable, ApiError."""
        self._definition = {**self._definition, "max_bytes": max_bytes}
        if self._connection is not None:
            await stream_admin.ensure_stream(self._connection, self._definition)

    async def run(self, connection: Connection) -> None:
        """Publish until the connection or something else breaks. Raises Deposed, Unavailable, ApiError."""
        self._connection = connection
        try:
            await self._run(connection)
        finally:
            self._connection = None

    async def _run(self, connection: Connection) -> None:
        tail = StreamTail(connection, ReadPlace(self.stream, self.consumer("tail")), self._keys, self._note_foreign)
        stuck, end = 0, -1
        while True:
            info = await stream_admin.ensure_stream(connection, self._definition)
            tip = await tail.tip(info)
            plan = self._plan(tip)
            window = await self._open(connection, tip, plan)
            try:
                await self._follow(plan, window, connection)
            except OutOfSequence as error:
                write = log.debug if self._mismatches & (self._mismatches - 1) else log.warning
                write("stream sequence mismatch", stream=self.stream, reason=str(error), times=self._mismatches)
                self._mismatches += 1
            finally:
                await self._close(window)
            stuck = 0 if window.acks or tip.last_sequence != end else stuck + 1
            end = tip.last_sequence
            await self._pause(stuck)

    def _note_foreign(self, messages: int) -> None:
        """Count and report messages that this shard did not write. Nobody else may write here: somebody did."""
        before = self.stats.foreign_messages
        self.stats.foreign_messages += messages
        if before.bit_length() != self.stats.foreign_messages.bit_length():
            log.error("foreign messages in stream", stream=self.stream, messages=self.stats.foreign_messages)

    @abc.abstractmethod
    def _outgoing(self, entry: SourceEntry) -> Outgoing:
        """What the entry needs in this stream."""

    @abc.abstractmethod
    async def _restart(self, window: PublishWindow, connection: Connection, plan: ResumePlan) -> int:
        """Make consumers reread, by a RESYNC or a refill. Return the revision to go on after."""

    def _retained_from(self) -> int:
        """The revision after which a rebuilt stream begins: as far back as its messages would have been retained."""
        horizon = 0
        if self._definition["max_age"]:
            horizon = time.time_ns() // 1000 - self._definition["max_age"] // 1000
        return min(max(self._log.floor(), horizon), self._log.last())

    @property
    def _filled_under(self) -> str:
        """The policy that decides which objects are in this stream; empty where each entry decides for itself."""
        return ""

    # --- one session -------------------------------------------------------------------------------------

    def _plan(self, tip: StreamTip) -> ResumePlan:
        self._part_from_twin(tip)
        plan = resume_plan(self._cursor, tip, self._feed.identity, self._log.floor(), time.time())
        key = self._keys.current.id
        if self._cursor is not None and self._cursor.key != key and (self.renews_signatures or not self._cursor.key):
            plan = ResumePlan(self._retained_from(), True, "another key signs", purge=True)
        if self._cursor is not None and self._cursor.policy != self._filled_under:
            plan = ResumePlan(self._retained_from(), True, "other objects belong into the stream", purge=True)
        if self.fences and tip.event is not None and not plan.restart and self._lacks(tip.event):
            plan = ResumePlan(self._retained_from(), True, "the stream has an entry that the log lacks")
        if self._rebuild_wanted:
            plan = ResumePlan(self._retained_from(), True, self._rebuild_wanted, purge=True)
        self._rebuild_wanted = ""
        if tip.foreign:
            # What is behind the cursor may be in the stream already, out of sight.
            self._rewritten_until = max(self._rewritten_until, self._log.last())
        if self._cursor is not None and plan.after < self._cursor.revision:
            # Messages are written a second time: the stream lost them, or older ones were appended.
            self._rewritten_until = max(self._rewritten_until, self._cursor.revision)
        self.stats.resumed += 1
        facts = {"reason": plan.reason, "restart": plan.restart, "after": plan.after, "sequence": tip.last_sequence}
        log.info("stream resumed", stream=self.stream, **facts)
        return plan

    def _part_from_twin(self, tip: StreamTip) -> None:
        """Take the next epoch, and fence with it, where another process of this one may have written last: two that
        opened copies of one store in the same second have the same. The changes stream decides for both streams."""
        sent_until = self._sent_until if self._fenced and tip.created == self._created else 0
        if self.fences and has_twin(tip, self._feed.identity, sent_until):
            log.warning("another process may have this epoch", stream=self.stream, epoch=self._feed.identity.epoch)
            self._feed.raise_epoch()
            self._fenced = False

    def _lacks(self, event: Event) -> bool:
        """Whether an object's event is of no entry here: a process on another copy of the store published it."""
        return event.key is not None and event.revision > self._log.floor() and not self._log.holds(event.revision)

    async def _open(self, connection: Connection, tip: StreamTip, plan: ResumePlan) -> PublishWindow:
        written = tip.event.revision if tip.event is not None else 0
        window = PublishWindow(connection, self._limits, AckPosition(plan.after, tip.last_sequence, written))
        await window.open()
        self._informed_after, self._identity = plan.after, self._feed.identity
        self._filling = max(self._cursor.filling if self._cursor else 0, tip.event.filling if tip.event else 0)
        self._window, self._created, self._saved_acks = window, tip.created, 0
        if plan.restart or self._cursor is None:
            self._key = self._keys.current.id
        return window

    async def _pause(self, stuck: int) -> None:
        """A server with a damaged file may report one last sequence and refuse it: that counts as hanging.

        A last sequence that moves is the work of other writers, and the server is well.
        """
        if stuck >= _FRUITLESS:
            raise Unresponsive("the stream refuses every sequence")
        await asyncio.sleep(0.05 * stuck)

    async def _close(self, window: PublishWindow) -> None:
        self._remember(window, force=True)
        # The first message of a window is a fence, or a RESYNC or the first event of a stream: each has the epoch.
        self._fenced = self._fenced or window.acks > 0
        self._window, self._consumers_informed = None, False
        await window.close()

    async def _follow(self, plan: ResumePlan, window: PublishWindow, connection: Connection) -> None:
        position = plan.after
        if plan.restart:
            self.stats.restarts += 1
            self._rewritten_until = self._log.last()
            position = await self._restart(window, connection, plan)
            await window.drain()
        elif self.fences and not self._fenced and window.acked.sequence:
            await self._fence(window, position)
        # Only now: a cursor saved before the RESYNC would make the next start skip it.
        self._consumers_informed = True
        self._remember(window, force=True)
        end = EndCheck(connection, self.stream, window, self._limits.end_check_s)
        while True:
            position = await self._advance(window, position)
            self._remember(window)
            if position >= self._log.last():
                await self._wait_for_more(window, position, end)
                await self._gather()
            else:
                # Entries that this stream does not hold are passed over without a wait.
                await asyncio.sleep(0)

    async def _advance(self, window: PublishWindow, position: int) -> int:
        if self.follows and (end := self._feed.quiet.end(position)) > position:
            window.skip(end)
            position = end
        entries = self._read(position)
        self._feed.quiet.note(position, entries)
        await self._send(window, map(self._outgoing, entries))
        return entries[-1].revision if entries else position

    def _read(self, position: int) -> Sequence[SourceEntry]:
        """Return the next entries. Raises OutOfSequence if compaction has passed the position."""
        entries: Sequence[SourceEntry] = ()
        failure: Exception | None = None
        try:
            entries = self._feed.tail(position)
        except Exception as error:
            failure = error
        if position < self._log.floor():
            raise OutOfSequence("compaction passed the publisher")
        if failure is not None:
            raise failure
        return entries

    async def _fence(self, window: PublishWindow, position: int) -> None:
        """Say that this process writes here now: one before it, on a copy of the store, finds it and ends."""
        await self._send(window, [Outgoing(position, control(self.kind, Operation.FENCE, self._identity, position))])

    async def _wait_for_more(self, window: PublishWindow, position: int, end: EndCheck) -> None:
        """Wait for a commit or the end of this session; save the cursor as acknowledgements arrive.

        One that follows waits for what the other one reads, and looks by itself each second: the other may stand still.
        """
        while self._log.last() <= position:
            often = self.follows or window.in_flight or self._unsaved(window)
            awaited = self._feed.quiet.next_entry() if self.follows else self._log.next_commit()
            await window.wait_beside(awaited, _SAVE_EVERY_S if often else self._limits.end_check_s)
            self._remember(window)
            await end.check()

    async def _gather(self) -> None:
        """Batch commits that follow closely: a wake-up costs as much as several events."""
        rest_s = self._woke + _PACE_S - time.monotonic()
        if rest_s > 0:
            await asyncio.sleep(rest_s)
        self._woke = time.monotonic()

    async def _send(self, window: PublishWindow, found: Iterable[Outgoing]) -> None:
        """Send events in order, each run of them at once and under one signature."""
        self._check_key()
        for run in _runs(found):
            sent = [each for each in run if each.event is not None]
            self.stats.skipped += len(run) - len(sent)
            if not sent:
                window.skip(run[-1].done)
                continue
            messages = self._signed(window, [self._message(each) for each in sent])
            self.stats.published += len(messages)
            await window.send(messages, run[-1].done)

    def _signed(self, window: PublishWindow, messages: Sequence[OutgoingMessage]) -> Sequence[OutgoingMessage]:
        """Sign messages for the next sequences of the stream. Only this task sends, so nothing comes in between."""
        signatures = sign(self._keys.current, messages, window.next_sequence)
        self._sent_until = max(self._sent_until, signatures[-1].sequence)
        for message, signature in zip(messages, signatures, strict=True):
            message.headers.extend(header_lines(signature))
        return messages

    def _check_key(self) -> None:
        """Note that another key signs from now on. Raises OutOfSequence where the stream is written again."""
        key = self._keys.current.id
        if key != self._key and self._key and self.renews_signatures and self._consumers_informed:
            raise OutOfSequence("another key signs")
        self._key = key

    def _message(self, outgoing: Outgoing) -> OutgoingMessage:
        event = outgoing.event
        assert event is not None
        if self._filling:
            event = msgspec.structs.replace(event, filling=self._filling)
        subject, path = event.subject, key_path(event.key)
        headers = events.header_lines(event, path)
        headers.extend(outgoing.extra)
        statement = statement_of(event, subject, path)
        return OutgoingMessage(subject, event.payload, headers, event.revision, self._message_id(event), statement)

    def _message_id(self, event: Event) -> str:
        """The event's id, by which the server drops a second copy; a fresh id where a second copy is intended. The
        server remembers ids for two minutes, across a purge too. An entry committed during a refill is sent by the
        refill, and again in its turn.
        """
        id = event.id
        if event.key is not None and event.phase is not Phase.REFILL and event.revision > self._rewritten_until:
            return id
        return f"{id}-{secrets.token_hex(4)}"

    def _from_entry(self, entry: SourceEntry) -> Event:
        event = from_entry(self.kind, self._identity, entry)
        if not (event.sealed or event.hole >= 0) or (event.sealed and not event.intact):
            self.stats.damaged_records += 1
            log.error("record fails its checksum", stream=self.stream, revision=entry.revision)
        return event

    # --- the cursor --------------------------------------------------------------------------------------

    @property
    def _mark(self) -> str:
        return f"stream.{self.kind}"

    def _load(self) -> StreamCursor | None:
        data = self._log.get_mark(self._mark)
        try:
            return msgspec.json.decode(data, type=StreamCursor) if data else None
        except msgspec.DecodeError as error:
            log.error("stream cursor unreadable", stream=self.stream, error=str(error))
            return None

    def _unsaved(self, window: PublishWindow) -> bool:
        acked, cursor = window.acked, self._cursor
        return cursor is None or (acked.revision, acked.sequence) != (cursor.revision, cursor.sequence)

    def _remember(self, window: PublishWindow, force: bool = False) -> None:
        """Save the cursor if it moved: at once if forced, else each second or each 1,000 acknowledgements."""
        if not self._consumers_informed or not (force or self._unsaved(window)):
            return
        now = time.monotonic()
        due = now - self._saved_at >= _SAVE_EVERY_S or window.acks - self._saved_acks >= _SAVE_EVERY_ACKS
        if not (due or force):
            return
        acked = window.acked
        lineage = self._identity.lineage
        self._cursor = StreamCursor(
            acked.revision,
            acked.sequence,
            acked.written,
            self._created,
            lineage,
            self._filling,
            self._key,
            self._filled_under,
        )
        self._saved_at, self._saved_acks = now, window.acks
        self._log.set_mark(self._mark, msgspec.json.encode(self._cursor))
        self.on_saved()


def _runs(found: Iterable[Outgoing]) -> Iterator[list[Outgoing]]:
    """Runs that share a signature, bounded in number and in bytes."""
    run: list[Outgoing] = []
    size_bytes = 0
    for each in found:
        run.append(each)
        size_bytes += len(each.event.payload) if each.event is not None else 0
        if len(run) == RUN or size_bytes > _RUN_BYTES:
            yield run
            run, size_bytes = [], 0
    if run:
        yield run


def _nothing() -> None:
    """The default of `on_saved`."""
