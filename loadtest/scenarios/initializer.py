"""How long from the POST of a workspace until it is Ready, when an initializer of somebody else works in it first?

The initializer is a program of its own kind, in the load's process: an informer on the initializing view, one ConfigMap
written in the new workspace through the view, and a patch by which it takes itself away.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress

from atoll.machinery.client.client import Client
from atoll.machinery.client.informer import Informer, Key, key_of
from atoll.machinery.client.resource import Resource
from atoll.machinery.control.queue import WorkQueue
from atoll.machinery.control.worker import work
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import Conflict, Forbidden
from loadtest.bench import CONFIG_MAPS, Bench, percentile
from loadtest.ready import Poster, numbered, posters, readiness
from loadtest.report import Row
from loadtest.server import Cost, Server

TYPES = Resource("tenancy.kcp.io", "v1alpha1", "workspacetypes", False)
CLUSTERS = Resource("core.kcp.io", "v1alpha1", "logicalclusters", False)
TYPE, INITIALIZER = "initialized", "root:initialized"
CLIENTS, WORKERS, TIMEOUT_S = 8, 8, 30.0
RULES = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "patch"]}]


async def run(bench: Bench) -> list[Row]:
    alone, many = bench.size(60, 300), bench.size(300, 4000)
    async with (
        bench.server() as server,
        _initializer(server),
        readiness(server) as ready,
        posters(server, ready, CLIENTS) as clients,
    ):
        await _made(clients[0], iter(numbered("warm", 10)))
        times = await _made(clients[0], iter(numbered("one", alone)))
        names = iter(numbered("many", many))
        with Cost(server) as cost:
            await asyncio.gather(*(_made(client, names) for client in clients))
    took = [seconds * 1000 for seconds in times]
    return [
        Row(
            "initializer, POST to Ready, 1 client, p50",
            percentile(took, 0.5),
            "ms",
            50,
            note=f"p99 {percentile(took, 0.99):.0f} ms",
        ),
        Row(f"  workspaces with it, {CLIENTS} clients", many / cost.wall_s, "/s"),
        Row("  CPU a workspace", cost.cpu_s / many * 1000, "ms", note=cost.note(many)),
    ]


async def _made(client: Poster, names: Iterator[str]) -> list[float]:
    return [(await client.make("root", name, TYPE))[0] for name in names]


@asynccontextmanager
async def _initializer(server: Server) -> AsyncIterator[None]:
    """A type with an initializer, and the program that serves it."""
    queue: WorkQueue[Key] = WorkQueue()
    async with server.client("root") as client:
        view = client.view(await _view(client))
        waiting = Informer(view, CLUSTERS, lambda old, new: queue.add(key_of(new)) if new is not None else None)

        async def reconcile(key: Key) -> None:
            if key in waiting.objects:
                await _initialize(view.cluster(key[0]), waiting.objects[key])

        tasks = [asyncio.create_task(waiting.run())]
        tasks += [asyncio.create_task(work("initializer", queue, reconcile)) for _ in range(WORKERS)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _view(client: Client) -> str:
    """Make the type; the URL of its view."""
    spec = {
        "extend": {"with": [{"name": "universal", "path": "root"}]},
        "initializer": True,
        "initializerPermissions": RULES,
    }
    kind = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType"}
    await client.create(TYPES, {**kind, "metadata": {"name": TYPE}, "spec": spec})
    async with asyncio.timeout(TIMEOUT_S), client.watch(TYPES, fieldSelector=f"metadata.name={TYPE}") as events:
        async for event in events:
            for each in (event.object.get("status") or {}).get("virtualWorkspaces") or ():
                if each["type"] == "initializing":
                    return str(each["url"])
    raise RuntimeError("the type has no view")


async def _initialize(inside: Client, cluster: Object) -> None:
    metadata = {"name": "made", "namespace": "default"}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "b"}}
    left = [each for each in cluster["status"]["initializers"] if each != INITIALIZER]
    seen = {"resourceVersion": cluster["metadata"]["resourceVersion"]}
    # After a conflict the event of the other write reconciles again; a finished workspace gives 403.
    with suppress(Conflict, Forbidden):
        await inside.apply(CONFIG_MAPS, config)
        await inside.patch(CLUSTERS, "cluster", {"metadata": seen, "status": {"initializers": left}}, "", "status")
