"""How much memory does one workspace more cost, each used once, and what is left after many came and went?

Used: discovery, a write, a watch opened and closed. What counts is memory that no file backs: pages of the store's
file are the kernel's to take back, and are told beside it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import cast

from loadtest import processes
from loadtest.bench import CONFIG_MAPS, WORKSPACES, Bench, config_map
from loadtest.http import connect
from loadtest.ready import Poster, numbered, posters, readiness
from loadtest.report import Row
from loadtest.server import Server

CLIENTS = 8
SETTLE_S = 5


async def run(bench: Bench) -> list[Row]:
    warm, kept, cycles = bench.size(200, 4000), bench.size(600, 10_000), bench.size(600, 50_000)
    async with bench.server() as server, readiness(server) as ready, posters(server, ready, CLIENTS) as clients:
        # Caches fill up to their bounds first; what is asked for is what comes after.
        await _each(clients, numbered("warm", warm), server)
        before = await _idle_memory(server)
        await _each(clients, numbered("kept", kept), server)
        used = await _idle_memory(server)
        await _cycles(clients, iter(numbered("gone", cycles)))
        after = await _idle_memory(server)
    return [
        _row(f"memory a workspace, {kept:,} used once", before, used, kept),
        _row(f"  after {cycles:,} more came and went, each", used, after, cycles),
    ]


def _row(what: str, before: processes.Memory, after: processes.Memory, count: int) -> Row:
    resident = (after.resident - before.resident) / count / 1000
    private = max((after.private - before.private) / count / 1000, 0.001)
    note = f"{resident:.1f} KB with mapped pages; {after.private / 1e6:.0f} MB private in all"
    return Row(what, private, "KB", 10, note=note)


async def _each(clients: list[Poster], names: list[str], server: Server) -> None:
    queue = iter(names)
    await asyncio.gather(*(_use(client, queue, server) for client in clients))


async def _use(client: Poster, names: Iterator[str], server: Server) -> None:
    for name in names:
        _, cluster = await client.make("root", name)
        base = f"/clusters/{cluster}"
        codes = [
            await client.send("GET", f"{base}/apis"),
            await client.send("GET", f"{base}/apis/tenancy.kcp.io/v1alpha1"),
            await client.send("POST", base + CONFIG_MAPS.path("default"), config_map("one")),
        ]
        if codes != [200, 200, 201]:
            raise RuntimeError(f"using a workspace was answered {codes}")
        await _watch_once(server, f"{base}{CONFIG_MAPS.path('default')}?watch=1")


class _Watch(asyncio.Protocol):
    """Opens a watch, and closes it at the first event."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if b'{"type"' in data:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


async def _watch_once(server: Server, path: str) -> None:
    origin = server.origin
    watch = _Watch(origin.request("GET", path))
    await connect(origin, 1, lambda: watch)
    async with asyncio.timeout(10):
        await watch.ended


async def _cycles(clients: list[Poster], names: Iterator[str]) -> None:
    async def work(client: Poster) -> None:
        for name in names:
            await client.make("root", name)
            await client.send("DELETE", WORKSPACES_PATH.format(name))

    await asyncio.gather(*(work(client) for client in clients))


WORKSPACES_PATH = f"/clusters/root{WORKSPACES.path()}/{{}}"


async def _idle_memory(server: Server) -> processes.Memory:
    await asyncio.sleep(SETTLE_S)
    return server.memory()
