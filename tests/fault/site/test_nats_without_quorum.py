"""A NATS of three loses two servers for ten minutes: writes go on, the shard's memory stays, an alert says so.

Afterwards a subscriber has every change once and in order, and a follower of the state what the shard has.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from atoll import events
from atoll.machinery.meta.names import CORE, ResourceType
from atoll.machinery.stream.consumer.state_consumer import ConsumerOptions, StateConsumer
from atoll.machinery.stream.event_keys import by_id
from atoll.machinery.stream.permissions import follower_consumer
from atoll.machinery.stream.subjects import STATE, all_subjects
from harness.clients.api import Api, configmap
from harness.clients.prometheus import Scrape, evaluate
from harness.models.state_projection import StateRows
from harness.servers.memory import anonymous_bytes
from harness.servers.nats_cluster import SERVERS, NatsCluster
from harness.servers.shard_process import ShardProcess
from harness.waits import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(1500)]

OUTAGE_S, BACK_S = 600.0, 240.0
#: Of writes before the outage; of the outage, until memory is compared; until the other servers notice, and what was
#: under way is refused.
BEFORE_S, WARM_S, ELECTION_S = 60.0, 60.0, 30.0
#: Writes, and scrapes of the metrics.
PACE_S, SCRAPE_S = 0.1, 15.0
#: What the shard may take beside what it has after the first minute without quorum. The backlog is in its file alone:
#: in memory it would be more than this.
GROWTH_BYTES = 8 << 20
FOLLOWER, OPERATOR = "follower", "ops"
MAPS = "/api/v1/namespaces/default/configmaps"
EXPORTS = "/apis/apis.kcp.io/v1alpha2/apiexports"
ALERT = "AtollStreamBehind"
_LAG = re.compile(r"^atoll_stream_lag_seconds (\S+)", re.MULTILINE)


class Writer:
    """Writes ConfigMaps at a pace, and now and then an APIExport, which goes to the state stream as well. Each write
    must be acknowledged."""

    def __init__(self, shard: ShardProcess) -> None:
        self._api = Api(shard, "root").at_once()
        self.revisions: list[int] = []
        self._stop = asyncio.Event()

    async def run(self) -> None:
        for number in itertools.count():
            if self._stop.is_set():
                return
            await asyncio.to_thread(self._write, number)
            await asyncio.sleep(PACE_S)

    async def end(self, running: asyncio.Task[None]) -> None:
        self._stop.set()
        await running

    def _write(self, number: int) -> None:
        if number % 25 == 0:
            self._api.post(EXPORTS, {"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", **_named(number)})
        body = configmap(f"m{number}", {"number": "x" * 1000})
        self.revisions.append(int(self._api.post(MAPS, body).json["metadata"]["resourceVersion"]))


def _named(number: int) -> dict[str, dict[str, str]]:
    return {"metadata": {"name": f"e{number}.example.com"}}


class Monitor:
    """Scrapes of a shard at their moments, and what it had in memory then."""

    def __init__(self, shard: ShardProcess) -> None:
        self._shard, self._began = shard, time.monotonic()
        self.scrapes: list[Scrape] = []
        self.memory_bytes: list[int] = []

    async def run(self, seconds: float) -> None:
        """Scrape for so long."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            await self.scrape()
            await asyncio.sleep(SCRAPE_S)

    async def scrape(self) -> str:
        _, body = await asyncio.to_thread(self._shard.get, "/metrics", "kcp-admin")
        self.scrapes.append(Scrape(int(time.monotonic() - self._began), "atoll", "root", body.decode()))
        self.memory_bytes.append(anonymous_bytes(self._shard.pid))
        return body.decode()

    async def value(self, metric: str) -> float:
        lines = (await self.scrape()).splitlines()
        return next(float(line.split()[-1]) for line in lines if line.startswith(f"{metric} "))

    def fired(self, scrapes: list[Scrape]) -> int:
        """How often the alert began to fire by the last of these scrapes."""
        answer = evaluate(scrapes, scrapes[-1].at_s)
        return sum(each.times for each in answer.fired if each.alert == ALERT)


@asynccontextmanager
async def following(nats: NatsCluster) -> AsyncIterator[StateRows]:
    access, rows = nats.access_of(FOLLOWER), StateRows()
    keys = by_id((access.event_keys or {})["root"])
    name, chosen = follower_consumer(FOLLOWER), all_subjects(STATE, "root")
    consumer = StateConsumer(access, ConsumerOptions("root", chosen, name, keys=lambda: keys), rows)
    task = asyncio.create_task(consumer.run())
    try:
        yield rows
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def subscribed(nats: NatsCluster) -> AsyncIterator[list[events.Event]]:
    """The events of ConfigMaps as they arrive."""
    found: list[events.Event] = []
    file = nats.directory / f"stream-{OPERATOR}.root.json"

    async def read() -> None:
        async for event in events.changes(file, cluster="root", type=ResourceType("", "configmaps", CORE)):
            found.append(event)

    task = asyncio.create_task(read())
    try:
        yield found
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def writing(writer: Writer) -> AsyncIterator[None]:
    task = asyncio.create_task(writer.run())
    try:
        yield
    finally:
        await writer.end(task)


async def is_current(monitor: Monitor) -> bool:
    return await monitor.value("atoll_stream_connected") == 1 and await monitor.value("atoll_stream_lag_events") == 0


def exports(shard: ShardProcess) -> dict[str, int]:
    """The revisions of the APIExports that the shard has."""
    items = Api(shard, "root").get(EXPORTS).json["items"]
    return {each["metadata"]["name"]: int(each["metadata"]["resourceVersion"]) for each in items}


async def follows(rows: StateRows, shard: ShardProcess) -> bool:
    """Whether a follower has the APIExports of the shard."""
    ours = {key.name: row[0] for key, row in rows.rows.items() if key.type.resource == "apiexports"}
    return ours == await asyncio.to_thread(exports, shard)


async def outage(nats: NatsCluster, monitor: Monitor) -> None:
    """Two of three servers are away for ten minutes."""
    for name in SERVERS[:2]:
        await nats.kill(name)
    await monitor.run(WARM_S)
    first, scraped = len(monitor.memory_bytes), len(monitor.scrapes)
    await monitor.run(OUTAGE_S - WARM_S)
    grown = max(monitor.memory_bytes[first:]) - monitor.memory_bytes[first]
    assert grown < GROWTH_BYTES, f"{grown >> 10} KiB"
    assert await monitor.value("atoll_stream_lag_seconds") > OUTAGE_S - ELECTION_S
    lags = [float(number) for each in monitor.scrapes[scraped:] for number in _LAG.findall(each.text or "")]
    assert lags == sorted(lags)
    assert monitor.fired(monitor.scrapes[:scraped]) == 0
    assert monitor.fired(monitor.scrapes) == 1


async def test_ten_minutes_without_quorum_cost_no_write_no_memory_and_no_event(tmp_path: Path) -> None:
    async with NatsCluster(tmp_path, f"--readers={FOLLOWER}", f"--subscribers={OPERATOR}") as nats:
        flags = ("--nats-url", nats.urls[0], "--nats-credentials-file", str(nats.directory / "nats-shard-root.json"))
        async with ShardProcess(tmp_path, *flags, "--stream-replicas", "3") as shard:
            monitor, writer = Monitor(shard), Writer(shard)
            await until(lambda: is_current(monitor), "the shard publishes", BACK_S)
            async with following(nats) as rows, subscribed(nats) as received:
                async with writing(writer):
                    await monitor.run(BEFORE_S)
                    await outage(nats, monitor)
                    for name in SERVERS[:2]:
                        nats.start(name)
                    await until(lambda: is_current(monitor), "all is published, beside writes", BACK_S)
                await until(lambda: is_current(monitor), "the rest is published", BACK_S)
                await until(lambda: follows(rows, shard), "a follower has what the shard has", BACK_S)
                last = writer.revisions[-1]
                await until(_reached(received, last), "a subscriber has the last change", BACK_S)
                assert [each.operation for each in received if each.key is None] == []
                ours = [each.revision for each in received if each.key is not None and each.key.name.startswith("m")]
                assert ours == writer.revisions
            assert monitor.fired(monitor.scrapes) == 1


def _reached(received: list[events.Event], revision: int) -> Callable[[], Awaitable[bool]]:
    async def reached() -> bool:
        return bool(received) and received[-1].revision >= revision

    return reached
