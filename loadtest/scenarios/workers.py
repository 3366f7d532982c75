"""What do workers carry: creates and GETs of 1 KB at 32 clients, by one process and by two workers?

The server may use every core there is, and so may the load; so the CPU of each process says more than the rate.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from itertools import repeat

from atoll.machinery.meta.objects import encode_json
from loadtest import processes
from loadtest.bench import CONFIG_MAPS, Bench, config_map, sound
from loadtest.http import Load, Origin, closed_loop
from loadtest.report import Row
from loadtest.server import Cost, Server

PATH = "/clusters/root/api/v1/namespaces/default/configmaps"
CLIENTS, WORKERS = 32, 2
CREATES, GETS = 1.6, 1.8


async def run(bench: Bench) -> list[Row]:
    one = await _measured(bench)
    many = await _measured(bench, "--workers", str(WORKERS))
    rows = []
    for what, budget in (("create", CREATES), ("GET", GETS)):
        (alone, alone_cost), (load, cost) = one[what], many[what]
        note = f"{alone.rate:,.0f}/s by one process"
        rows += [
            Row(f"{what}, {WORKERS} workers over one process", load.rate / alone.rate, "times", budget, True, note),
            Row(
                "  CPU by one process",
                alone_cost.cpu_s / alone.answers * 1e6,
                "us",
                note=alone_cost.note(alone.answers),
            ),
            Row(f"  CPU by {WORKERS} workers", cost.cpu_s / load.answers * 1e6, "us", note=cost.note(load.answers)),
        ]
    return rows


async def _measured(bench: Bench, *flags: str) -> dict[str, tuple[Load, Cost]]:
    seconds = bench.seconds(4, 20)
    async with bench.server(*flags, cores=set(processes.USABLE)) as server:
        async with server.client() as client:
            await client.create(CONFIG_MAPS, config_map("hot"), "default")
        origin = server.origin
        requests = {"create": _creates(origin), "GET": repeat(origin.request("GET", f"{PATH}/hot"))}
        found = {}
        for what, each in requests.items():
            await _load(server, each, bench.seconds(1, 1))
            found[what] = await _load(server, each, seconds)
        return found


async def _load(server: Server, requests: Iterator[bytes], seconds: float) -> tuple[Load, Cost]:
    with Cost(server) as cost:
        load = sound(await closed_loop(server.origin, requests, CLIENTS, seconds))
    return load, cost


def _creates(origin: Origin) -> Iterator[bytes]:
    while True:
        yield origin.request("POST", PATH, encode_json(config_map("w-", generate=True, salt=secrets.token_hex(8))))
