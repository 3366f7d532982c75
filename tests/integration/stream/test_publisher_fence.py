"""The fence of a publisher: its first message in a stream that has some. One before it ends by it, without a write."""

from __future__ import annotations

from pathlib import Path

import msgspec

from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.stream.events import Event, Operation
from atoll.machinery.stream.publisher.publish_window import WindowLimits
from harness.models.shard_log import CONFIGMAPS, ShardLog
from harness.servers.in_process.publisher import QUICK, publishing, read_stream
from harness.servers.nats import NatsServer, eventually

#: The end of a stream is read often, not each three seconds.
ALERT = msgspec.structs.replace(QUICK, limits=WindowLimits(stall_s=2.0, end_check_s=0.1))


def write(log: ShardLog, count: int) -> list[int]:
    """Write entries; return their revisions."""
    keys = [ObjectKey(CONFIGMAPS, "c1", "default", f"m{number}") for number in range(count)]
    return [log.put(key).revision for key in keys]


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


async def test_an_empty_stream_gets_no_fence(tmp_path: Path) -> None:
    log = ShardLog()
    async with NatsServer(tmp_path) as nats, publishing(log, nats) as running:
        written = write(log, 1)
        await running.drained()
        events = await changes(nats)
    assert [event.revision for event in events] == written
