"""What do Kubernetes' own kinds cost: the first binding, a workspace bound to them, and a LIST of Pods beside one of
ConfigMaps?

Nobody binds them before, so that the first binding loads them. What counts of memory is what no file backs, as in
`memory`, after caches are full. A quick run does not wait until the server has dropped recent changes and returned what
they took, so that its figure holds 18 KB of these.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import repeat

from atoll.machinery.meta.objects import Object, encode_json
from harness.clients.api import Api
from harness.clients.loop_probe import LoopProbe
from harness.data.kubernetes_objects import PODS, pod
from loadtest import processes
from loadtest.bench import CONFIG_MAPS, Bench, config_map, sound
from loadtest.http import Load, closed_loop
from loadtest.ready import Poster, numbered, posters, readiness
from loadtest.report import Row
from loadtest.scenarios.deployments import CLIENTS, POD_SPEC, TYPE
from loadtest.server import Cost, Server

MAKERS, SETTLE_S = 8, 4
#: Workspaces that fill caches, and the time after which a server has returned what a peak took (`freed_memory`).
FILLING, RETURNED_S = 300, 170


async def run(bench: Bench) -> list[Row]:
    objects, kept = bench.size(2_500, 10_000), bench.size(400, 10_000)
    async with bench.server() as server, readiness(server) as ready:
        async with posters(server, ready, 1) as (client,):
            _, elsewhere = await client.make("root", "before")
            await asyncio.sleep(SETTLE_S)
            with LoopProbe(Api(server, "root"), server.pid) as probe, Cost(server) as first:
                _, cluster = await client.make("root", "first", TYPE)
        pods = f"/clusters/{cluster}{PODS}"
        listed = await _listed(server, pods, lambda number: pod(f"p-{number:05d}", **POD_SPEC), objects)
        plain_list = await _listed(server, f"/clusters/{elsewhere}{CONFIG_MAPS.path('default')}", _numbered, objects)
        async with posters(server, ready, MAKERS) as clients:
            memory = await _memory(
                server, clients, bench.size(FILLING, FILLING), kept, bench.seconds(SETTLE_S, RETURNED_S)
            )
    return [
        Row("first binding of Kubernetes' kinds, CPU", first.cpu_s * 1000, "ms", 300, note=first.note(1)),
        Row("  the longest answer of /livez beside it, in CPU of the process", probe.worst_s * 1000, "ms", 20),
        Row(f"LIST of {objects:,} Pods", listed, "MB/s", 400, more=True, note=f"ConfigMaps: {plain_list:.0f}"),
        Row(f"memory a workspace of type {TYPE}, {kept:,} made", memory, "KB", 10),
    ]


def _numbered(number: int) -> Object:
    return config_map(f"o-{number:05d}")


async def _listed(server: Server, path: str, make: Callable[[int], Object], count: int) -> float:
    """Return how many megabytes of a list leave in a second."""
    origin = server.origin
    requests = (origin.request("POST", path, encode_json(make(number))) for number in range(count))
    sound(await closed_loop(origin, requests, CLIENTS, 120))
    request = origin.request("GET", path)
    await closed_loop(origin, repeat(request, 3), 1, 30)
    load: Load = sound(await closed_loop(origin, repeat(request, 10), 1, 60))
    return load.bytes / load.answers / load.percentile_ms(0.5) / 1000


async def _memory(server: Server, clients: list[Poster], filling: int, count: int, settle_s: float) -> float:
    """Return the KB of a workspace more, after some that fill caches."""
    await _make(clients, filling)
    before = await _private(server, settle_s)
    await _make(clients, count)
    return max((await _private(server, settle_s) - before) / count / 1000, 0.001)


async def _make(clients: list[Poster], count: int) -> None:
    names = iter(numbered(TYPE, count))

    async def work(client: Poster) -> None:
        for name in names:
            await client.make("root", name, TYPE)

    await asyncio.gather(*map(work, clients))


async def _private(server: Server, settle_s: float) -> int:
    await asyncio.sleep(settle_s)
    return processes.memory([server.pid]).private
