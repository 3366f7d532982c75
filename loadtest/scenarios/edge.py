"""How long does a change take from a workspace to an edge cluster and back, and what does a quiet edge cost?

Edge clusters are workspaces of the same server, and a kube-apiserver where its program is built. A quiet hour is
extrapolated from what was measured; polling is computed from the sizes of the same lists.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from atoll.machinery.client.resource import WORKSPACES
from harness.servers.edge_cluster import EdgeCluster
from harness.waits import until
from loadtest import processes
from loadtest.bench import Bench, percentile, workspace
from loadtest.edge_latency import filling, latencies
from loadtest.edge_quiet import quiet
from loadtest.edge_site import LIMIT_S, EdgeServer
from loadtest.edge_syncer import workspace_kubeconfig
from loadtest.report import Row

SETTLE_S = 3.0


async def run(bench: Bench) -> list[Row]:
    rows = await _starts(bench)
    async with _served(bench) as server:
        rows += await _idle(server)
        edge = workspace_kubeconfig(server, await _edge(server), bench.place() / "edge.kubeconfig")
        rows += await latencies(bench, server, edge, "workspace", 100)
        rows += await _plain(bench, server)
        rows += await filling(bench, server)
    async with _served(bench, "--audit-log-path", str(bench.place() / "audit.log")) as server:
        edge = workspace_kubeconfig(server, cluster := await _edge(server), bench.place() / "edge.kubeconfig")
        rows += await quiet(bench, server, edge, cluster)
    return rows


@asynccontextmanager
async def _served(bench: Bench, *flags: str) -> AsyncIterator[EdgeServer]:
    server = EdgeServer(bench.place(), *flags)
    try:
        async with server:
            await server.free_children()
            await server.controllers()
            yield server
    finally:
        shutil.rmtree(server.root.parent, ignore_errors=True)


async def _starts(bench: Bench) -> list[Row]:
    first: list[float] = []
    again: list[float] = []
    # The first one compiles.
    for _ in range(1 + bench.size(3, 5)):
        # Three processes start side by side, on whatever cores there are.
        server = EdgeServer(bench.place(), cores=set(processes.USABLE))
        try:
            for found in (first, again):
                began = time.perf_counter()
                async with server:
                    await server.controllers()
                    found.append(time.perf_counter() - began)
        finally:
            shutil.rmtree(server.root.parent, ignore_errors=True)
    return [
        Row("start --edge on all cores to controllers that work, empty", percentile(first[1:], 0.5), "s", 3),
        Row("  again", percentile(again[1:], 0.5), "s", 3),
    ]


async def _idle(server: EdgeServer) -> list[Row]:
    controllers = await server.controllers()
    await asyncio.sleep(SETTLE_S)
    found = processes.memory([controllers])
    note = f"{found.private / 1e6:.0f} MB not backed by files"
    return [Row("edge-controllers, idle memory", found.resident / 1e6, "MB", 60, note=note)]


async def _edge(server: EdgeServer) -> str:
    """Make a workspace that is an edge cluster; return its logical cluster."""
    async with server.client() as root:
        await root.create(WORKSPACES, workspace("edge"))

        async def cluster() -> str:
            found = await root.get(WORKSPACES, "edge")
            return str(found["spec"].get("cluster", "")) if found["status"].get("phase") == "Ready" else ""

        return str(await until(cluster, "the workspace is ready", LIMIT_S))


async def _plain(bench: Bench, server: EdgeServer) -> list[Row]:
    """The same with a kube-apiserver, if there is one."""
    try:
        cluster = EdgeCluster(bench.place() / "cluster")
    except pytest.skip.Exception as skipped:
        return [Row("kube-apiserver as edge", 0, "ms", note=str(skipped))]
    await asyncio.to_thread(cluster.start)
    try:
        return await latencies(bench, server, Path(cluster.kubeconfig), "kube-apiserver", 200)
    finally:
        await asyncio.to_thread(cluster.close)
