"""Is a workspace harmed while its neighbour writes into a slow webhook, 1,000 times in a few seconds?

The webhook takes 10 ms and is a process of its own; the neighbour has 16 clients. The other workspace has one client
and nothing configured, alone first and then beside the neighbour.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import secrets
import time
from collections.abc import Iterator
from itertools import islice
from multiprocessing.connection import Connection

from atoll.machinery.meta.objects import Object, encode_json
from harness.clients.api import Api, workspace_under
from harness.servers.stand_ins.admission import AdmissionServer, allow, configuration, configurations
from loadtest.bench import Bench, config_map, sound
from loadtest.http import Load, Origin, closed_loop
from loadtest.report import Row

WEBHOOK_S, CLIENTS, WRITES = 0.01, 16, 1000
_FOREVER_S = 60.0


async def run(bench: Bench) -> list[Row]:
    async with bench.server("--egress-allow-cidr", "127.0.0.0/8") as server:
        ours, theirs = multiprocessing.Pipe()
        webhook = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs,))
        webhook.start()
        try:
            busy, quiet = await asyncio.to_thread(_prepared, Api(server, "root"), ours)
            return await _measure(bench, server.origin, busy, quiet)
        finally:
            webhook.terminate()
            await asyncio.to_thread(webhook.join)


async def _measure(bench: Bench, origin: Origin, busy: str, quiet: str) -> list[Row]:
    seconds = bench.seconds(1, 4)
    await closed_loop(origin, _creates(origin, quiet), 1, 1)
    alone = sound(await closed_loop(origin, _creates(origin, quiet), 1, seconds))
    writes = islice(_creates(origin, busy), bench.size(WRITES // 4, WRITES))
    neighbour = asyncio.create_task(closed_loop(origin, writes, CLIENTS, _FOREVER_S))
    beside = sound(await _until(neighbour, origin, quiet))
    slow = sound(neighbour.result())
    ratio = beside.percentile_ms(0.99) / alone.percentile_ms(0.99)
    return [
        Row("the neighbour, webhook of 10 ms: p50", slow.percentile_ms(0.5), "ms", note=f"{slow.rate:.0f}/s"),
        Row("create alone: p99", alone.percentile_ms(0.99), "ms"),
        Row("create beside the neighbour: p99", beside.percentile_ms(0.99), "ms"),
        Row("  against alone", ratio, "x", 2),
    ]


async def _until(other: asyncio.Task[Load], origin: Origin, cluster: str) -> Load:
    """Create with one client until the other load ends."""

    def requests() -> Iterator[bytes]:
        for request in _creates(origin, cluster):
            if other.done():
                return
            yield request

    return await closed_loop(origin, requests(), 1, _FOREVER_S)


def _creates(origin: Origin, cluster: str) -> Iterator[bytes]:
    path = f"/clusters/{cluster}/api/v1/namespaces/default/configmaps"
    while True:
        yield origin.request("POST", path, encode_json(config_map("b-", generate=True, salt=secrets.token_hex(8))))


def _prepared(root: Api, served: Connection) -> tuple[str, str]:
    """Return two workspaces; the first has the webhook."""
    hooks: Object = served.recv()
    busy, quiet = (workspace_under(root, type_="universal") for _ in range(2))
    api = root.at(busy)
    api.post(configurations("Validating"), hooks)
    api.close()
    return busy, quiet


def _serve(output: Connection) -> None:
    """Serve the webhook in a process of its own, until that is ended; tell its configuration."""
    with AdmissionServer({"/slow": _slow}) as server:
        output.send(configuration("Validating", "slow", server.webhook("/slow")))
        time.sleep(10 * _FOREVER_S)


def _slow(review: Object) -> Object:
    time.sleep(WEBHOOK_S)
    return allow(review)
