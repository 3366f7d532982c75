"""Parts of the scenario `edge`: how long a change takes to the edge and back, and how fast mailboxes are filled."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

from atoll.edge.kinds import PLACEMENTS
from atoll.machinery.client.client import Client
from atoll.machinery.client.kubeconfig import Kubeconfig
from atoll.machinery.client.resource import Resource
from atoll.machinery.meta.conditions import is_true
from atoll.machinery.meta.objects import Object, conditions_of, status_of
from atoll.machinery.meta.status import ApiError
from harness.clients.api import crd
from harness.waits import until
from loadtest.bench import CONFIG_MAPS, Bench, config_map, percentile, sound
from loadtest.edge_site import LIMIT_S, WORKLOAD, Arrivals, EdgeServer, arrivals, config_maps_of, make_mailboxes, place
from loadtest.edge_syncer import SyncerProcess, syncing
from loadtest.http import closed_loop
from loadtest.report import Row
from loadtest.scenarios import create
from loadtest.server import Cost

GROUP = "crates.example.com"
CRATES = Resource(GROUP, "v1", "crates")
DEFINITIONS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)
NAMESPACE = "default"
#: Seconds between two samples, so that they meet timers at any moment.
PAUSE_S = 0.02, 0.25


async def latencies(bench: Bench, server: EdgeServer, edge: Path, name: str, aim_ms: float) -> list[Row]:
    """Measure one edge cluster: a change down, a new object down, and a status up to mailbox and workspace."""
    count = bench.size(60, 300)
    (mailbox,) = await make_mailboxes(server, [name], fleet=name)
    async with AsyncExitStack() as stack:
        workload = await stack.enter_async_context(server.client(WORKLOAD))
        inside = await stack.enter_async_context(server.client(mailbox.cluster))
        cluster = await stack.enter_async_context(Client(Kubeconfig.load(str(edge)).target(), manager="loadtest"))
        definition = crd("crates", GROUP)
        await workload.apply(DEFINITIONS, definition)
        await until(lambda: _is_served(workload), "the kind is served", LIMIT_S)
        await workload.apply(CRATES, _crate(name, 0, name))
        selected = {"apiGroup": GROUP, "labelSelectors": [{"matchLabels": {"fleet": name}}]}
        await place(workload, name, selected, wantSingletonReportedState=True)
        syncer = await SyncerProcess.registered(bench.place(), server, mailbox, edge)
        await stack.enter_async_context(syncing(syncer))
        await until(lambda: _is_served(cluster), "the kind is at the edge", LIMIT_S)
        below, above, source = [
            await stack.enter_async_context(arrivals(each, CRATES)) for each in (cluster, inside, workload)
        ]
        await until(lambda: _has(below), "the object is at the edge", LIMIT_S)

        async def change(number: int) -> None:
            await workload.patch(CRATES, name, {"spec": {"replicas": number}}, NAMESPACE)

        async def add(number: int) -> None:
            await workload.create(CRATES, _crate(f"{name}-{number}", number, name))

        async def report(number: int) -> None:
            await cluster.patch(CRATES, name, {"status": {"replicas": number}}, NAMESPACE, "status")

        changed = await _samples(below, lambda _: name, ("spec", "replicas"), change, count)
        added = await _samples(below, lambda number: f"{name}-{number}", ("spec", "replicas"), add, count // 2)
        returned = await _samples(above, lambda _: name, ("status", "replicas"), report, count)
        reported = await _samples(source, lambda _: name, ("status", "replicas"), report, count, first=count + 1)
    return [
        _row(f"{name}: a change in the workspace to applied", changed, aim_ms),
        _row("  a new object, with its row in the list", added),
        _row("  its status back in the mailbox", returned, 200),
        _row("  its status back in the workspace", reported),
    ]


def _row(what: str, seconds: list[float], aim_ms: float = 0) -> Row:
    found = [each * 1000 for each in seconds]
    return Row(f"{what}, p50", percentile(found, 0.5), "ms", aim_ms, note=f"p90 {percentile(found, 0.9):.0f} ms")


async def _samples(
    seen: Arrivals,
    name_of: Callable[[int], str],
    field: tuple[str, str],
    write: Callable[[int], Awaitable[object]],
    count: int,
    first: int = 1,
) -> list[float]:
    """Write numbers one after the other; return the seconds until each was seen."""
    found = []
    part, key = field
    for number in range(first, first + max(count, 1)):

        def holds(obj: Object, wanted: int = number) -> bool:
            return bool((obj.get(part) or {}).get(key) == wanted)

        arrival = seen.expect(name_of(number), holds)
        began = time.perf_counter()
        await write(number)
        async with asyncio.timeout(LIMIT_S):
            found.append(await arrival - began)
        await asyncio.sleep(random.uniform(*PAUSE_S))
    return found


def _crate(name: str, number: int, fleet: str) -> Object:
    metadata = {"name": name, "namespace": NAMESPACE, "labels": {"fleet": fleet}}
    return {"apiVersion": f"{GROUP}/v1", "kind": "Crate", "metadata": metadata, "spec": {"replicas": number}}


async def _is_served(client: Client) -> bool:
    try:
        await client.list(CRATES)
    except ApiError:
        return False
    return True


async def _has(seen: Arrivals) -> bool:
    return bool(seen.informer.objects)


async def filling(bench: Bench, server: EdgeServer) -> list[Row]:
    """Fill new mailboxes with objects of one placement, beside the rate of plain creates."""
    mailboxes, objects = bench.size(50, 50), bench.size(100, 100)
    began = time.perf_counter()
    await make_mailboxes(server, [f"fill-{number}" for number in range(mailboxes)], fleet="fill")
    made_s = time.perf_counter() - began
    async with server.client(WORKLOAD) as workload, arrivals(workload, PLACEMENTS) as seen:
        for number in range(objects):
            obj = config_map(f"fill-{number}")
            obj["metadata"] |= {"labels": {"fleet": "fill"}, "namespace": NAMESPACE}
            await workload.create(CONFIG_MAPS, obj)
        is_full = seen.expect("fill", lambda obj: _is_full(obj, mailboxes, objects))
        with Cost(server) as cost:
            began = time.perf_counter()
            await place(workload, "fill", config_maps_of("fill"))
            async with asyncio.timeout(LIMIT_S):
                seconds = await is_full - began
    plain = sound(await closed_loop(server.origin, create.requests(server.origin), 16, bench.seconds(3, 10)))
    note = f"{cost.note(mailboxes * objects)} us each; create {plain.rate:,.0f} /s; mailboxes made in {made_s:.1f} s"
    what = f"{mailboxes} mailboxes filled with {objects} objects"
    return [Row(what, mailboxes * objects / seconds, "/s", plain.rate / 2, more=True, note=note)]


def _is_full(placement: Object, mailboxes: int, objects: int) -> bool:
    status = status_of(placement)
    is_whole = status.get("objectCount") == objects and (status.get("destinations") or {}).get("total") == mailboxes
    return is_whole and is_true(conditions_of(placement), "Projected")
