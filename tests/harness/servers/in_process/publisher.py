"""Running a publisher in a test, and reading a whole stream back as events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

import msgspec
from nats.aio.msg import Msg

from atoll.machinery.kcp.sharding.stream_policy import KcpStreamPolicy
from atoll.machinery.process.backoff import Backoff
from atoll.machinery.stream.connection import Access, Connection
from atoll.machinery.stream.consumer.pull_consumer import PullConsumer, stream_sequence
from atoll.machinery.stream.events import Event, Malformed, decode
from atoll.machinery.stream.publisher.log_source import LogSource
from atoll.machinery.stream.publisher.publish_window import WindowLimits
from atoll.machinery.stream.publisher.publisher import Publisher, PublisherOptions
from atoll.machinery.stream.publisher.resume import Deposed
from atoll.machinery.stream.subjects import stream_name
from harness.data.event_keys import KEY
from harness.servers.nats import NatsServer

QUICK = PublisherOptions(backoff=Backoff(0.05, 0.2), limits=WindowLimits(stall_s=2.0))


class Running:
    """A running publisher; `deposed` holds the reason if a higher epoch ended it."""

    def __init__(self, log: LogSource, access: Access, options: PublisherOptions) -> None:
        self.deposed: list[Deposed] = []
        access = msgspec.structs.replace(access, signing_keys=access.signing_keys or (KEY,))
        self.publisher = Publisher(log, KcpStreamPolicy(), access, self.deposed.append, options)
        self.task = asyncio.ensure_future(self.publisher.run())

    async def drained(self) -> None:
        assert await self.publisher.drain(60.0), f"still {self.publisher.lag()}"

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@asynccontextmanager
async def publishing(log: LogSource, nats: NatsServer, options: PublisherOptions = QUICK) -> AsyncIterator[Running]:
    running = Running(log, nats.access, msgspec.structs.replace(options, restart_server=nats.server.restart))
    try:
        yield running
    finally:
        await running.stop()


class Reachable(Protocol):
    """A server with the shard's own access, which reads its own streams."""

    shard: str

    async def connect(self) -> Connection: ...


async def read_stream(nats: Reachable, kind: str) -> list[tuple[int, Event]]:
    """Every readable message of a stream, with its sequence. Fails on one that is no event."""
    return [(stream_sequence(m.reply), decode(m.subject, m.headers, m.data)) for m in await _read_all(nats, kind)]


async def read_events(nats: Reachable, kind: str) -> list[Event | None]:
    """Every readable message of a stream; None for one that is no event."""
    return [_event(message) for message in await _read_all(nats, kind)]


def _event(message: Msg) -> Event | None:
    try:
        return decode(message.subject, message.headers, message.data)
    except Malformed:
        return None


async def _read_all(nats: Reachable, kind: str) -> list[Msg]:
    connection = await nats.connect()
    reader = PullConsumer(connection, stream_name(kind, nats.shard), "reading")
    found: list[Msg] = []
    try:
        await reader.open({"deliver_policy": "all"})
        while batch := await reader.batch(wait_s=0):
            found += batch
    finally:
        await reader.close()
        await connection.close()
    return found
