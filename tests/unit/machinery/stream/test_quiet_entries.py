"""The state writer is roused by entries that its stream may need, and passes over the others without reading them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from atoll.machinery.kcp.sharding.stream_policy import KcpStreamPolicy
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.stream.definitions import AS_DEFINED
from atoll.machinery.stream.event_keys import EventKeys
from atoll.machinery.stream.events import Event, Operation, Phase
from atoll.machinery.stream.publisher import stream_writer
from atoll.machinery.stream.publisher.changes import ChangesWriter
from atoll.machinery.stream.publisher.log_events import control
from atoll.machinery.stream.publisher.publish_window import WindowLimits
from atoll.machinery.stream.publisher.quiet_entries import QuietEntries
from atoll.machinery.stream.publisher.resume import StreamTip
from atoll.machinery.stream.publisher.state import StateWriter
from atoll.machinery.stream.publisher.stream_writer import LogFeed, StreamWriter
from atoll.machinery.stream.subjects import CHANGES, STATE
from harness.data.event_keys import KEY
from harness.models.shard_log import CONFIGMAPS, LOGICAL_CLUSTERS, Entry, ShardLog
from harness.servers.nats import eventually
from harness.servers.stand_ins.publish_line import PublishLine

OBJECT = ObjectKey(CONFIGMAPS, "c1", "default", "m")
CLUSTER = ObjectKey(LOGICAL_CLUSTERS, "c1", "", "cluster")
_SEQUENCE = 7


class CountedLog(ShardLog):
    """Counts reads."""

    reads = 0

    def tail(self, revision: int, limit: int) -> Sequence[Entry]:
        self.reads += 1
        return super().tail(revision, limit)


class Line(PublishLine):
    """A connection that acknowledges each message, once it may."""

    def __init__(self) -> None:
        self.sent = 0
        self._answers: list[asyncio.Future[None]] = []
        self.acknowledges = asyncio.Event()
        self.acknowledges.set()

    async def send(self, frames: Sequence[bytes]) -> None:
        self.sent += len(frames)
        self._answers.append(asyncio.ensure_future(self._acknowledge(self.sent)))

    async def _acknowledge(self, number: int) -> None:
        await self.acknowledges.wait()
        await self.acknowledge(b'{"seq":%d}' % (_SEQUENCE + number))


class Following:
    """A state writer that waits at the end of its log."""

    def __init__(self) -> None:
        self.log, self.line = CountedLog(), Line()
        self.log.put(CLUSTER)
        self.feed = LogFeed(self.log, KcpStreamPolicy(), EventKeys((KEY,)), WindowLimits(), AS_DEFINED)
        self.writer = StateWriter(self.feed)

    @asynccontextmanager
    async def at_work(self, writer: StreamWriter, end: Event) -> AsyncIterator[None]:
        """Run a writer behind the end of its stream."""
        connection, tip = cast(Any, self.line), StreamTip("created", _SEQUENCE, end, _SEQUENCE)
        plan = writer._plan(tip)
        window = await writer._open(connection, tip, plan)
        work = asyncio.ensure_future(writer._follow(plan, window, connection))
        try:
            yield
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            await writer._close(window)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the state writer, and have it wait."""
        end = control(STATE, Operation.RESYNC, self.log.identity, self.log.last(), Phase.END)
        async with self.at_work(self.writer, end):
            await eventually(lambda: self.is_waiting)
            yield

    @property
    def is_waiting(self) -> bool:
        waiter = self.feed.quiet._waiter
        return waiter is not None and not waiter.done()

    def commit(self, key: ObjectKey) -> None:
        """Commit an object, and read it as the writer of changes does."""
        before = self.log.last()
        self.log.put(key)
        self.feed.quiet.note(before, self.log.tail(before, 500))


async def turns() -> None:
    """Let everything run that is ready."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
def following(monkeypatch: pytest.MonkeyPatch) -> Following:
    # Nothing happens by the clock, unless a test says so.
    monkeypatch.setattr(stream_writer, "_SAVE_EVERY_S", 3600.0)
    monkeypatch.setattr(stream_writer, "_PACE_S", 0.0)
    return Following()


async def test_quiet_entries_are_passed_without_being_read(following: Following) -> None:
    async with following.running():
        for _ in range(10):
            following.commit(OBJECT)
        reads = following.log.reads
        assert following.writer.passed == following.log.last()
        await turns()
        assert following.is_waiting
        assert (following.log.reads, following.line.sent) == (reads, 0)


async def test_an_entry_of_its_stream_is_sent_at_once_behind_quiet_ones(following: Following) -> None:
    async with following.running():
        following.commit(OBJECT)
        following.commit(CLUSTER)
        await turns()
        assert following.line.sent == 1
        assert following.writer.revision == following.log.last()
        assert following.writer.stats.skipped == 0


async def test_what_is_in_flight_is_not_passed(following: Following) -> None:
    async with following.running():
        following.line.acknowledges.clear()
        before = following.log.last()
        following.commit(CLUSTER)
        following.commit(OBJECT)
        await turns()
        assert following.line.sent == 1
        assert following.writer.passed == before
        following.line.acknowledges.set()
        await turns()
        assert following.writer.passed == following.log.last()


async def test_it_reads_by_itself_where_the_other_writer_stands_still(
    following: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_writer, "_SAVE_EVERY_S", 0.05)
    async with following.running():
        following.log.put(CLUSTER)
        await eventually(lambda: following.line.sent == 1)


async def test_its_cursor_follows_past_quiet_entries(following: Following, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_writer, "_SAVE_EVERY_S", 0.05)
    async with following.running():
        following.commit(OBJECT)
        await eventually(lambda: following.writer.revision == following.log.last())
        assert following.writer.stats.skipped == 0


async def test_the_writer_of_changes_notes_what_it_reads(following: Following) -> None:
    changes = ChangesWriter(following.feed)
    end, before = control(CHANGES, Operation.RESYNC, following.log.identity, following.log.last()), following.log.last()
    following.log.put(OBJECT)
    async with following.at_work(changes, end):
        await eventually(lambda: following.feed.quiet.end(before) == following.log.last())


async def test_a_stream_that_is_to_be_written_again_is_not_passed(following: Following) -> None:
    following.feed.quiet.note(0, [following.log.put(OBJECT)])
    assert following.writer.passed == 0, "it does not publish yet"
    async with following.running():
        following.feed.quiet.note(0, [following.log.put(OBJECT)])
        following.writer.rebuild("a test")
        assert following.writer.passed == 0


def noted(*runs: tuple[int, list[Entry]]) -> QuietEntries:
    quiet = QuietEntries(KcpStreamPolicy().may_replicate)
    for after, entries in runs:
        quiet.note(after, entries)
    return quiet


def test_runs_that_touch_are_one_and_others_are_not() -> None:
    log = ShardLog()
    a, b, c, d = (log.put(OBJECT) for _ in range(4))
    quiet = noted((0, [a, b]), (b.revision, [c]))
    assert quiet.end(0) == quiet.end(a.revision) == c.revision
    assert quiet.end(c.revision) == c.revision
    apart = noted((0, [a]), (b.revision, [c, d]))
    assert apart.end(0) == a.revision
    assert apart.end(a.revision) == a.revision
    assert apart.end(b.revision) == d.revision


def test_a_run_read_again_does_not_end_earlier() -> None:
    log = ShardLog()
    a, b, c = (log.put(OBJECT) for _ in range(3))
    assert noted((0, [a, b, c]), (a.revision, [b])).end(0) == c.revision
    assert noted((0, [a, b, c]), (a.revision, [])).end(0) == c.revision


def test_no_run_goes_past_an_entry_that_may_be_replicated() -> None:
    log = ShardLog()
    a, b, cluster, later = log.put(OBJECT), log.put(OBJECT), log.put(CLUSTER), log.put(OBJECT)
    quiet = noted((0, [a]), (a.revision, [b, cluster]), (cluster.revision, [later]))
    assert quiet.end(0) == a.revision
    assert quiet.end(a.revision) == a.revision
    assert quiet.end(b.revision) == b.revision
    assert quiet.end(cluster.revision) == later.revision
