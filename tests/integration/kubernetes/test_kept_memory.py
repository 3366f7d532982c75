"""What a workspace of type `kubernetes` keeps in the memory of its shard, counted in objects.

The recent changes are left out: they are dropped after two minutes, or when their ring is full.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import pytest

from atoll.machinery.storage.reader import StoreReader
from harness.servers.in_process.shard import InsideShard, shard_inside

BEFORE, MADE = 4, 12
#: Most are entries of bounded caches, some 60 bytes each; all of 10 KB.
MOST_BLOCKS = 160


def _kept(shard: InsideShard) -> int:
    """Return the number of blocks of memory that Python's objects take."""
    store = shard.app.store
    assert isinstance(store, StoreReader)
    hub = store.hub
    hub.skip(hub.last)
    gc.collect()
    return sys.getallocatedblocks()


@pytest.mark.long
async def test_a_workspace_keeps_few_objects(tmp_path: Path) -> None:
    of_kinds = {"type": {"name": "kubernetes", "path": "root"}}
    async with shard_inside(tmp_path) as shard:
        for number in range(BEFORE):
            await shard.workspace(f"before-{number}", **of_kinds)
        before = _kept(shard)
        for number in range(MADE):
            await shard.workspace(f"made-{number}", **of_kinds)
        kept = (_kept(shard) - before) / MADE
        assert kept < MOST_BLOCKS, f"{kept:.0f} blocks a workspace"
