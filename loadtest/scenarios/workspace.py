"""How long from the POST of a workspace until it is Ready, and how many a second can be made, flat or deep?

Flat: all are children of one workspace. Deep: chains, each the child of the one before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from loadtest.bench import Bench, percentile
from loadtest.ready import Poster, check, numbered, posters, readiness
from loadtest.report import Row
from loadtest.server import Cost

CLIENTS, DEPTH = 8, 10
BUDGET_MS, BUDGET_RATE = 15, 200


async def run(bench: Bench) -> list[Row]:
    alone, many = bench.size(60, 300), bench.size(600, 4000)
    async with bench.server() as server, readiness(server) as ready, posters(server, ready, CLIENTS) as clients:
        times = [await clients[0].make("root", name) for name in numbered("one", alone)]
        await check(server, times[0][1])
        bottom = await _bottom(clients[0], numbered("low", 1)[0])
        below = [await clients[0].make(bottom, name) for name in numbered("end", alone)]
        await check(server, below[0][1])
        with Cost(server) as flat:
            names = iter(numbered("flat", many))
            spread = await asyncio.gather(*(_flat(client, names) for client in clients))
        with Cost(server) as deep:
            chains = numbered("deep", many // DEPTH)
            waiting = iter(chains)
            await asyncio.gather(*(_deep(client, waiting) for client in clients))
    took = [seconds for some in spread for seconds in some]
    made = len(chains) * DEPTH
    note = f"p50 {percentile(took, 0.5) * 1000:.0f} ms, p99 {percentile(took, 0.99) * 1000:.0f} ms"
    return [
        _alone("workspace, POST to Ready, 1 client, p50", times),
        _alone(f"  {DEPTH} deep", below),
        Row(f"workspaces flat, {CLIENTS} clients", many / flat.wall_s, "/s", BUDGET_RATE, more=True, note=note),
        Row("  CPU a workspace", flat.cpu_s / many * 1000, "ms", note=flat.note(many)),
        Row(f"workspaces {DEPTH} deep, {CLIENTS} clients", made / deep.wall_s, "/s", BUDGET_RATE, more=True),
        Row("  CPU a workspace", deep.cpu_s / made * 1000, "ms", note=deep.note(made)),
    ]


def _alone(what: str, times: list[tuple[float, str]]) -> Row:
    took = [seconds * 1000 for seconds, _ in times]
    return Row(what, percentile(took, 0.5), "ms", BUDGET_MS, note=f"p99 {percentile(took, 0.99):.0f} ms")


async def _bottom(client: Poster, chain: str) -> str:
    """A chain of workspaces without its last; return the cluster in which that is created."""
    parent = "root"
    for level in range(DEPTH - 1):
        _, parent = await client.make(parent, f"{chain}-{level}")
    return parent


async def _flat(client: Poster, names: Iterator[str]) -> list[float]:
    return [(await client.make("root", name))[0] for name in names]


async def _deep(client: Poster, chains: Iterator[str]) -> None:
    for chain in chains:
        parent = "root"
        for level in range(DEPTH):
            _, parent = await client.make(parent, f"{chain}-{level}")
