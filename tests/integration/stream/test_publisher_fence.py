"""The fence of a publisher: its first message in a stream that has some. One before it ends by it, without a write."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from atoll.machinery.kcp.sharding.stream_policy import KcpStreamPolicy
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.stream.connection import Connection
from atoll.machinery.stream.definitions import AS_DEFINED
from atoll.machinery.stream.event_keys import EventKeys
from atoll.machinery.stream.events import Event, Operation
from atoll.machinery.stream.publisher.changes import ChangesWriter
from atoll.machinery.stream.publisher.publish_window import WindowLimits
from atoll.machinery.stream.publisher.stream_admin import stream_info
from atoll.machinery.stream.publisher.stream_tail import ReadPlace, StreamTail
from atoll.machinery.stream.publisher.stream_writer import LogFeed
from atoll.machinery.stream.subjects import stream_name
from harness.data.event_keys import KEY
from harness.models.shard_log import CONFIGMAPS, ShardLog
from harness.servers.in_process.publisher import QUICK, publishing, read_stream
from harness.servers.nats import NatsServer, eventually

CHANGES = stream_name("changes", "root")
#: The end of a stream is read often, not each three seconds.
ALERT = msgspec.structs.replace(QUICK, limits=WindowLimits(stall_s=2.0, end_check_s=0.1))


def write(log: ShardLog, count: int) -> list[int]:
    """Write entries; return their revisions."""
    keys = [ObjectKey(CONFIGMAPS, "c1", "default", f"m{number}") for number in range(count)]
    return [log.put(key).revision for key in keys]


def tail_of_another_process(log: ShardLog, connection: Connection) -> StreamTail:
    keys = EventKeys((KEY,))
    writer = ChangesWriter(LogFeed(log, KcpStreamPolicy(), keys, WindowLimits(), AS_DEFINED))
    return StreamTail(connection, ReadPlace(writer.stream, writer.consumer("tail")), keys, lambda _: None)


async def changes(nats: NatsServer) -> list[Event]:
    return [event for _, event in await read_stream(nats, "changes")]


async def test_a_process_fences_once_before_its_first_event_also_where_nats_comes_later(tmp_path: Path) -> None:
    log = ShardLog()
    async with NatsServer(tmp_path) as nats:
        async with publishing(log, nats) as running:
            earlier = write(log, 3)
            await running.drained()
        log = log.reopened()
        await nats.stop()
        async with publishing(log, nats) as running:
            later = write(log, 3)
            await eventually(lambda: running.publisher.lag().events == 3)
            await nats.start()
            await running.drained()
            await nats.kill()
            later += write(log, 1)
            await running.drained()
        fence, *events = (await changes(nats))[3:]
    assert (fence.operation, fence.epoch, fence.revision) == (Operation.FENCE, log.identity.epoch, earlier[-1])
    assert [event.revision for event in events] == later


async def test_a_silent_publisher_is_deposed_by_the_fence_of_a_higher_epoch(tmp_path: Path) -> None:
    old = ShardLog()
    async with NatsServer(tmp_path) as nats, publishing(old, nats, ALERT) as first:
        written = write(old, 3)
        await first.drained()
        new = old.reopened()
        async with publishing(new, nats, ALERT) as second:
            await eventually(lambda: bool(first.deposed))
            assert (first.deposed[0].own, first.deposed[0].other) == (old.identity.epoch, new.identity.epoch)
            assert second.deposed == []
            assert second.publisher.changes.stats.restarts == 0
        events = await changes(nats)
    assert [event.revision for event in events] == [*written, written[-1]]


async def test_of_two_with_one_epoch_exactly_the_later_one_goes_on(tmp_path: Path) -> None:
    first_log = ShardLog()
    async with NatsServer(tmp_path) as nats, publishing(first_log, nats, ALERT) as first:
        written = write(first_log, 3)
        await first.drained()
        second_log, own = first_log.reopened(epoch=0), first_log.identity.epoch
        async with publishing(second_log, nats, ALERT) as second:
            await eventually(lambda: bool(first.deposed))
            assert (first.deposed[0].own, first.deposed[0].other) == (own, own + 1)
            written += write(second_log, 3)
            await second.drained()
            assert (second.deposed, second.publisher.changes.stats.restarts) == ([], 0)
        fence, *events = (await changes(nats))[3:]
    assert (fence.operation, fence.epoch) == (Operation.FENCE, own + 1)
    assert [(event.revision, event.epoch) for event in events] == [(each, own + 1) for each in written[3:]]


@pytest.mark.parametrize("messages", [0, 3], ids=["empty", "written"])
async def test_of_two_with_one_epoch_that_start_together_exactly_one_goes_on(tmp_path: Path, messages: int) -> None:
    earlier = ShardLog()
    async with NatsServer(tmp_path) as nats:
        async with publishing(earlier, nats) as running:
            write(earlier, messages)
            await running.drained()
        logs = [earlier.reopened(), earlier.reopened()]
        async with publishing(logs[0], nats, ALERT) as one, publishing(logs[1], nats, ALERT) as other:
            for log in logs:
                write(log, 3)
            await eventually(lambda: bool(one.deposed or other.deposed))
            goes_on, log = (one, logs[0]) if other.deposed else (other, logs[1])
            last = write(log, 3)[-1]
            await goes_on.drained()
            assert goes_on.deposed == []
        events = await changes(nats)
    assert (events[-1].revision, events[-1].epoch) == (last, log.identity.epoch + 1)
    # What the other one had published stands between, behind a RESYNC.
    assert {entry.revision for entry in log.entries} <= {event.revision for event in events}


async def test_what_only_the_other_copy_has_is_followed_by_a_resync(tmp_path: Path) -> None:
    old = ShardLog()
    async with NatsServer(tmp_path) as nats:
        async with publishing(old, nats) as running:
            write(old, 3)
            await running.drained()
            new = old.reopened()
            write(new, 3)
            write(old, 3)
            await running.drained()
        async with publishing(new, nats) as running:
            await running.drained()
            events = await changes(nats)
    assert [event.operation for event in events[6:7]] == [Operation.RESYNC]
    assert [event.revision for event in events[7:]] == [entry.revision for entry in new.entries]


async def test_two_processes_read_the_end_of_a_stream_each_by_a_consumer_of_its_own(tmp_path: Path) -> None:
    log = ShardLog()
    async with NatsServer(tmp_path) as nats, publishing(log, nats) as running:
        connection = await nats.connect()
        tails = [tail_of_another_process(log, connection) for _ in range(2)]
        for _ in range(2):
            last = write(log, 1)[0]
            await running.drained()
            info = await stream_info(connection, CHANGES)
            assert info is not None
            tips = [await tail.tip(info) for tail in tails]
        await connection.close()
    assert [tip.event and tip.event.revision for tip in tips] == [last, last]


async def test_an_empty_stream_gets_no_fence(tmp_path: Path) -> None:
    log = ShardLog()
    async with NatsServer(tmp_path) as nats, publishing(log, nats) as running:
        written = write(log, 1)
        await running.drained()
        events = await changes(nats)
    assert [event.revision for event in events] == written
