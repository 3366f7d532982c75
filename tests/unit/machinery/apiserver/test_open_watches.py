"""A workspace that becomes inactive ends the watches that can see it: its own, and those of all workspaces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from atoll.machinery.apiserver.catalog.catalogs import Catalogs
from atoll.machinery.apiserver.serving.open_watches import OpenWatches
from atoll.machinery.kcp.kinds.system_kinds import system_kinds
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.meta.wellknown import INACTIVE
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from harness.data.stores import put, store_options
from harness.servers.nats import eventually

ONE, OTHER = (ObjectKey(LOGICAL_CLUSTERS, name, "", "cluster") for name in ("one", "other"))
READY = {"phase": "Ready"}


class Held:
    """A watch, reduced to its end."""

    ended = False

    def end(self, at: int = 0) -> None:
        self.ended = True


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[LmdbStore]:
    store = open_store(store_options(tmp_path / "store"))
    yield store
    await store.close()


@pytest.mark.parametrize("watched", ["one", ""])
async def test_a_watch_that_can_see_a_workspace_ends_when_it_becomes_inactive(store: LmdbStore, watched: str) -> None:
    revisions = await store.submit([put(ONE, status=READY), put(OTHER, status=READY)])
    watches, sees, apart = OpenWatches(store, Catalogs(system_kinds())), Held(), Held()
    following = asyncio.create_task(watches.follow())
    watches.add(watched, system_kinds()[0], sees)
    if watched:
        watches.add("other", system_kinds()[0], apart)
    await asyncio.sleep(0)
    inactive = {"annotations": {INACTIVE: "true"}}
    await store.submit([put(ONE, expected=revisions[0], metadata=inactive, status=READY)])
    await eventually(lambda: sees.ended)
    assert not apart.ended
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
