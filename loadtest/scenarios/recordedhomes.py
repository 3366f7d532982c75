"""What does the shard `root` keep of homes on other shards: bytes and memory for each, and how long does `~` take?

The rows are written into the store while nothing serves it, as first uses and the other shard's stream write them: the
marker, the route, and the home's LogicalCluster, which is one that this server made. Then the server answers `~` for
users among them, and makes new homes.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import msgspec

from atoll.machinery.kcp.workspaces.homes import HomeUser, Seat, created, generation_of, marker
from atoll.machinery.meta import hashes, times
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import Object, encode
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.storage.contract import ClusterRoute, Mutation, Put, Replica
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from atoll.shard.config import ShardConfig
from atoll.standalone.runner import store_options
from loadtest import processes
from loadtest.bench import Bench, sound
from loadtest.http import closed_loop
from loadtest.ready import numbered
from loadtest.report import Row
from loadtest.scenarios.homes import LIMIT_S, list_homes, master, requests
from loadtest.server import Cost, Server

#: Homes in a transaction, each with three rows.
BATCH = 500
#: Recorded homes at which it measures, up to the largest size.
STEPS = (1000, 10_000, 100_000)
FAR = "far"


async def run(bench: Bench) -> list[Row]:
    largest = bench.size(10_000, 1_000_000)
    sizes = [*(each for each in STEPS if each < largest), largest]
    server, rows, filled = Server(bench.place(), processes.cores()[0]), list[Row](), 0
    try:
        async with server:
            await server.free_children()
            await list_homes(server, ["sample"])
            sample = await _sample(server)
        empty = _size(server)
        for count in sizes:
            store = open_store(store_options(ShardConfig(root_directory=str(server.root), allow_any_filesystem=True)))
            began = time.process_time()
            try:
                for first in range(filled, count, BATCH):
                    await _record(store, sample, range(first, min(first + BATCH, count)))
            finally:
                await store.close()
            written_s, filled, added = time.process_time() - began, count, count - filled
            rows += [
                Row(f"homes recorded, {count:,}: bytes of root's store a home", (_size(server) - empty) / count, "B"),
                Row("  CPU to write one", written_s / added * 1e6, "us"),
                *await _served(server, count),
            ]
    finally:
        shutil.rmtree(server.root.parent, ignore_errors=True)
    return rows


async def _served(server: Server, count: int) -> list[Row]:
    """Start on the store, and ask for homes that are recorded and for some that are not."""
    began = time.perf_counter()
    async with server:
        started = time.perf_counter() - began
        await server.free_children()
        at_start = server.memory()
        step = max(count // 2000, 1)
        users = [_user(number) for number in range(0, count, step)]
        origin = master(server)
        with Cost(server) as cost:
            found = sound(await closed_loop(origin, requests(origin, users), 1, LIMIT_S))
        made = await list_homes(server, numbered(f"new-{count}", 100))
        after = server.memory()
    return [
        Row("  `~` of one, 1 client, p50", found.percentile_ms(0.5), "ms", note=f"p99 {found.percentile_ms(0.99):.1f}"),
        Row("  CPU of that", cost.cpu_s / len(users) * 1e6, "us"),
        Row("  a new home, 8 clients, p50", made.percentile_ms(0.5), "ms"),
        Row("  restart to /readyz", started, "s"),
        Row("  memory without mapped pages", after.private / 1e6, "MB", note=f"{at_start.private / 1e6:.0f} before"),
    ]


def _size(server: Server) -> int:
    """Bytes of the store's files on the disk."""
    return sum(each.stat().st_blocks * 512 for each in Path(server.root).rglob("*") if each.is_file())


def _user(number: int) -> str:
    return f"recorded-{number:07d}"


async def _sample(server: Server) -> Object:
    """The LogicalCluster of a home as this server made it."""
    cluster = hashes.home_cluster_name("sample")
    async with server.client(cluster, "shard-base") as client:
        found = await client.request("GET", "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster")
    return found


async def _record(store: LmdbStore, sample: Object, numbers: range) -> None:
    mutations: list[Mutation] = []
    text, old = msgspec.json.encode(sample), hashes.home_cluster_name("sample")
    for number in numbers:
        user = _user(number)
        cluster = hashes.home_cluster_name(user)
        key = ObjectKey(LOGICAL_CLUSTERS, cluster, "", "cluster")
        seat = Seat(FAR, generation_of(sample), "00000000-0000-4000-8000-000000000000")
        said = created(marker(HomeUser(user, cluster, f"user:{user}", ""), seat))
        metadata = {"uid": f"00000000-0000-4000-8000-{number:012x}", "creationTimestamp": times.now()}
        value, hole = encode({**said, "metadata": {**said["metadata"], **metadata}})
        home = text.replace(b"sample", user.encode()).replace(old.encode(), cluster.encode())
        mutations += [Put(key, value, hole, 0), Replica(FAR, key, home, number + 1, 1)]
        mutations.append(ClusterRoute(cluster, FAR, seat.generation))
    await store.submit(mutations)
