"""Publishing a log in memory to a NATS of three, while writes go on, and the comparison of log and stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec

from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.stream.definitions import RetentionLimits
from atoll.machinery.stream.events import Event, Operation
from atoll.machinery.stream.publisher.publisher import PublisherOptions
from atoll.machinery.stream.subjects import stream_name
from harness.models.shard_log import CONFIGMAPS, ShardLog
from harness.servers.in_process.publisher import QUICK, Running, read_stream
from harness.servers.nats import eventually
from harness.servers.nats_cluster import NatsCluster

CHANGES = stream_name("changes", "root")
THREE = RetentionLimits(replicas=3)
DRAIN_S = 120.0


def write(log: ShardLog, count: int) -> None:
    for number in range(count):
        key = ObjectKey(CONFIGMAPS, f"c{number % 3}", "default", f"m{number % 9}")
        log.put(key, data={"number": f"{len(log.entries):06d}"})


@asynccontextmanager
async def publishing(log: ShardLog, nats: NatsCluster, bounds: RetentionLimits = THREE) -> AsyncIterator[Running]:
    options: PublisherOptions = msgspec.structs.replace(QUICK, bounds=bounds)
    running = Running(log, nats.access, options)
    try:
        yield running
    finally:
        await running.stop()


@asynccontextmanager
async def busy(log: ShardLog, batch: int = 10) -> AsyncIterator[Callable[[int], Awaitable[None]]]:
    """Write all the while; the result waits until so many entries more are written."""
    stop = asyncio.Event()

    async def keep_writing() -> None:
        while not stop.is_set():
            write(log, batch)
            await asyncio.sleep(0.01)

    async def written(count: int) -> None:
        wanted = len(log.entries) + count
        await eventually(lambda: len(log.entries) > wanted)

    writing = asyncio.ensure_future(keep_writing())
    try:
        yield written
    finally:
        stop.set()
        await writing


async def drained(running: Running) -> None:
    assert await running.publisher.drain(DRAIN_S), f"still {running.publisher.lag()}"


async def whole(log: ShardLog, nats: NatsCluster) -> list[tuple[Operation, int]]:
    """Assert that the changes stream has every entry once and in order; return what it has beside them and fences."""
    await nats.info(CHANGES)
    events = [event for _, event in await read_stream(nats, "changes")]
    assert [event.revision for event in events if event.key is not None] == [entry.revision for entry in log.entries]
    return _marks(events)


def _marks(events: list[Event]) -> list[tuple[Operation, int]]:
    marks = [(event.operation, event.revision) for event in events if event.key is None]
    return [mark for mark in marks if mark[0] is not Operation.FENCE]
