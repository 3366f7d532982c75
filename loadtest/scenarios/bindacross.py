"""How long after an export was made on one shard is it bound on another?

A site of two shards. A consumer on one waits with a binding for an export of a provider on the other; the time is from
sending the export to the watch event that shows the binding Bound: identity, publication, stream, replica, binding.
"""

from __future__ import annotations

import asyncio
import shutil
import time

from harness.clients.api import Api
from harness.clients.exports import BINDINGS, EXPORTS, SCHEMAS, binding, export, phase, schema
from harness.clients.site_workspaces import on, ready, workspace
from harness.servers.site import Site
from loadtest.bench import Bench, percentile
from loadtest.report import Row

BUDGET_MS = 100


async def run(bench: Bench) -> list[Row]:
    place, rounds = bench.place(), bench.size(10, 50)
    try:
        took_ms = await asyncio.to_thread(_measured, Site(place, shards=2, proxy=False), rounds)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    note = f"{rounds} exports; p95 {percentile(took_ms, 0.95):.0f} ms"
    return [Row("export made, bound on another shard: p50", percentile(took_ms, 0.5), "ms", BUDGET_MS, note=note)]


def _measured(site: Site, rounds: int) -> list[float]:
    """Milliseconds of each round."""
    with site:
        provider, consumer = (_place(site, shard) for shard in ("root", "shard-1"))
        return [_round(provider, consumer, number) for number in range(rounds)]


def _place(site: Site, shard: str) -> Api:
    """A user of system:masters in a new workspace on a shard; other users cannot bind an export that does not exist."""
    root = site.root.api("root")
    made = ready(root, workspace(root, selector=on(shard)))
    return site.shards[shard].api(made["spec"]["cluster"], "shard-admin")


def _round(provider: Api, consumer: Api, number: int) -> float:
    name, made = f"shapes-{number}", schema(f"shapes{number}s")
    provider.post(SCHEMAS, made)
    consumer.post(BINDINGS, binding(provider.cluster, name))
    selector = f"fieldSelector=metadata.name%3D{name}&watch=1"
    with consumer.watch(f"{BINDINGS}?{selector}") as events:
        began = time.monotonic()
        provider.post(EXPORTS, export(name, made))
        while phase(events.next().object) != "Bound":
            pass
        return (time.monotonic() - began) * 1000
