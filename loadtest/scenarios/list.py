"""How long does a LIST of 10,000 objects of 1 KB take one client, and how many MB a second is that?"""

from __future__ import annotations

from itertools import repeat

from atoll.machinery.meta.objects import encode_json
from loadtest.bench import Bench, config_map, sound
from loadtest.http import closed_loop
from loadtest.report import Row
from loadtest.server import Cost, Server

OBJECTS, CLIENTS = 10_000, 32
PATH = "/clusters/root/api/v1/namespaces/default/configmaps"


async def run(bench: Bench) -> list[Row]:
    objects = bench.size(OBJECTS, OBJECTS)
    async with bench.server() as server:
        await _create(server, objects)
        origin = server.origin
        request = origin.request("GET", PATH)
        await closed_loop(origin, repeat(request, 3), 1, 30)
        with Cost(server) as cost:
            load = sound(await closed_loop(origin, repeat(request, bench.size(30, 200)), 1, 60))
    megabytes = load.bytes / load.answers / 1e6
    median = load.percentile_ms(0.5)
    return [
        Row(f"LIST of {objects:,} objects ({megabytes:.1f} MB), p50", median, "ms", 60),
        Row("  throughput", megabytes / median * 1000, "MB/s", 400, more=True),
        Row("  CPU a request", cost.cpu_s / load.answers * 1000, "ms", note=cost.note(load.answers)),
    ]


async def _create(server: Server, objects: int) -> None:
    origin = server.origin
    requests = (origin.request("POST", PATH, encode_json(config_map(f"o-{number:05d}"))) for number in range(objects))
    sound(await closed_loop(origin, requests, CLIENTS, 60))
