"""Is a workspace harmed while its neighbour writes into a slow webhook?

The webhook takes 10 ms and is a process of its own; the neighbour has two clients, which leave most of the machine
free, and then sixteen. The other workspace has one client and nothing configured, alone first and then beside the
neighbour. What it waits for is told twice: as the client sees it, with the scheduling of all processes, and as the
server does, from the bytes of a request to its reply.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import msgspec

from atoll.machinery.meta.objects import encode_json
from harness.clients.api import Api, workspace_under
from loadtest import webhook
from loadtest.bench import Bench, config_map, sound
from loadtest.http import Load, Origin, closed_loop
from loadtest.report import Row
from loadtest.server import Server

WEBHOOK_S, WRITES = 0.01, 1000
CLIENTS = (2, 16)
_FOREVER_S = 60.0
_FLAGS = ("--egress-allow-cidr", "127.0.0.0/8", "--log-format", "json")


class Waits(NamedTuple):
    """The 99th percentiles of creates in ms: as their client saw them, and as the server did."""

    client_ms: float
    server_ms: float


class _Line(msgspec.Struct):
    """What is read of a line of the request log."""

    event: str = ""
    cluster: str = ""
    duration_ms: float = 0.0


async def run(bench: Bench) -> list[Row]:
    async with bench.server(*_FLAGS) as server, webhook.running(WEBHOOK_S) as slow:
        busy, quiet = await asyncio.to_thread(_prepared, Api(server, "root"), slow)
        return await _measure(bench, server, busy, quiet)


async def _measure(bench: Bench, server: Server, busy: str, quiet: str) -> list[Row]:
    seconds, origin = bench.seconds(1, 4), server.origin
    await closed_loop(origin, _creates(origin, quiet), 1, 1)
    logged = server.stderr_path.stat().st_size
    load = sound(await closed_loop(origin, _creates(origin, quiet), 1, seconds))
    (cluster,) = _durations_ms(server, logged)
    alone = _waits(server, logged, cluster, load)
    rows = [Row("create alone: p99", alone.client_ms, "ms"), Row("  in the server", alone.server_ms, "ms")]
    for clients in CLIENTS:
        logged = server.stderr_path.stat().st_size
        writes = islice(_creates(origin, busy), bench.size(WRITES // 4, WRITES))
        neighbour = asyncio.create_task(closed_loop(origin, writes, clients, _FOREVER_S))
        load = sound(await _until(neighbour, origin, quiet))
        beside, slow = _waits(server, logged, cluster, load), sound(neighbour.result())
        rows += [
            Row(f"a neighbour of {clients}: p50", slow.percentile_ms(0.5), "ms", note=f"{slow.rate:.0f}/s"),
            Row("  create beside it: p99", beside.client_ms, "ms"),
            Row("  against alone", beside.client_ms / alone.client_ms, "x", 2),
            Row("  in the server, against alone", beside.server_ms / alone.server_ms, "x", 2),
        ]
    return rows


def _waits(server: Server, logged: int, cluster: str, load: Load) -> Waits:
    durations_ms = sorted(_durations_ms(server, logged)[cluster])
    return Waits(load.percentile_ms(0.99), durations_ms[int(len(durations_ms) * 0.99)])


def _durations_ms(server: Server, logged: int) -> dict[str, list[float]]:
    """The durations of writes by logical cluster, from the log behind so many bytes."""
    found: dict[str, list[float]] = {}
    with server.stderr_path.open("rb") as log:
        log.seek(logged)
        for text in log:
            line = msgspec.json.decode(text, type=_Line)
            if line.event == "request":
                found.setdefault(line.cluster, []).append(line.duration_ms)
    return found


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
