"""Is a workspace harmed while its neighbour writes into a slow webhook, 1,000 times in a few seconds?

The webhook takes 10 ms and is a process of its own; the neighbour has 16 clients. The other workspace has one client
and nothing configured, alone first and then beside the neighbour.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from itertools import islice

from atoll.machinery.meta.objects import encode_json
from harness.clients.api import Api, workspace_under
from loadtest import webhook
from loadtest.bench import Bench, config_map, sound
from loadtest.http import Load, Origin, closed_loop
from loadtest.report import Row

WEBHOOK_S, CLIENTS, WRITES = 0.01, 16, 1000
_FOREVER_S = 60.0


async def run(bench: Bench) -> list[Row]:
    async with bench.server("--egress-allow-cidr", "127.0.0.0/8") as server, webhook.running(WEBHOOK_S) as slow:
        busy, quiet = await asyncio.to_thread(_prepared, Api(server, "root"), slow)
        return await _measure(bench, server.origin, busy, quiet)


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


def _prepared(root: Api, slow: webhook.Webhook) -> tuple[str, str]:
    """Return two workspaces; the first has the webhook."""
    busy, quiet = (workspace_under(root, type_="universal") for _ in range(2))
    api = root.at(busy)
    api.post(webhook.CONFIGURATIONS, slow.configuration())
    api.close()
    return busy, quiet
