"""What does a durable create of a 1 KB object cost, alone and with sixteen clients?

Each answer means that the object is on disk, synced. Objects get generated names and a random value.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator

from atoll.machinery.meta.objects import encode_json
from loadtest.bench import Bench, config_map, sound
from loadtest.http import Load, Origin, closed_loop
from loadtest.report import Row
from loadtest.server import Cost, Server

PATH = "/clusters/root/api/v1/namespaces/default/configmaps"


async def run(bench: Bench) -> list[Row]:
    seconds = bench.seconds(4, 20)
    async with bench.server() as server:
        await _load(server, 16, bench.seconds(1, 1))
        alone, _ = await _load(server, 1, seconds)
        many, cost = await _load(server, 16, seconds)
    spread = f"p50 {many.percentile_ms(0.5):.1f} ms, p99 {many.percentile_ms(0.99):.1f} ms"
    return [
        Row("create, 1 client, p50", alone.percentile_ms(0.5), "ms", 1.5),
        Row("create, 16 clients", many.rate, "/s", 3000, more=True, note=spread),
        Row("  CPU a request", cost.cpu_s / many.answers * 1e6, "us", 250, note=cost.note(many.answers)),
    ]


async def _load(server: Server, connections: int, seconds: float) -> tuple[Load, Cost]:
    origin = server.origin
    with Cost(server) as cost:
        load = await closed_loop(origin, requests(origin), connections, seconds)
    return sound(load), cost


def requests(origin: Origin) -> Iterator[bytes]:
    """Creates without end."""
    while True:
        yield origin.request("POST", PATH, encode_json(config_map("b-", generate=True, salt=secrets.token_hex(8))))
