"""Part of the scenario `edgescale`: what simulated edges cost the center, and how it bears those that come and go."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from atoll.machinery.client.client import Client
from atoll.machinery.client.kubeconfig import Target
from atoll.machinery.meta.objects import Object
from loadtest import processes
from loadtest.bench import CONFIG_MAPS, Bench, percentile
from loadtest.edge_fleet import PATIENCE_S
from loadtest.edge_processes import Fleet
from loadtest.edge_site import EdgeServer, arrivals
from loadtest.edge_syncer import NAMESPACE
from loadtest.edge_worker import Cut, CutOff, Edited, Flap, Full, Join, Passed
from loadtest.report import Row

#: Label and first part of the names of all objects that are placed.
NAME, HOUR_S = "scale", 3600.0
#: Seconds until what was done has been reported.
SETTLE_S = 60.0
#: How many seconds rows may take that are given in any case: until all edges know that they are cut off, their return,
#: and latencies.
CUT_S, RETURN_S, LATENCIES_S = 300.0, 600.0, 240.0
#: Parts of a quiet time.
SLICES = 16


class Sizes(NamedTuple):
    """How many edges there are, objects at each, and Locations to select from."""

    edges: int
    objects: int
    locations: int

    @property
    def copies(self) -> int:
        return self.edges * self.objects

    @property
    def patience_s(self) -> float:
        """How long any part may take."""
        return max(PATIENCE_S, self.edges * 0.3)


def has_data(data: Mapping[str, str], found: Object) -> bool:
    """Whether a ConfigMap has these values."""
    return data.items() <= (found.get("data") or {}).items()


async def with_edges(bench: Bench, server: EdgeServer, workload: Client, edges: Fleet, sizes: Sizes) -> None:
    """Start the edges, leave them alone, then let some flap."""
    # Until processes have returned freed memory.
    window_s = bench.seconds(160, 180)
    idle = await _spent(server, window_s)
    full = Full(sizes.objects + 1)
    began = time.perf_counter()
    await edges.start(0, full)
    # What the first edges make once is no cost of an edge.
    before, first = _private(server), edges.started
    await edges.start(1, full)
    synced_s = time.perf_counter() - began
    what = f"{sizes.copies:,} objects to {sizes.edges:,} edges"
    bench.add(Row(what, edges.full * sizes.objects / synced_s, "/s", note=_left_behind(edges.full, sizes)))
    await asyncio.sleep(bench.seconds(SETTLE_S, SETTLE_S))
    passed = await edges.ask(Passed())
    busy = await _spent(server, window_s)
    passed, kept = await edges.ask(Passed()) - passed, _private(server) - before
    each = edges.started - first
    parts = ", ".join(f"{name} {size / each / 1000:.0f}" for name, size in kept.most_common(4))
    cores = max(percentile(busy, 0.25) - percentile(idle, 0.25), 0.0) * SLICES / window_s / sizes.edges
    spent = f"lower quartile of {SLICES} parts; in all {sum(busy):.1f} s, {sum(idle):.1f} s without edges"
    bench.add(
        Row("a quiet edge: memory of the center", kept.total() / each / 1000, "KB", 150, note=parts),
        Row("  CPU of the center", cores * 1e6, "us/s", 50, note=spent),
        Row("  traffic of an hour", passed * HOUR_S / window_s / sizes.edges / 1000, "KB", 300),
    )
    bench.add(await _returned(workload, edges, sizes))
    count = bench.size(20, 60)
    quiet = await _latencies(workload, edges.last, count, "quiet")
    bench.add(Row(f"a change in the workspace to applied, p50 of {len(quiet)}", percentile(quiet, 0.5), "ms"))
    flapping = await edges.ask(Flap(10))
    beside = await _latencies(workload, edges.last, count, "beside")
    await edges.ask(Flap(0))
    what, most = f"  while {flapping} edges flap, p50 of {len(beside)}", 2 * percentile(quiet, 0.5)
    bench.add(Row(what, percentile(beside, 0.5), "ms", most))


def _left_behind(count: int, sizes: Sizes) -> str:
    """How many it is of, if not of all."""
    return "" if count >= sizes.edges else f"{count:,} of them, then the bound was reached"


async def _returned(workload: Client, edges: Fleet, sizes: Sizes) -> Row:
    """Cut all links until each edge knows, edit an object, join them; how long it is until all have the edit.

    A bound that passes meanwhile is the time, and the note says of how many edges it is.
    """
    await edges.ask(Cut())
    await edges.until(CutOff(), sizes.edges, CUT_S)
    passed = await edges.ask(Passed())
    await workload.patch(CONFIG_MAPS, f"{NAME}-0", {"data": {"returned": "1"}}, NAMESPACE)
    began = time.perf_counter()
    await edges.ask(Join())
    count = await edges.until(Edited(f"{NAME}-0", "returned", "1"), edges.full, RETURN_S)
    took_s, passed = time.perf_counter() - began, await edges.ask(Passed()) - passed
    note = f"{_left_behind(count, sizes)} {passed / sizes.edges / 1000:.1f} KB each"
    return Row(f"{sizes.edges:,} edges back at once, until all have an edit", took_s, "s", 60, note=note.strip())


def _private(server: EdgeServer) -> Counter[str]:
    """Bytes that no file backs, by process."""
    found: Counter[str] = Counter()
    for pid in server.all_processes:
        found[processes.name(pid)] += processes.memory([pid]).private
    return found


async def _spent(server: EdgeServer, seconds: float) -> list[float]:
    """CPU seconds of the center while nothing is done, of each of SLICES parts of the time.

    By their lower quartile the audit of streams every ten minutes, which reads for a minute what was written in hours,
    is no cost of a quiet edge.
    """
    found, before = [], _cpu_s(server)
    for _ in range(SLICES):
        await asyncio.sleep(seconds / SLICES)
        now = _cpu_s(server)
        found.append(now - before)
        before = now
    return found


def _cpu_s(server: EdgeServer) -> float:
    return sum(sum(processes.cpu_of_tree(pid).values()) for pid in (server.pid, *server.proxies))


async def _latencies(workload: Client, target: Target, count: int, key: str) -> list[float]:
    """Milliseconds from an edit in the workspace until it is applied at one edge; fewer when the bound is reached."""
    found: list[float] = []
    with suppress(TimeoutError):
        async with asyncio.timeout(LATENCIES_S), Client(target) as cluster, arrivals(cluster, CONFIG_MAPS) as seen:
            for number in range(count):
                data = {key: str(number)}
                applied = seen.expect(f"{NAME}-0", partial(has_data, data))
                began = time.perf_counter()
                await workload.patch(CONFIG_MAPS, f"{NAME}-0", {"data": data}, NAMESPACE)
                found.append((await applied - began) * 1000)
    return found
