"""The audit of both streams: can every message that the server counts still be read?

A flipped bit in a file of JetStream makes a message vanish from every delivery while all counts stay the same and
nothing is logged. Worse, nats-server 2.15 hangs when it must drop such a message to make room. So the publisher reads
its own streams, headers only, at the start of each connection and at an interval, and rewrites a damaged one. The
audit that publishing waits for is fast; the others leave the CPU to requests. Invariant: damage that a later RESYNC
covers is not reported again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec
import structlog

from atoll.machinery.meta.objects import Object
from atoll.machinery.stream import subjects
from atoll.machinery.stream.connection import Connection
from atoll.machinery.stream.consumer.pull_consumer import PullConsumer, stream_sequence
from atoll.machinery.stream.publisher import stream_admin
from atoll.machinery.stream.publisher.log_source import LogSource, StreamPolicy, standing_pages
from atoll.machinery.stream.publisher.stream_writer import StreamWriter
from atoll.machinery.stream.signatures import SEQUENCE

log = structlog.get_logger()

_TOMBSTONE_TYPE = "atoll.object.deleted.v1"


def _contents(info: Object) -> tuple[str, int, int, int]:
    """What changes with the messages of a stream; its state also counts consumers, which come and go."""
    state = info["state"]
    return info["created"], state["first_seq"], state["last_seq"], state["messages"]


class ReadSurvey(msgspec.Struct):
    """The result of one reading. `gaps` are ranges of sequences, end excluded, that were not delivered."""

    expected: int
    readable: int = 0
    live: int = 0
    gaps: list[tuple[int, int]] = msgspec.field(default_factory=list)

    def note(self, sequence: int, subject: str, headers: Mapping[str, str]) -> None:
        if sequence > self.expected:
            self.gaps.append((self.expected, sequence))
        self.expected = sequence + 1
        self.readable += 1
        if subject.endswith(f".{subjects.CONTROL}"):
            # A consumer that passes a gap meets this RESYNC after it and rereads anyway.
            self.gaps.clear()
        elif headers.get(SEQUENCE) == str(sequence) and headers.get("ce-type") != _TOMBSTONE_TYPE:
            self.live += 1

    def finish(self, until: int) -> None:
        """The reading has ended; the stream goes up to `until`."""
        if self.expected <= until:
            self.gaps.append((self.expected, until + 1))

    def missing(self, first: int) -> int:
        """The number of messages not delivered, from sequence `first` on."""
        return sum(max(0, end - max(begin, first)) for begin, end in self.gaps)


class StreamAudit:
    """Reads both streams of a shard through. `run` it beside the writers on the same connection.

    `pace` is in messages a second: while nothing waits, and for `first`.
    """

    def __init__(
        self,
        writers: tuple[StreamWriter, StreamWriter],
        source_log: LogSource,
        policy: StreamPolicy,
        pace: tuple[int, int],
    ) -> None:
        self._changes, self._state = writers
        self._log, self._policy = source_log, policy
        self._pace, self._first_pace = pace
        self._rate = self._pace
        self._foreign = 0

    async def first(self, connection: Connection, suspicious: bool) -> None:
        """Audit before anything is written: the state stream, since overwriting a damaged message hangs the server,
        and the changes stream if the server has hung. Raises ApiError, Unavailable."""
        self._rate = self._first_pace
        try:
            await self.state(connection)
            if suspicious:
                await self.changes(connection)
        finally:
            self._rate = self._pace

    async def run(self, connection: Connection, interval_s: float) -> None:
        """Audit the changes now, then both every `interval_s` (0: never again). Raises ApiError, Unavailable."""
        await self.changes(connection)
        while interval_s > 0:
            await asyncio.sleep(interval_s)
            await self.state(connection)
            await self.changes(connection)

    async def changes(self, connection: Connection) -> bool:
        """Whether the changes stream is whole. If not, it is rebuilt, and its consumers reread."""
        before = await stream_admin.stream_info(connection, self._changes.stream)
        if before is None or not before["state"]["messages"]:
            return True
        found = await self._read(connection, self._changes, before["state"])
        after = await stream_admin.stream_info(connection, self._changes.stream)
        if after is None or after["created"] != before["created"]:
            return True
        # Messages that aged out during the audit are missing at the front; that is no damage.
        return self._rebuild_if_damaged(self._changes, found.missing(after["state"]["first_seq"]))

    async def state(self, connection: Connection) -> bool:
        """Whether the state stream is whole and agrees with the store. True while it changes."""
        before = await stream_admin.stream_info(connection, self._state.stream)
        if before is None:
            return True
        last = self._log.last()
        found = await self._read(connection, self._state, before["state"])
        expected = await self._replicated() if self._state.passed >= last else found.live
        after = await stream_admin.stream_info(connection, self._state.stream)
        if after is None or _contents(after) != _contents(before):
            return True
        missing = before["state"]["messages"] - found.readable
        # Foreign messages that the writer met may stand in the place of its own.
        missing = max(missing, self._state.stats.foreign_messages - self._foreign)
        self._foreign = self._state.stats.foreign_messages
        if self._log.last() == last:
            missing = max(missing, abs(expected - found.live))
        return self._rebuild_if_damaged(self._state, missing)

    def _rebuild_if_damaged(self, writer: StreamWriter, missing: int) -> bool:
        if missing <= 0:
            return True
        writer.stats.damaged_messages += missing
        log.error("stream damaged", stream=writer.stream, messages=missing)
        writer.rebuild("the audit found damage")
        return False

    async def _read(self, connection: Connection, writer: StreamWriter, state: Object) -> ReadSurvey:
        until = state["last_seq"]
        reader = PullConsumer(connection, writer.stream, writer.consumer("audit"))
        found = ReadSurvey(state["first_seq"])
        await reader.open({"deliver_policy": "all", "headers_only": True})
        try:
            while found.expected <= until and (batch := await reader.batch(wait_s=0)):
                for message in batch:
                    sequence = stream_sequence(message.reply)
                    if sequence > until:
                        break
                    found.note(sequence, message.subject, message.headers or {})
                await asyncio.sleep(len(batch) / self._rate)
        finally:
            await reader.close()
        found.finish(until)
        return found

    async def _replicated(self) -> int:
        count = 0
        for type in filter(self._policy.may_replicate, self._log.types()):
            for page in standing_pages(self._log, type):
                count += sum(self._policy.replicated(entry.key, entry.value) for entry in page)
                await asyncio.sleep(0)
        return count
