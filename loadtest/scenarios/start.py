"""How long from `atoll start` to a positive /readyz: in an empty directory, and on a store with many objects?

The many objects are written into the store file while nothing serves it; restart must not look at them.
"""

from __future__ import annotations

import time

from atoll.machinery.storage.lmdb_store import open_store
from atoll.shard.config import ShardConfig
from atoll.standalone.runner import store_options
from loadtest import processes
from loadtest.bench import Bench, percentile
from loadtest.report import Row
from loadtest.seed import fill
from loadtest.server import Server


async def run(bench: Bench) -> list[Row]:
    objects = bench.size(50_000, 1_000_000)
    empty = [await _first_start(bench) for _ in range(3)]
    again = await _restarts(bench, objects)
    return [
        Row("start to /readyz, empty directory", percentile(empty, 0.5), "s", 1.5),
        Row(f"restart to /readyz, {objects:,} objects", percentile(again, 0.5), "s", 2.5),
    ]


async def _first_start(bench: Bench) -> float:
    server = Server(bench.place(), processes.cores()[0])
    return await _timed(server)


async def _restarts(bench: Bench, objects: int) -> list[float]:
    server = Server(bench.place(), processes.cores()[0])
    await _timed(server)
    config = ShardConfig(root_directory=str(server.root), allow_any_filesystem=True)
    store = open_store(store_options(config))
    try:
        await fill(store, objects)
    finally:
        await store.close()
    return [await _timed(server) for _ in range(3)]


async def _timed(server: Server) -> float:
    """Start, note the time, stop."""
    began = time.perf_counter()
    async with server:
        return time.perf_counter() - began
