"""Two hundred edges that come back at once have what changed meanwhile, and write it once."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from loadtest import processes
from loadtest.bench import CONFIG_MAPS, config_map
from loadtest.edge_fleet import PATIENCE_S, Edge, fleet
from loadtest.edge_site import WORKLOAD, EdgeServer, config_maps_of, make_mailboxes, place
from loadtest.edge_syncer import NAMESPACE, CountingRelay
from loadtest.server import running

from atoll.machinery.client.client import Client
from atoll.machinery.meta.objects import Object
from harness.waits import until

EDGES, NAME = 200, "back"
FOREIGN = {"metadata": {"name": "foreign", "namespace": NAMESPACE}, "data": {"own": "1"}}


async def every(found: Iterable[bool]) -> bool:
    return all(found)


def object_of(name: str) -> Object:
    found = config_map(name)
    found["metadata"] |= {"labels": {"fleet": NAME}, "namespace": NAMESPACE}
    return found


def is_current(edge: Edge) -> bool:
    """Whether an edge has the edit and the new object, and not the one that was deleted."""
    is_there = edge.data("edited").get("edit") == "1" and bool(edge.data("added"))
    return is_there and not edge.data("deleted") and edge.has(2)


def written(edge: Edge) -> int:
    """How often an edge wrote to its cluster."""
    assert edge.syncer is not None and edge.syncer.downsync is not None
    return edge.syncer.downsync.applies + edge.syncer.downsync.deletions


async def foreign_uids(edges: list[Edge]) -> list[str]:
    """The uid of what is somebody else's, at every tenth edge; it is made where it is missing."""
    found = []
    for edge in edges[::10]:
        async with Client(edge.cluster) as cluster:
            held = {each["metadata"]["name"]: each for each in (await cluster.list(CONFIG_MAPS, NAMESPACE))["items"]}
            obj = held.get("foreign") or await cluster.create(CONFIG_MAPS, FOREIGN)
            found.append(obj["metadata"]["uid"])
    return found


@pytest.mark.long
@pytest.mark.timeout(1500)
async def test_edges_that_come_back_at_once_have_what_changed_and_write_each_object_once(tmp_path: Path) -> None:
    cores = set(processes.USABLE)
    server = EdgeServer(tmp_path / "center", cores=cores)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(server)
        await server.controllers()
        workload = await stack.enter_async_context(server.client(WORKLOAD))
        names = [f"edge-{number}" for number in range(EDGES)]
        mailboxes = await make_mailboxes(server, names, limit_s=PATIENCE_S, fleet=NAME)
        for name in ("edited", "deleted"):
            await workload.create(CONFIG_MAPS, object_of(name))
        await place(workload, NAME, config_maps_of(NAME))
        clusters = await stack.enter_async_context(running(tmp_path / "clusters", cores))
        relay = await stack.enter_async_context(CountingRelay(urlsplit(server.url).port or 0))
        edges = await stack.enter_async_context(fleet(server.kubeconfig, clusters.kubeconfig, mailboxes, relay.port))
        for edge in edges:
            await edge.start()
        await until(lambda: every(edge.has(2) for edge in edges), "all edges have all objects", PATIENCE_S)
        uids, before = await foreign_uids(edges), [written(edge) for edge in edges]
        await relay.cut()
        await until(lambda: every(bool(edge.failure) for edge in edges), "all edges are cut off", PATIENCE_S)
        await workload.patch(CONFIG_MAPS, "edited", {"data": {"edit": "1"}}, NAMESPACE)
        await workload.delete(CONFIG_MAPS, "deleted", NAMESPACE)
        await workload.create(CONFIG_MAPS, object_of("added"))
        relay.is_cut = False
        await until(lambda: every(is_current(edge) for edge in edges), "all edges are current", PATIENCE_S)
        # One apply of each object that is wanted, one deletion; a look that a write caused may come a moment early.
        assert all(3 <= written(edge) - old <= 6 for edge, old in zip(edges, before, strict=True))
        assert await foreign_uids(edges) == uids
