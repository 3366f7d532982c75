"""What does a durable merge patch of one field of a 1 KB object cost, with sixteen clients?"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterator

from atoll.machinery.meta.objects import encode_json
from loadtest.bench import Bench, config_map, sound
from loadtest.http import Load, Origin, closed_loop
from loadtest.report import Row
from loadtest.server import Cost, Server

PATH = "/clusters/root/api/v1/namespaces/default/configmaps"
#: Enough that two clients do not meet on one.
OBJECTS, CLIENTS = 128, 16
_MERGE = "application/merge-patch+json"


async def run(bench: Bench) -> list[Row]:
    seconds = bench.seconds(4, 20)
    async with bench.server() as server:
        await prepare(server)
        await _load(server, bench.seconds(1, 1))
        load, cost = await _load(server, seconds)
    note = f"p50 {load.percentile_ms(0.5):.1f} ms, p99 {load.percentile_ms(0.99):.1f} ms"
    return [
        Row(f"merge patch, {CLIENTS} clients", load.rate, "/s", more=True, note=note),
        Row("  CPU a merge patch", cost.cpu_s / load.answers * 1e6, "us", note=cost.note(load.answers)),
    ]


async def prepare(server: Server) -> None:
    """Create what is patched."""
    origin = server.origin
    bodies = (encode_json(config_map(f"p-{number:03d}")) for number in range(OBJECTS))
    sound(await closed_loop(origin, (origin.request("POST", PATH, body) for body in bodies), CLIENTS, 60))


async def _load(server: Server, seconds: float) -> tuple[Load, Cost]:
    origin = server.origin
    with Cost(server) as cost:
        load = await closed_loop(origin, requests(origin), CLIENTS, seconds)
    return sound(load), cost


def requests(origin: Origin) -> Iterator[bytes]:
    """Merge patches without end."""
    for number in itertools.cycle(range(OBJECTS)):
        body = encode_json({"data": {"salt": secrets.token_hex(8)}})
        yield origin.request("PATCH", f"{PATH}/p-{number:03d}", body, _MERGE)
