"""Watches of one shard's rows skip rows of other shards in bounded steps."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from atoll.cacheserver.shard_filter import shard_filter
from atoll.machinery.apiserver.filtered_rows.mapped_rows import MAX_ROUNDS
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import encode
from atoll.machinery.meta.wellknown import ORIGIN_SHARD
from atoll.machinery.storage.contract import Change, Put, Scope
from atoll.machinery.storage.lmdb_store import open_store
from harness.data.stores import store_options

TYPE = ResourceType("apis.kcp.io", "apiexports", "cache")
CLUSTER = "abcdefgh12345678"


def row(name: str, shard: str) -> Put:
    value, hole = encode({"metadata": {"name": name, "annotations": {ORIGIN_SHARD: shard}}})
    return Put(ObjectKey(TYPE, CLUSTER, "", name), value, hole, 0)


async def test_a_read_ends_though_all_that_came_is_of_other_shards_and_the_next_goes_on(tmp_path: Path) -> None:
    store = open_store(store_options(tmp_path / "store"))
    with store.snapshot() as snapshot:
        begin = snapshot.revision
    await store.submit([row(f"other-{number:03}", "west") for number in range(3 * MAX_ROUNDS)])
    await store.submit([row("mine", "east")])
    cursor = shard_filter(store, "east").cursor(Scope(TYPE), begin)
    found: Sequence[Change] = ()
    reads = 0
    async with asyncio.timeout(60):
        while not found:
            found = cursor.read(1)
            reads += 1
            if not found:
                await cursor.wait()
    assert (found[0].key.name, reads) == ("mine", 4)
    assert not cursor.read(1)
    cursor.close()
    await store.close()
