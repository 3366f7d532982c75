"""How long does it take to delete a tree of workspaces, and does its status say what happens all the while?

The tree has one root, its children, and their children, each with its first objects and a ConfigMap. Deleting the
root is done when nothing of it is left: no Workspace and no LogicalCluster. Until then its status must never call
it deleted, and the number of what is left must fall.
"""

from __future__ import annotations

import asyncio

from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import Resource
from atoll.machinery.meta.status import ApiError
from loadtest.bench import CONFIG_MAPS, WORKSPACES, Bench, config_map
from loadtest.ready import Poster, posters, readiness
from loadtest.report import Row
from loadtest.server import Cost, Server

CLUSTERS = Resource("core.kcp.io", "v1alpha1", "logicalclusters", False)
CLIENTS, LOOK_EVERY_S = 8, 0.25


async def run(bench: Bench) -> list[Row]:
    count = bench.size(300, 10_000)
    async with bench.server() as server:
        async with readiness(server) as ready, posters(server, ready, CLIENTS) as clients:
            before = await _clusters(server)
            await _plant(clients, count)
        with Cost(server) as cost:
            dishonest = await _fell(server, before, count)
    return [
        Row(
            f"delete a tree of {count:,} workspaces",
            cost.wall_s,
            "s",
            30 * count / 10_000,
            note="" if count == 10_000 else "budget in proportion: 30 s for 10,000",
        ),
        Row("  CPU a workspace", cost.cpu_s / count * 1000, "ms", note=cost.note(count)),
        Row("  looks at a status that was not honest", dishonest, "times"),
    ]


async def _plant(clients: list[Poster], count: int) -> None:
    """A root, its children, and grandchildren, `count` in all."""
    _, root = await clients[0].make("root", "tree")
    branches = max(2, round(count**0.5))
    parents = await _grow(clients, [(root, f"branch-{number}") for number in range(branches)])
    leaves = count - 1 - branches
    await _grow(clients, [(parents[number % branches], f"leaf-{number}") for number in range(leaves)])


async def _grow(clients: list[Poster], wanted: list[tuple[str, str]]) -> list[str]:
    """Create workspaces, each with one object; return their clusters."""
    found: list[str] = []
    queue = iter(wanted)

    async def work(client: Poster) -> None:
        for parent, name in queue:
            _, cluster = await client.make(parent, name)
            await client.send("POST", f"/clusters/{cluster}{CONFIG_MAPS.path('default')}", config_map("one"))
            found.append(cluster)

    await asyncio.gather(*(work(client) for client in clients))
    return found


async def _fell(server: Server, before: int, count: int) -> int:
    """Delete the root of the tree and wait until it is gone; return the number of false statuses."""
    dishonest, left = 0, count + before
    async with server.client("root") as client:
        await client.delete(WORKSPACES, "tree")
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            # In this order: what is left when the Workspace is gone already was left behind.
            phase = await _phase(client)
            now = await _clusters(server)
            if not phase and now <= before:
                return dishonest
            # Deleted while content exists, not reported as deleting, or with more content than before.
            dishonest += (not phase) or phase not in {"Deleting", "Terminating"} or now > left
            left = now


async def _phase(client: Client) -> str:
    try:
        found = await client.get(WORKSPACES, "tree")
    except ApiError as error:
        if error.code != 404:
            raise
        return ""
    return str(found["status"]["phase"])


async def _clusters(server: Server) -> int:
    """The number of logical clusters, from the first page of one."""
    async with server.client("*", "shard-base") as client:
        page = await client.request("GET", CLUSTERS.path(), {"limit": "1"})
    return len(page["items"]) + int(page["metadata"].get("remainingItemCount", 0))
