"""The fence of a writer of changes: the first message of its sessions, until a message was acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import msgspec
import pytest

from atoll.machinery.kcp.sharding.stream_policy import KcpStreamPolicy
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.stream.connection import Unavailable
from atoll.machinery.stream.definitions import AS_DEFINED
from atoll.machinery.stream.event_keys import EventKeys
from atoll.machinery.stream.events import Event, Operation, Phase
from atoll.machinery.stream.publisher.changes import ChangesWriter
from atoll.machinery.stream.publisher.log_events import control, from_entry
from atoll.machinery.stream.publisher.publish_window import WindowLimits
from atoll.machinery.stream.publisher.resume import StreamTip
from atoll.machinery.stream.publisher.state import StateWriter
from atoll.machinery.stream.publisher.stream_writer import LogFeed, StreamWriter
from atoll.machinery.stream.subjects import CHANGES, STATE
from harness.data.event_keys import KEY
from harness.models.shard_log import CONFIGMAPS, LOGICAL_CLUSTERS, ShardLog
from harness.servers.stand_ins.publish_line import PublishLine

FENCED = "FENCE"
OBJECT = ObjectKey(CONFIGMAPS, "c1", "default", "m")
CLUSTER = ObjectKey(LOGICAL_CLUSTERS, "c1", "", "cluster")


class Line(PublishLine):
    """A connection that is lost once some messages were sent; of these it acknowledges the first few."""

    def __init__(self, acknowledged: int, end: int) -> None:
        self.sent: list[str] = []
        self._acknowledged, self._end = acknowledged, end

    async def send(self, frames: Sequence[bytes]) -> None:
        for frame in frames:
            head = frame.decode()
            self.sent.append(head.partition("Atoll-Operation: ")[2].split("\r\n")[0])
            if len(self.sent) <= self._acknowledged:
                await self.acknowledge(b'{"stream":"s","seq":%d}' % (self._end + len(self.sent)))
        if len(self.sent) > 1:
            raise Unavailable("lost")


def put(log: ShardLog, key: ObjectKey = OBJECT) -> int:
    return log.put(key).revision


def writing(kind: type[StreamWriter], log: ShardLog) -> StreamWriter:
    return kind(LogFeed(log, KcpStreamPolicy(), EventKeys((KEY,)), WindowLimits(), AS_DEFINED))


async def session(writer: StreamWriter, tip: StreamTip, acknowledged: int) -> list[str]:
    """The operations that a writer sends on one connection until it is lost, behind the end of a stream."""
    line = Line(acknowledged, tip.last_sequence)
    connection, plan = cast(Any, line), writer._plan(tip)
    window = await writer._open(connection, tip, plan)
    try:
        async with asyncio.timeout(60):
            await writer._follow(plan, window, connection)
    except Unavailable:
        pass
    finally:
        await writer._close(window)
    return line.sent


@pytest.fixture
def log() -> ShardLog:
    log = ShardLog()
    put(log)
    put(log, CLUSTER)
    return log


async def test_a_fence_is_sent_again_until_a_message_was_acknowledged(log: ShardLog) -> None:
    writer = writing(ChangesWriter, log)
    tip = StreamTip("created", 7, control(CHANGES, Operation.RESYNC, log.identity, put(log)), 7)
    put(log)
    assert await session(writer, tip, acknowledged=0) == [FENCED, "MODIFIED"]
    assert await session(writer, tip, acknowledged=1) == [FENCED, "MODIFIED"]
    put(log)
    assert await session(writer, tip, acknowledged=0) == ["MODIFIED", "MODIFIED"]


async def test_a_message_of_its_own_epoch_is_anothers_unless_it_sent_it(log: ShardLog) -> None:
    own = control(CHANGES, Operation.FENCE, log.identity, log.last())
    epoch, writer = log.identity.epoch, writing(ChangesWriter, log)
    put(log)
    assert await session(writer, StreamTip("created", 7, own, 7), acknowledged=1) == [FENCED, "MODIFIED"]
    assert writer._feed.identity.epoch == epoch + 1
    later = control(CHANGES, Operation.FENCE, writer._feed.identity, log.last())
    put(log)
    put(log)
    # Both were sent, and one was acknowledged.
    assert FENCED not in await session(writer, StreamTip("created", 9, later, 9), acknowledged=0)
    assert writer._feed.identity.epoch == epoch + 1
    assert FENCED in await session(writer, StreamTip("created", 20, later, 20), acknowledged=0)
    assert writer._feed.identity.epoch == epoch + 2


async def test_a_message_without_an_answer_and_one_of_a_new_stream_may_be_anothers(log: ShardLog) -> None:
    epoch, writer = log.identity.epoch, writing(ChangesWriter, log)
    earlier = control(CHANGES, Operation.FENCE, log.reopened(epoch=-1).identity, log.last())
    own = control(CHANGES, Operation.FENCE, log.identity, log.last())
    put(log)
    await session(writer, StreamTip("created", 7, earlier, 7), acknowledged=0)
    assert writer._feed.identity.epoch == epoch
    await session(writer, StreamTip("created", 8, own, 8), acknowledged=1)
    assert writer._feed.identity.epoch == epoch + 1
    later = control(CHANGES, Operation.FENCE, writer._feed.identity, log.last())
    await session(writer, StreamTip("again", 3, later, 3), acknowledged=1)
    assert writer._feed.identity.epoch == epoch + 2


async def test_what_the_log_lacks_is_followed_by_a_resync(log: ShardLog) -> None:
    entry, resync = (
        from_entry(CHANGES, log.identity, log.entries[0]),
        control(CHANGES, Operation.RESYNC, log.identity, 0),
    )

    async def first(like: Event, revision: int, floor: int = 0) -> str:
        opened = log.reopened()
        opened.compact(floor)
        tip = StreamTip("created", 7, msgspec.structs.replace(like, revision=revision), 7)
        return (await session(writing(ChangesWriter, opened), tip, acknowledged=1))[0]

    there = put(log)
    put(log)
    assert await first(entry, there) == FENCED
    assert await first(entry, there + 1) == "RESYNC"
    assert await first(entry, there, floor=there) == FENCED
    # A message of the stream itself may stand between entries.
    assert await first(resync, there + 1) == FENCED


async def test_a_resync_is_a_fence(log: ShardLog) -> None:
    another = control(CHANGES, Operation.RESYNC, log.reopened(lineage="b2", epoch=-1).identity, put(log))
    sent = await session(writing(ChangesWriter, log), StreamTip("created", 7, another, 7), acknowledged=1)
    assert sent[0] == "RESYNC"
    assert FENCED not in sent


async def test_the_state_keeps_the_end_of_its_filling(log: ShardLog) -> None:
    end = control(STATE, Operation.RESYNC, log.identity, put(log, CLUSTER), Phase.END)
    put(log, CLUSTER)
    put(log, CLUSTER)
    sent = await session(writing(StateWriter, log), StreamTip("created", 7, end, 7), acknowledged=0)
    assert sent == ["MODIFIED", "MODIFIED"]
