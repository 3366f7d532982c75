"""What does a GET of a 1 KB object cost the server, and how many a second does one process answer?

By kcp-admin, whom RBAC lets in: no short cut of system:masters. The chain is measured alone, in this process; a
request over TLS costs the server's process the chain, HTTP, encryption and system calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat

from loadtest.bench import CONFIG_MAPS, Bench, config_map, sound
from loadtest.chain import get_us
from loadtest.http import Load, Origin, closed_loop
from loadtest.report import Row
from loadtest.server import Cost, Server

RATE = 12_000
PATH = "/clusters/root/api/v1/namespaces/default/configmaps/hot"


async def run(bench: Bench) -> list[Row]:
    seconds = bench.seconds(4, 20)
    async with bench.server() as server:
        await prepare(server)
        await _load(server, 16, bench.seconds(1, 1))
        alone, _ = await _load(server, 1, seconds)
        rows = [Row("GET 1 KB, 1 client, p50", alone.percentile_ms(0.5), "ms")]
        if bench.in_process:
            rows.append(Row("GET 1 KB, CPU in the chain", await get_us(bench.place()), "us", 50))
        for connections in (16, 32):
            load, cost = await _load(server, connections, seconds)
            note = f"{_latency(load)} {cost.note(load.answers)}".rstrip()
            rows.extend(
                [
                    Row(f"GET 1 KB, {connections} clients", load.rate, "/s", RATE, more=True),
                    Row("  CPU a request", cost.cpu_s / load.answers * 1e6, "us", 1e6 / RATE, note=note),
                ]
            )
        return rows


async def prepare(server: Server) -> None:
    """Create what is read."""
    async with server.client() as client:
        await client.create(CONFIG_MAPS, config_map("hot"), "default")


def requests(origin: Origin) -> Iterator[bytes]:
    """GETs without end."""
    return repeat(origin.request("GET", PATH))


async def _load(server: Server, connections: int, seconds: float) -> tuple[Load, Cost]:
    origin = server.origin
    with Cost(server) as cost:
        load = await closed_loop(origin, requests(origin), connections, seconds)
    return sound(load), cost


def _latency(load: Load) -> str:
    return f"p50 {load.percentile_ms(0.5):.2f} ms, p99 {load.percentile_ms(0.99):.2f} ms"
