"""What do the objects of 10,000 consumers cost their provider: to list them all, and to hear of one of them?

Lists go through the view of an APIExport. One is over all consumers, each with one object; the other is of one consumer
that has as many, so that they differ in nothing but the view's width. An event's age is taken from a time that the
consumer put into the object just before it was sent.
"""

from __future__ import annotations

import asyncio
import time
from itertools import repeat

from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import WORKSPACES, Resource
from atoll.machinery.meta import times
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, encode
from atoll.machinery.storage.contract import Put
from atoll.machinery.storage.lmdb_store import open_store
from atoll.shard.config import ShardConfig
from atoll.standalone.runner import store_options
from harness.clients.exports import binding, export, schema
from loadtest import processes
from loadtest.bench import FILLING, Bench, percentile, sound, workspace
from loadtest.http import closed_loop, connect
from loadtest.report import Row
from loadtest.scenarios.watch import Audience, Watcher
from loadtest.server import Server

OBJECTS, BATCH, TIMEOUT_S = 10_000, 500, 60.0
GROUP = "load.example.com"
WIDE, NARROW = "wide", "narrow"
SCHEMAS = Resource("apis.kcp.io", "v1alpha1", "apiresourceschemas", False)
EXPORTS = Resource("apis.kcp.io", "v1alpha2", "apiexports", False)
BINDINGS = Resource("apis.kcp.io", "v1alpha2", "apibindings", False)
WRITES_A_SECOND = 50


async def run(bench: Bench) -> list[Row]:
    return [*await _lists(bench), *await _events(bench)]


# --- lists ------------------------------------------------------------------------------------------------


async def _lists(bench: Bench) -> list[Row]:
    server = Server(bench.place(), processes.cores()[0])
    async with server:
        places = await _site(server)
    await _fill(server, places)
    async with server:
        took = {name: await _list_ms(server, name, place, bench.size(20, 100)) for name, place in places.items()}
    return [
        Row(f"LIST of {OBJECTS:,} consumers' objects, p50", took[WIDE], "ms"),
        Row("  to that of one consumer with as many", took[WIDE] / took[NARROW], "x", 1.3),
    ]


class _Place:
    """An export: its own cluster, its identity, and the consumer that binds it."""

    def __init__(self, home: str, identity: str, consumer: str) -> None:
        self.home, self.identity, self.consumer = home, identity, consumer


async def _site(server: Server) -> dict[str, _Place]:
    found = {}
    async with server.client() as root:
        for name in (WIDE, NARROW):
            identity = await _export(root, name)
            await root.create(WORKSPACES, workspace(name))
            cluster = (await _until(root, WORKSPACES, name, "phase", "Ready"))["spec"]["cluster"]
            await _bind(root.cluster(cluster), name)
            found[name] = _Place("root", identity, cluster)
    return found


async def _export(root: Client, name: str) -> str:
    """Export a kind from root; the identity."""
    made = schema(_plural(name), GROUP)
    await root.create(SCHEMAS, made)
    await root.create(EXPORTS, export(name, made))
    found = await _until(root, EXPORTS, name, "identityHash")
    return str(found["status"]["identityHash"])


async def _bind(consumer: Client, name: str) -> None:
    await consumer.create(BINDINGS, binding("root", name))
    await _until(consumer, BINDINGS, name, "phase", "Bound")


async def _until(client: Client, resource: Resource, name: str, field: str, wanted: str = "") -> Object:
    """Return an object once a field of its status has a value, or any."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            found = await client.get(resource, name)
            value = (found.get("status") or {}).get(field)
            if value and value == (wanted or value):
                return found
            await asyncio.sleep(0.02)


def _plural(name: str) -> str:
    return f"{name}s"


async def _fill(server: Server, places: dict[str, _Place]) -> None:
    """Write objects into the store: for one export one in each of many clusters, for the other all in one."""
    store = open_store(store_options(ShardConfig(root_directory=str(server.root), allow_any_filesystem=True)))
    try:
        for name, place in places.items():
            for begin in range(0, OBJECTS, BATCH):
                numbers = range(begin, begin + BATCH)
                await store.submit([_put(name, place, number) for number in numbers])
    finally:
        await store.close()


def _put(name: str, place: _Place, number: int) -> Put:
    cluster = place.consumer if name == NARROW else f"consumer{number:08d}"
    metadata = {
        "name": f"o-{number:07d}",
        "namespace": "default",
        "uid": f"00000000-0000-4000-8000-{number:012x}",
        "creationTimestamp": times.now(),
        "annotations": {"kcp.io/cluster": cluster},
        "generation": 1,
    }
    obj = {"apiVersion": f"{GROUP}/v1", "kind": name.capitalize(), "metadata": metadata, "spec": {"colour": FILLING}}
    value, hole = encode(obj)
    type = ResourceType(GROUP, _plural(name), place.identity)
    return Put(ObjectKey(type, cluster, "default", f"o-{number:07d}"), value, hole, 0)


async def _list_ms(server: Server, name: str, place: _Place, repetitions: int) -> float:
    cluster = "*" if name == WIDE else place.consumer
    path = f"/services/apiexport/{place.home}/{name}/clusters/{cluster}/apis/{GROUP}/v1/{_plural(name)}"
    request = server.origin.request("GET", path)
    await closed_loop(server.origin, repeat(request, 3), 1, 30)
    return sound(await closed_loop(server.origin, repeat(request, repetitions), 1, 60)).percentile_ms(0.5)


# --- events -----------------------------------------------------------------------------------------------


async def _events(bench: Bench) -> list[Row]:
    count = bench.size(5 * WRITES_A_SECOND, 20 * WRITES_A_SECOND)
    async with bench.server() as server:
        places = await _site(server)
        place, kind = places[NARROW], Resource(GROUP, "v1", _plural(NARROW))
        async with server.client(place.consumer) as consumer:
            await consumer.create(kind, _object("hot"), "default")
            audience = Audience()
            opened = await _open(server, place, audience)
            took = await _written(consumer, kind, count)
            opened.abort()
    ages = audience.ages_s[count // 5 :]
    note = f"p99 {percentile(ages, 0.99) * 1000:.1f} ms, {len(ages):,} events at {WRITES_A_SECOND} writes/s"
    return [
        Row("consumer's write to provider's watch, p50", percentile(ages, 0.5) * 1000, "ms", 5, note=note),
        Row("  to the answer of the write", percentile(took, 0.5) * 1000, "ms"),
    ]


async def _written(consumer: Client, kind: Resource, count: int) -> list[float]:
    """Write at a fixed pace; seconds from each request to its answer."""
    began, took = time.perf_counter(), []
    for number in range(count):
        sent = time.time()
        await consumer.patch(kind, "hot", {"metadata": {"annotations": {"stamp": f"{sent:.6f}"}}}, "default")
        took.append(time.time() - sent)
        await asyncio.sleep(max(began + number / WRITES_A_SECOND - time.perf_counter(), 0))
    return took


async def _open(server: Server, place: _Place, audience: Audience) -> asyncio.Transport:
    """The provider's watch over all consumers, from now on."""
    path = f"/services/apiexport/{place.home}/{NARROW}/clusters/*/apis/{GROUP}/v1/{_plural(NARROW)}?watch=1"
    (opened,) = await connect(server.origin, 1, lambda: Watcher(audience, server.origin.request("GET", path)))
    async with asyncio.timeout(TIMEOUT_S):
        while not audience.events:  # noqa: ASYNC110  (another process)
            await asyncio.sleep(0.02)
    return opened


def _object(name: str) -> Object:
    metadata = {"name": name, "annotations": {"stamp": "0"}}
    kind = {"apiVersion": f"{GROUP}/v1", "kind": NARROW.capitalize()}
    return {**kind, "metadata": metadata, "spec": {"colour": FILLING}}
