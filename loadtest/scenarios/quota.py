"""What does a quota add to a create: with one of the namespace, with ten, and with none but one in another cluster?

Measured in the writer, in this process, in CPU time of the whole commit: quotas are charged there alone. The cases take
turns, and each is the difference to the same creates in a store without limits.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import encode
from atoll.machinery.meta.types import CONFIG_MAPS, RESOURCE_QUOTAS
from atoll.machinery.storage.contract import Put
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from atoll.machinery.storage.options import StoreOptions
from loadtest.bench import FILLING, Bench
from loadtest.report import Row

#: Cases: name, quotas in the namespace of the creates, quotas in another cluster, budget in microseconds.
CASES = (("quota elsewhere, a create", 0, 1, 5), ("quota, a create", 1, 0, 15), ("ten quotas, a create", 10, 0, 0))
ROUNDS, BATCH = 5, 100


async def run(bench: Bench) -> list[Row]:
    turns = bench.size(10, 40)
    plain = await _opened(bench.place(), 0, 0)
    stores = [await _opened(bench.place(), here, other) for _, here, other, _ in CASES]
    best = [float("inf")] * (len(stores) + 1)
    number = 0
    for _ in range(ROUNDS):
        for at, store in enumerate((plain, *stores)):
            start = time.process_time()
            for _ in range(turns):
                await asyncio.gather(*(store.submit([_create(number := number + 1)]) for _ in range(BATCH)))
            best[at] = min(best[at], (time.process_time() - start) / turns / BATCH * 1e6)
    for store in (plain, *stores):
        await store.close()
    note = f"a create without limits: {best[0]:.0f} us"
    return [
        Row(name, max(0.0, spent - best[0]), "us", budget, note=note)
        for (name, _, _, budget), spent in zip(CASES, best[1:], strict=True)
    ]


async def _opened(directory: Path, here: int, other: int) -> LmdbStore:
    store = open_store(StoreOptions(directory=str(directory), allow_any_filesystem=True, commit_in_thread=False))
    for cluster, count in (("here", here), ("elsewhere", other)):
        for number in range(count):
            metadata = {"name": f"q{number}", "namespace": "default"}
            value, hole = encode({"metadata": metadata, "spec": {"hard": {"count/configmaps": "1M"}}})
            await store.submit([Put(ObjectKey(RESOURCE_QUOTAS, cluster, "default", f"q{number}"), value, hole, 0)])
    return store


def _create(number: int) -> Put:
    name = f"c{number}"
    value, hole = encode({"metadata": {"name": name, "namespace": "default"}, "data": {"x": FILLING}})
    return Put(ObjectKey(CONFIG_MAPS, "here", "default", name), value, hole, 0)
