"""How many events a second reach 1,000 watchers of one namespace, and how late are they at 50 writes a second?

An event's age is taken from a time that the writer put into the object. The load generator decrypts every event
and is about as dear as the server: the rate is what both reach together, the CPU an event is the server's alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from itertools import count
from typing import cast

from atoll.machinery.client.client import Client
from atoll.machinery.meta.objects import encode_json
from loadtest.bench import CONFIG_MAPS, FILLING, Bench, config_map, percentile
from loadtest.http import Origin, closed_loop, connect
from loadtest.report import Row
from loadtest.server import Cost, Server

PATH = "/clusters/root/api/v1/namespaces/default/configmaps"
STAMP = b'"stamp":"'
MERGE = "application/merge-patch+json"
WRITES_A_SECOND, WRITERS = 50, 32


class Audience:
    """All watchers together: number and age of events."""

    def __init__(self) -> None:
        self.events = 0
        self.ages_s: list[float] = []


class Watcher(asyncio.Protocol):
    """One watch; counts lines."""

    def __init__(self, audience: Audience, request: bytes) -> None:
        self._audience, self._request = audience, request

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        audience = self._audience
        audience.events += data.count(b"}\n")
        at = data.rfind(STAMP)
        if at >= 0 and len(data) > at + 30:
            begin = at + len(STAMP)
            audience.ages_s.append(time.time() - float(data[begin : data.index(b'"', begin)]))


async def run(bench: Bench) -> list[Row]:
    watchers, seconds = bench.size(1000, 1000), bench.seconds(5, 20)
    async with bench.server() as server, server.client() as client:
        for name in ("hot", *map(_name, range(2 * WRITERS))):
            await client.create(CONFIG_MAPS, config_map(name, stamp="0"), "default")
        audience = Audience()
        opened = await _open(server, client, audience, watchers)
        paced = await _paced(server, audience, seconds)
        ages = audience.ages_s
        fast = await _flat_out(server, audience, seconds)
        for transport in opened:
            transport.abort()
    return [
        Row(
            f"watch, {watchers:,} watchers, {WRITES_A_SECOND} writes/s, p50",
            percentile(ages, 0.5) * 1000,
            "ms",
            50,
            note=f"p99 {percentile(ages, 0.99) * 1000:.0f} ms, {paced[0]:,.0f} events/s",
        ),
        Row("  CPU an event", paced[1], "us"),
        Row("  writes as fast as they go", fast[0], "events/s", 90_000, more=True),
        Row("  CPU an event", fast[1], "us"),
    ]


async def _open(server: Server, client: Client, audience: Audience, watchers: int) -> list[asyncio.Transport]:
    found = await client.list(CONFIG_MAPS, "default")
    revision = found["metadata"]["resourceVersion"]
    request = server.origin.request("GET", f"{PATH}?watch=1&resourceVersion={revision}")
    return await connect(server.origin, watchers, lambda: Watcher(audience, request))


async def _paced(server: Server, audience: Audience, seconds: float) -> tuple[float, float]:
    """Events a second and microseconds of CPU an event, at a fixed pace of writes."""
    async with server.client() as client:
        await asyncio.sleep(0.5)
        audience.events, audience.ages_s = 0, []
        began = time.perf_counter()
        with Cost(server) as cost:
            for number in range(max(1, int(seconds * WRITES_A_SECOND))):
                await client.patch(CONFIG_MAPS, "hot", _patch(), "default")
                ahead = began + number / WRITES_A_SECOND - time.perf_counter()
                await asyncio.sleep(max(ahead, 0))
            await _settle(audience)
    return audience.events / cost.wall_s, cost.cpu_s / max(audience.events, 1) * 1e6


async def _flat_out(server: Server, audience: Audience, seconds: float) -> tuple[float, float]:
    """The same with writes in a closed loop of many clients, each object written by one at a time."""
    audience.events = 0
    with Cost(server) as cost:
        await closed_loop(server.origin, _patches(server.origin), WRITERS, seconds)
        await _settle(audience)
    return audience.events / cost.wall_s, cost.cpu_s / max(audience.events, 1) * 1e6


async def _settle(audience: Audience) -> None:
    """Wait until no more events come."""
    seen = -1
    while seen != audience.events:
        seen = audience.events
        await asyncio.sleep(0.1)


def _patch() -> dict[str, object]:
    return {"data": {"x": FILLING, "stamp": f"{time.time():.6f}"}}


def _patches(origin: Origin) -> Iterator[bytes]:
    for number in count():
        yield origin.request("PATCH", f"{PATH}/{_name(number)}", encode_json(_patch()), MERGE)


def _name(number: int) -> str:
    return f"hot-{number % (2 * WRITERS)}"
