"""How many home workspaces a second are made on first use, what does one cost, and does a full shard start as fast?

Each user asks for `workspaces/~` once, as shard-admin lends the name. A home that is there is found without a search.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator

from loadtest import processes
from loadtest.bench import Bench, sound
from loadtest.http import Load, Origin, closed_loop
from loadtest.ready import numbered
from loadtest.report import Row
from loadtest.server import Cost, Server

HOME = "/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces/~"
CLIENTS, LIMIT_S = 8, 3000.0


async def run(bench: Bench) -> list[Row]:
    warm, count, again = bench.size(200, 2000), bench.size(1000, 100_000), bench.size(1000, 10_000)
    place = bench.place()
    try:
        server = Server(place, processes.cores()[0])
        async with server:
            await server.free_children()
            await list_homes(server, numbered("warm", warm))
            before, users = server.memory(), numbered("user", count)
            with Cost(server) as making:
                made = await list_homes(server, users)
            after = server.memory()
            found = await list_homes(server, users[:again])
        began = time.perf_counter()
        async with server:
            started = time.perf_counter() - began
            await server.free_children()
            sound(await list_homes(server, users[-again:]))
            restarted = server.memory()
    finally:
        shutil.rmtree(place, ignore_errors=True)
    note = f"p50 {made.percentile_ms(0.5):.0f} ms, p99 {made.percentile_ms(0.99):.0f} ms"
    private = (after.private - before.private) / count / 1000
    mapped = f"{before.private / 1e6:.0f} MB before, {after.private / 1e6:.0f} MB after, without mapped pages"
    return [
        Row(f"homes made on first use, {CLIENTS} clients, {count:,}", made.rate, "/s", 200, more=True, note=note),
        Row("  CPU a home", making.cpu_s / count * 1000, "ms", note=making.note(count)),
        Row("  memory a home", max(private, 0.001), "KB", 10, note=mapped),
        Row("  found again", found.rate, "/s", note=f"p50 {found.percentile_ms(0.5):.1f} ms"),
        Row("  restart to /readyz", started, "s", 2.5, note=f"{restarted.private / 1e6:.0f} MB after {again:,} used"),
    ]


async def list_homes(server: Server, users: list[str]) -> Load:
    """Ask for the homes of some users. Raises RuntimeError unless each was answered."""
    origin = master(server)
    load = sound(await closed_loop(origin, requests(origin, users), CLIENTS, LIMIT_S))
    if load.answers != len(users):
        raise RuntimeError(f"{load.answers} of {len(users)} homes were answered in time")
    return load


def master(server: Server) -> Origin:
    """Return where shard-admin, who lends names, sends requests."""
    origin = server.origin
    return Origin(origin.host, origin.port, origin.tls, server.token("shard-admin"))


def requests(origin: Origin, users: list[str]) -> Iterator[bytes]:
    """Yield a request for the home of each user."""
    for user in users:
        lent = f"Impersonate-User: {user}\r\nImpersonate-Group: system:authenticated\r\n"
        yield origin.request("GET", HOME, more=lent)
