"""How long from the commit of a write until a subscriber of the stream has its event?

The subscriber is plain nats-py with the operator's credential of stream.json; the moment of a commit is the event's
revision, which is a time in microseconds, taken just before the transaction is synced.
"""

from __future__ import annotations

import asyncio
import json
import time

from nats.aio.client import Client as Nats
from nats.js.api import ConsumerConfig, DeliverPolicy
from nats.js.client import JetStreamContext
from nats.js.errors import NotFoundError

from atoll.machinery.meta.objects import Object
from loadtest.bench import CONFIG_MAPS, Bench, config_map, percentile
from loadtest.report import Row
from loadtest.server import Server

WRITES_A_SECOND, DEADLINE_S = 100, 20
REVISION = "Atoll-Revision"
FILTER = "atoll.changes.root.core.core.configmaps.root"


async def run(bench: Bench) -> list[Row]:
    count = bench.size(4 * WRITES_A_SECOND, 20 * WRITES_A_SECOND)
    async with bench.server() as server:
        access = await _access(server)
        nats = Nats()
        await nats.connect(**access["connect"])
        try:
            ages = await _ages(server, await _subscribe(nats, access), count)
        finally:
            await nats.close()
    return [
        Row(
            f"event, commit to subscriber, {WRITES_A_SECOND} writes/s, p50",
            percentile(ages, 0.5) * 1000,
            "ms",
            5,
            note=f"p99 {percentile(ages, 0.99) * 1000:.1f} ms, {len(ages):,} events",
        )
    ]


async def _access(server: Server) -> Object:
    """The operator's settings; the file appears once nats-server runs."""
    file = server.root / "stream.json"
    async with asyncio.timeout(DEADLINE_S):
        while not file.exists():  # noqa: ASYNC110  (another process)
            await asyncio.sleep(0.05)
    found: Object = json.loads(file.read_text())
    return found


async def _subscribe(nats: Nats, access: Object) -> JetStreamContext.PullSubscription:
    """A consumer of changes of ConfigMaps in root from now on; the stream may be a moment away still."""
    context, name = nats.jetstream(prefix=access["api_prefix"]), access["consumers"][0]
    config = ConsumerConfig(deliver_policy=DeliverPolicy.NEW)
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                return await context.pull_subscribe(
                    FILTER, durable=name, stream=access["streams"]["changes"], config=config
                )
            except NotFoundError:
                await asyncio.sleep(0.1)


async def _ages(server: Server, events: JetStreamContext.PullSubscription, count: int) -> list[float]:
    """Write at a fixed pace; seconds from the revision's time until the event was here."""
    ages: list[float] = []

    async def receive() -> None:
        while len(ages) < count:
            message = (await events.fetch(1, timeout=DEADLINE_S))[0]
            ages.append(time.time() - int((message.headers or {})[REVISION]) / 1e6)
            await message.ack()

    receiving = asyncio.create_task(receive())
    began = time.perf_counter()
    async with server.client() as client:
        for number in range(count):
            await client.create(CONFIG_MAPS, config_map("e-", generate=True), "default")
            await asyncio.sleep(max(began + number / WRITES_A_SECOND - time.perf_counter(), 0))
        await receiving
    return ages
