"""Part of the scenario `edgescale`: what simulated edges cost the center, and how it bears those that come and go."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import NamedTuple

from atoll.machinery.client.client import Client
from atoll.machinery.meta.objects import Object
from atoll.machinery.process.tasks import stop
from harness.waits import until
from loadtest import processes
from loadtest.bench import CONFIG_MAPS, Bench, percentile
from loadtest.edge_fleet import PATIENCE_S, Edge
from loadtest.edge_site import EdgeServer, arrivals
from loadtest.edge_syncer import NAMESPACE, CountingRelay
from loadtest.report import Row

#: Label and first part of the names of all objects that are placed.
NAME, HOUR_S = "scale", 3600.0
#: Seconds until what was done has been reported.
SETTLE_S = 3.0


class Sizes(NamedTuple):
    """How many edges there are, objects at each, and Locations to select from."""

    edges: int
    objects: int
    locations: int

    @property
    def copies(self) -> int:
        return self.edges * self.objects


def has_data(data: Mapping[str, str], found: Object) -> bool:
    """Whether a ConfigMap has these values."""
    return data.items() <= (found.get("data") or {}).items()


async def with_edges(
    bench: Bench, server: EdgeServer, workload: Client, edges: list[Edge], relay: CountingRelay, sizes: Sizes
) -> list[Row]:
    """Start the edges, leave them alone, then let some flap."""
    # Until processes have returned freed memory.
    window_s, half = bench.seconds(160, 180), max(len(edges) // 2, 1)
    idle_s = await _spent(server, window_s)
    began = time.perf_counter()
    await _started(edges[:half], sizes)
    # What the first edges make once is no cost of an edge.
    before = _private(server)
    await _started(edges[half:], sizes)
    synced_s = time.perf_counter() - began
    await asyncio.sleep(SETTLE_S)
    passed = relay.passed
    busy_s = await _spent(server, window_s)
    passed, kept = relay.passed - passed, _private(server) - before
    each = len(edges) - half
    parts = ", ".join(f"{name} {size / each / 1000:.0f}" for name, size in kept.most_common(4))
    cores = max(busy_s - idle_s, 0.0) / window_s / sizes.edges
    returned_s, asked = await _returned(workload, edges, relay)
    steady, flapping = edges[-1], edges[: max(sizes.edges // 10, 1)]
    count = bench.size(20, 60)
    quiet = await _latencies(workload, steady, count, "quiet")
    async with _flapping(flapping):
        beside = await _latencies(workload, steady, count, "beside")
    return [
        Row(f"{sizes.copies:,} objects to {sizes.edges:,} edges", sizes.copies / synced_s, "/s"),
        Row("a quiet edge: memory of the center", kept.total() / each / 1000, "KB", 150, note=parts),
        Row("  CPU of the center", cores * 1e6, "us/s", 50, note=f"{busy_s:.1f} s, {idle_s:.1f} s without edges"),
        Row("  traffic of an hour", passed * HOUR_S / window_s / sizes.edges / 1000, "KB", 300),
        Row(f"{sizes.edges:,} edges back at once, until all have an edit", returned_s, "s", 60, note=asked),
        Row("a change in the workspace to applied, p50", percentile(quiet, 0.5), "ms"),
        Row(f"  while {len(flapping)} edges flap", percentile(beside, 0.5), "ms", 2 * percentile(quiet, 0.5)),
    ]


async def _returned(workload: Client, edges: list[Edge], relay: CountingRelay) -> tuple[float, str]:
    """Cut all links until each edge knows, edit an object, join them; return the seconds until all have the edit."""
    await relay.cut()
    await until(lambda: _all(bool(edge.failure) for edge in edges), "all edges are cut off", PATIENCE_S)
    passed = relay.passed
    await workload.patch(CONFIG_MAPS, f"{NAME}-0", {"data": {"returned": "1"}}, NAMESPACE)
    began, relay.is_cut = time.perf_counter(), False
    await until(lambda: _all(edge.data(f"{NAME}-0").get("returned") == "1" for edge in edges), "the edit", PATIENCE_S)
    return time.perf_counter() - began, f"{(relay.passed - passed) / len(edges) / 1000:.1f} KB each"


async def _all(found: Iterable[bool]) -> bool:
    return all(found)


async def _started(edges: list[Edge], sizes: Sizes) -> None:
    await asyncio.gather(*(edge.start() for edge in edges))
    await until(lambda: _all(edge.has(sizes.objects + 1) for edge in edges), "edges have all objects", PATIENCE_S)


def _private(server: EdgeServer) -> Counter[str]:
    """Bytes that no file backs, by process."""
    found: Counter[str] = Counter()
    for pid in processes.tree(server.pid):
        found[processes.name(pid)] += processes.memory([pid]).private
    return found


async def _spent(server: EdgeServer, seconds: float) -> float:
    """CPU seconds of the center while nothing is done."""
    before = sum(processes.cpu_of_tree(server.pid).values())
    await asyncio.sleep(seconds)
    return sum(processes.cpu_of_tree(server.pid).values()) - before


async def _latencies(workload: Client, edge: Edge, count: int, key: str) -> list[float]:
    """Milliseconds from an edit in the workspace until it is applied at one edge."""
    found = []
    async with Client(edge.cluster) as cluster, arrivals(cluster, CONFIG_MAPS) as seen:
        for number in range(count):
            data = {key: str(number)}
            applied = seen.expect(f"{NAME}-0", partial(has_data, data))
            began = time.perf_counter()
            await workload.patch(CONFIG_MAPS, f"{NAME}-0", {"data": data}, NAMESPACE)
            async with asyncio.timeout(PATIENCE_S):
                found.append((await applied - began) * 1000)
    return found


@asynccontextmanager
async def _flapping(edges: list[Edge]) -> AsyncIterator[None]:
    """Stop and start edges again and again while the block runs."""

    async def flap(edge: Edge) -> None:
        while True:
            await edge.stop()
            await edge.start()
            await asyncio.sleep(SETTLE_S)

    tasks = [asyncio.create_task(flap(edge)) for edge in edges]
    try:
        yield
    finally:
        for task in tasks:
            await stop(task)
