"""Open watches end with their workspace, and are authorized again when rows they depend on arrive or are dropped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.catalog.catalogs import Catalogs
from atoll.machinery.apiserver.serving.open_watches import OpenWatches, StillAllowed
from atoll.machinery.kcp.kinds.system_kinds import system_kinds
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.types import API_EXPORTS, CLUSTER_ROLES, CONFIG_MAPS, LOGICAL_CLUSTERS
from atoll.machinery.meta.wellknown import INACTIVE
from atoll.machinery.storage.contract import ClusterRoute, Replica
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from harness.data.stores import put, store_options
from harness.servers.nats import eventually

CLUSTER = "abcdefgh12345678"
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


@pytest.fixture
async def watches(store: LmdbStore) -> AsyncIterator[OpenWatches]:
    watches = OpenWatches(store, Catalogs(system_kinds()))
    following = asyncio.create_task(watches.follow())
    yield watches
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


def export(revision: int, value: bytes = b'{"metadata":{"name":"widgets"}}') -> Replica:
    return Replica("east", ObjectKey(API_EXPORTS, CLUSTER, "", "widgets"), value, revision, 1)


def watch(watches: OpenWatches) -> tuple[Any, list[bool]]:
    """A watch that ends when the remote export is missing; and the number of checks."""
    held: Any = Held()
    asked: list[bool] = []

    def holds(view: View) -> bool:
        asked.append(view.replicas.revision_of(ObjectKey(API_EXPORTS, CLUSTER, "", "widgets")) > 0)
        return asked[-1]

    kind = system_kinds()[0]
    watches.add("here", kind, held, StillAllowed(holds, (CLUSTER,)))
    return held, asked


@pytest.mark.parametrize("end", [export(2, b""), ClusterRoute(CLUSTER, ""), ClusterRoute(CLUSTER, "west", 1)])
async def test_a_watch_ends_with_what_it_was_let_in_by(
    store: LmdbStore, watches: OpenWatches, end: Replica | ClusterRoute
) -> None:
    await store.submit([ClusterRoute(CLUSTER, "east"), export(1)])
    held, asked = watch(watches)
    await eventually(lambda: bool(asked))
    assert not held.ended
    await store.submit([end])
    await eventually(lambda: held.ended)


async def test_it_is_asked_again_only_when_something_changed_that_decides(
    store: LmdbStore, watches: OpenWatches
) -> None:
    await store.submit([ClusterRoute(CLUSTER, "east"), export(1)])
    held, asked = watch(watches)
    await eventually(lambda: bool(asked))
    before = len(asked)
    other = ObjectKey(CONFIG_MAPS, CLUSTER, "default", "a")
    await store.submit([Replica("east", other, b'{"metadata":{"name":"a"}}', 5, 1)])
    role = ObjectKey(CLUSTER_ROLES, CLUSTER, "", "r")
    await store.submit([Replica("east", role, b'{"metadata":{"name":"r"}}', 6, 1)])
    await eventually(lambda: len(asked) > before)
    assert (len(asked), held.ended) == (before + 1, False)


@pytest.mark.parametrize("watched", ["one", ""], ids=["its own", "of all workspaces"])
async def test_a_watch_that_can_see_a_workspace_ends_when_it_becomes_inactive(
    store: LmdbStore, watches: OpenWatches, watched: str
) -> None:
    revisions = await store.submit([put(ONE, status=READY), put(OTHER, status=READY)])
    sees: Any = Held()
    apart: Any = Held()
    watches.add(watched, system_kinds()[0], sees)
    if watched:
        watches.add("other", system_kinds()[0], apart)
    await asyncio.sleep(0)
    inactive = {"annotations": {INACTIVE: "true"}}
    await store.submit([put(ONE, expected=revisions[0], metadata=inactive, status=READY)])
    await eventually(lambda: sees.ended)
    assert not apart.ended
