"""How long from the POST of an APIBinding until its API is served, and what do hundreds of exports with thousands of
bindings cost in memory?

Served: a list of the bound resource in the consumer's workspace answers 200. What counts of memory is what no file
backs; the workspaces are there before, and what the server keeps of recent changes is full.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from itertools import cycle

from atoll.machinery.meta.objects import Object
from harness.clients.exports import BINDINGS, EXPORTS, SCHEMAS, binding, export, schema_of
from loadtest import processes
from loadtest.bench import CONFIG_MAPS, Bench, config_map, percentile
from loadtest.ready import Poster, posters, readiness
from loadtest.report import Row
from loadtest.scenarios.definitions import GROUP, RING_BYTES, crd
from loadtest.server import Cost, Server

CLIENTS, PER_PROVIDER, PER_CONSUMER = 4, 50, 10
SCHEMA_BYTES, FILLING_BYTES = 5_000, 50_000
SETTLE_S, LIMIT_S = 3, 60


async def run(bench: Bench) -> list[Row]:
    exports = max(PER_PROVIDER, bench.size(50, 500))
    bindings, alone = max(PER_CONSUMER, bench.size(500, 10_000)), bench.size(60, 300)
    async with bench.server() as server, readiness(server) as ready, posters(server, ready, CLIENTS) as clients:
        first, *_ = clients
        providers = [(await first.make("root", f"provider-{index}"))[1] for index in range(exports // PER_PROVIDER)]
        consumers = await _workspaces(clients, "consumer", bindings // PER_CONSUMER)
        singles = await _workspaces(clients, "single", alone)
        await _fill(first, singles[0])
        before = await _idle_rss(server)
        offered = list(_offers(providers))
        for provider, plural in offered:
            await _offer(first, provider, plural)
        exported = await _idle_rss(server)
        times = [await _bound(first, cluster, offer) for cluster, offer in zip(singles, cycle(offered), strict=False)]
        wanted = [
            (cluster, offered[(at * PER_CONSUMER + step) % exports])
            for at, cluster in enumerate(consumers)
            for step in range(PER_CONSUMER)
        ]
        with Cost(server) as cost:
            await _all_bound(clients, wanted)
        after = await _idle_rss(server)
    took = [seconds * 1000 for seconds in times]
    return [
        Row(
            "APIBinding, POST to served, 1 client, p50",
            percentile(took, 0.5),
            "ms",
            30,
            note=f"p99 {percentile(took, 0.99):.0f} ms",
        ),
        Row(
            f"  memory of {exports} exports with {bindings:,} bindings",
            max((after - before) / 1e6, 0.001),
            "MB",
            100,
            note=f"exports {(exported - before) / 1e6:.1f} MB",
        ),
        Row(f"  bindings bound, {CLIENTS} clients", len(wanted) / cost.wall_s, "/s"),
        Row("  CPU a binding", cost.cpu_s / len(wanted) * 1000, "ms", note=cost.note(len(wanted))),
    ]


def _offers(providers: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Clusters and plurals of all exports, which are called like their resource."""
    for at, provider in enumerate(providers):
        for step in range(PER_PROVIDER):
            yield provider, f"kind{at * PER_PROVIDER + step}s"


async def _workspaces(clients: Sequence[Poster], prefix: str, count: int) -> list[str]:
    names = iter(f"{prefix}-{index}" for index in range(count))

    async def make(client: Poster) -> list[str]:
        return [(await client.make("root", name))[1] for name in names]

    return [cluster for some in await asyncio.gather(*map(make, clients)) for cluster in some]


async def _fill(client: Poster, cluster: str) -> None:
    """Fill what the server keeps of recent changes, whatever they are about, up to its bound."""
    for index in range(RING_BYTES // FILLING_BYTES + 1):
        body = config_map(f"large-{index}", filling="z" * FILLING_BYTES)
        await _sent(client, f"/clusters/{cluster}{CONFIG_MAPS.path('default')}", body)


async def _offer(client: Poster, provider: str, plural: str) -> None:
    schema = schema_of(crd(plural, SCHEMA_BYTES))
    await _sent(client, f"/clusters/{provider}{SCHEMAS}", schema)
    await _sent(client, f"/clusters/{provider}{EXPORTS}", export(plural, schema))


async def _sent(client: Poster, path: str, body: Object) -> None:
    status = await client.send("POST", path, body)
    if status != 201:
        raise RuntimeError(f"{path} was answered {status}")


async def _bound(client: Poster, cluster: str, offer: tuple[str, str]) -> float:
    """Bind, and wait until it is served: seconds."""
    provider, plural = offer
    began = time.perf_counter()
    await _sent(client, f"/clusters/{cluster}{BINDINGS}", binding(provider, plural))
    await _served(client, cluster, plural)
    return time.perf_counter() - began


async def _served(client: Poster, cluster: str, plural: str) -> None:
    """Return when a list answers."""
    began = time.perf_counter()
    while await client.send("GET", f"/clusters/{cluster}/apis/{GROUP}/v1/{plural}") != 200:
        if time.perf_counter() - began > LIMIT_S:
            raise RuntimeError(f"not served after {LIMIT_S} s")


async def _all_bound(clients: Sequence[Poster], wanted: Sequence[tuple[str, tuple[str, str]]]) -> None:
    """Bind all, and wait for the last of each client to be served."""
    rest = iter(wanted)

    async def work(client: Poster) -> None:
        last = None
        for cluster, (provider, plural) in rest:
            await _sent(client, f"/clusters/{cluster}{BINDINGS}", binding(provider, plural))
            last = cluster, plural
        if last is not None:
            await _served(client, *last)

    await asyncio.gather(*map(work, clients))


async def _idle_rss(server: Server) -> float:
    await asyncio.sleep(SETTLE_S)
    return processes.memory([server.pid]).private
