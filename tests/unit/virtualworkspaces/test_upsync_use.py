"""What came up into a mailbox is counted from its objects, then by what is written, and anew after a while."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from atoll.machinery.apiserver.catalog.catalog import Catalog
from atoll.machinery.edge.names import UPSYNCED
from atoll.machinery.edge.upsync import Bounds
from atoll.machinery.kinds.core.configmaps import CONFIGMAPS
from atoll.machinery.kinds.core.secrets import SECRETS
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import encode
from atoll.machinery.storage.contract import Delete, Put
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from atoll.virtualworkspaces.edge import upsync_use
from atoll.virtualworkspaces.edge.carried import Mailbox
from atoll.virtualworkspaces.edge.upsync_use import COUNT_AGAIN_S, UpsyncUse
from harness.data.stores import store_options

MAILBOX = Mailbox("box", Catalog([CONFIGMAPS, SECRETS]))


@pytest.fixture
async def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LmdbStore]:
    monkeypatch.setattr(upsync_use, "MOST", Bounds(4, 2000))
    opened = open_store(store_options(tmp_path))
    yield opened
    await opened.close()


async def put(store: LmdbStore, name: str, mark: str = "", cluster: str = "box") -> None:
    annotations = {UPSYNCED: mark} if mark else {}
    metadata = {"name": name, "namespace": "default", "uid": name, "annotations": annotations}
    value, hole = encode({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    await store.submit([Put(ObjectKey(CONFIGMAPS.type, cluster, "default", name), value, hole, 0)])


async def test_objects_with_their_own_mark_count_and_no_others(store: LmdbStore) -> None:
    await put(store, "up", "ConfigMap/default/up")
    await put(store, "down")
    await put(store, "forged", "ConfigMap/default/up")
    await put(store, "away", "ConfigMap/default/away", cluster="second")
    seconds = [0.0]
    use = UpsyncUse(lambda: seconds[0])
    with store.snapshot() as view:
        assert [use.take(view, MAILBOX, 1, 1) for _ in range(4)] == [True, True, True, False]
        assert use.take(view, MAILBOX, 0, 100), "what is up may grow"
        assert not use.take(view, MAILBOX, 0, 2000)
    # What was refused or failed later does not count for ever.
    await put(store, "second", "ConfigMap/default/second")
    seconds[0] = COUNT_AGAIN_S - 1
    with store.snapshot() as view:
        assert not use.take(view, MAILBOX, 1, 1)
        seconds[0] = COUNT_AGAIN_S
        assert [use.take(view, MAILBOX, 1, 1) for _ in range(3)] == [True, True, False]


async def test_what_went_makes_room_with_the_next_count(store: LmdbStore) -> None:
    for name in ("one", "two", "three", "four"):
        await put(store, name, f"ConfigMap/default/{name}")
    seconds = [0.0]
    use = UpsyncUse(lambda: seconds[0])
    with store.snapshot() as view:
        assert not use.take(view, MAILBOX, 1, 1)
        key = ObjectKey(CONFIGMAPS.type, "box", "default", "one")
        revision = view.revision_of(key)
    await store.submit([Delete(key, revision)])
    with store.snapshot() as view:
        assert not use.take(view, MAILBOX, 1, 1)
        seconds[0] = COUNT_AGAIN_S
        assert use.take(view, MAILBOX, 1, 1)
