"""Items of a mailbox against a model: a list, and the watch from it, lead to what is carried, wherever it is cut."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from atoll.machinery.apiserver.catalog.catalog import Catalog
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.kinds.core.configmaps import CONFIGMAPS
from atoll.machinery.kinds.core.secrets import SECRETS
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import Object, decode, encode
from atoll.machinery.storage.contract import Change, Delete, Operation, Put, Scope
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from atoll.virtualworkspaces.edge.carried import Carried, CarriedReader, Mailbox
from atoll.virtualworkspaces.edge.downsync_item import item_kind
from atoll.virtualworkspaces.edge.downsync_rows import DownsyncRows
from harness.data.stores import HandClock, store_options

BOX, NAMES = "box", ("a", "b", "c", "d", "e")
ITEMS = Scope(item_kind().type, BOX)


def config_kind(kind: str) -> Kind:
    plural = kind.lower() + "s"
    return Kind(
        group="edge.kubestellar.io", version="v2alpha1", kind=kind, plural=plural, singular=plural, identity="e" * 64
    )


CONFIGS = [config_kind("SyncerConfig"), config_kind("EdgeSyncConfig")]
CATALOG = Catalog([CONFIGMAPS, SECRETS, *CONFIGS, item_kind()])


class World:
    """A store with objects and SyncerConfigs, changed at random, and the items that there should be."""

    def __init__(self, store: LmdbStore, seed: int = 0) -> None:
        self.store, self.random = store, random.Random(seed)
        self.rows = DownsyncRows(store, lambda view: Mailbox(BOX, CATALOG), CarriedReader())

    async def write(self, kind: Kind, namespace: str, name: str, content: Object | None) -> None:
        """Put an object, or delete it."""
        key = ObjectKey(kind.type, BOX, namespace, name)
        with self.store.snapshot() as snapshot:
            before = snapshot.revision_of(key)
        if content is None:
            if before:
                await self.store.submit([Delete(key, before)])
            return
        metadata = {"name": name, "uid": f"{name}-uid"} | ({"namespace": namespace} if namespace else {})
        value, hole = encode({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **content})
        await self.store.submit([Put(key, value, hole, before)])

    async def list_names(self, config: str, *names: str, **status: str) -> None:
        """Have a SyncerConfig list ConfigMaps and Secrets of these names; none takes it away."""
        places = [{"namespace": "default", "names": list(names)}]
        kinds = [{"group": "", "resource": each, "apiVersion": "v1"} for each in ("configmaps", "secrets")]
        spec = {"namespacedObjects": [{**each, "objectsByNamespace": places} for each in kinds]}
        await self.write(CONFIGS[0], "", config, {"spec": spec, "status": status} if names else None)

    async def step(self) -> None:
        draw = self.random
        if draw.random() < 0.3:
            names, reported = draw.sample(NAMES, draw.randrange(4)), draw.randrange(2)
            for number in range(1 + reported):
                await self.list_names(draw.choice(("the-one", "other")), *names, applied=str(number))
            return
        kind, name = draw.choice((CONFIGMAPS, SECRETS)), draw.choice(NAMES)
        await self.write(kind, "default", name, None if draw.random() < 0.3 else {"data": {"n": str(draw.random())}})

    def expected(self) -> dict[str, Object]:
        """The carried objects by the names of their items."""
        with self.store.snapshot() as snapshot:
            found = {kind.plural: snapshot.scan(Scope(kind.type, BOX)) for kind in (*CONFIGS, CONFIGMAPS, SECRETS)}
        configs = [decode(each.value) for each in found["syncerconfigs"]]
        listed = {
            (entry["resource"], name)
            for config in configs
            for entry in config["spec"]["namespacedObjects"]
            for name in entry["objectsByNamespace"][0]["names"]
        }
        objects = {f"syncerconfigs.edge.kubestellar.io::{each['metadata']['name']}": each for each in configs}
        for plural in ("configmaps", "secrets"):
            for obj in (decode(each.value) for each in found[plural]):
                if (plural, name := obj["metadata"]["name"]) in listed:
                    objects[f"{plural}.:default:{name}"] = obj
        return objects

    def listed(self, limit: int = 0) -> tuple[int, dict[str, Object]]:
        """Revision and items of a list, page by page."""
        found: dict[str, Object] = {}
        at, after = 0, None
        while True:
            page = self.rows.page(ITEMS, at=at, after=after, limit=limit)
            for value in page.values:
                item = decode(value)
                assert item["metadata"]["name"] not in found
                found[item["metadata"]["name"]] = item["object"]
            at, after = page.revision, page.after
            if after is None:
                return at, found


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[LmdbStore]:
    opened = open_store(store_options(tmp_path))
    yield opened
    await opened.close()


def follow(world: World, revision: int, state: dict[str, Object], limit: int, most: int = 1 << 30) -> int:
    """Apply at most so many events to the state of a client; return the revision from which it resumes."""
    cursor = world.rows.cursor(ITEMS, revision)
    try:
        while True:
            changes: list[Change] = list(cursor.read(limit))
            for change in changes[:most]:
                item = decode(change.after)
                name = item["metadata"]["name"]
                if change.operation is Operation.DELETED:
                    state.pop(name, None)
                else:
                    state[name] = item["object"]
                assert int(item["metadata"]["resourceVersion"]) >= revision
                revision = int(item["metadata"]["resourceVersion"])
            most -= len(changes)
            if most <= 0:
                return revision
            if len(changes) < limit:
                return cursor.position
    finally:
        cursor.close()


@pytest.mark.parametrize("seed", range(4))
async def test_a_client_that_is_cut_anywhere_ends_with_what_is_carried(store: LmdbStore, seed: int) -> None:
    world = World(store, seed)
    for _ in range(15):
        await world.step()
    revision, state = world.listed(limit=2)
    assert state == world.expected()
    for _ in range(12):
        for _ in range(world.random.randrange(8)):
            await world.step()
        revision = follow(world, revision, state, world.random.choice((1, 2, 500)), world.random.randrange(1, 6))
    follow(world, revision, state, 500)
    assert state == world.expected() == world.listed()[1]


async def test_what_a_list_shows_comes_before_it_and_has_the_revision_before(store: LmdbStore) -> None:
    world = World(store)
    for name in ("a", "b"):
        await world.write(CONFIGMAPS, "default", name, {"data": {}})
    revision, _ = world.listed()
    cursor = world.rows.cursor(ITEMS, revision)
    await world.list_names("the-one", "a", "b")
    items = [decode(change.after) for change in cursor.read(2)]
    items += [decode(change.after) for change in cursor.read(500)]
    at = items[-1]["metadata"]["resourceVersion"]
    assert [each["metadata"]["name"].rpartition(":")[2] for each in items] == ["a", "b", "the-one"]
    assert [int(at) - int(each["metadata"]["resourceVersion"]) for each in items] == [1, 1, 0]
    cursor.close()


async def test_a_report_of_the_syncer_reads_none_of_the_objects(
    store: LmdbStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, read = World(store), list[str]()
    await world.write(CONFIGMAPS, "default", "a", {"data": {}})
    await world.list_names("the-one", "a")
    revision, _ = world.listed()
    cursor = world.rows.cursor(ITEMS, revision)
    original = Carried.lists

    def lists(carried: Carried, ref: ObjectRef, value: bytes | None) -> bool:
        read.append(ref.name)
        return original(carried, ref, value)

    monkeypatch.setattr(Carried, "lists", lists)
    for applied in ("1", "2"):
        await world.list_names("the-one", "a", applied=applied)
        (change,) = cursor.read(500)
        assert decode(change.after)["object"]["status"] == {"applied": applied}
    assert read == []
    await world.list_names("the-one", "a", "b", applied="2")
    assert len(cursor.read(500)) == 1
    assert read, "another list is compared with what there is"
    cursor.close()


async def test_a_watch_from_beyond_the_list_window_goes_on_whatever_was_listed_since(tmp_path: Path) -> None:
    clock = HandClock()
    store = open_store(store_options(tmp_path, list_window_s=10), clock=clock.clock())
    try:
        world = World(store)
        for name in ("a", "b"):
            await world.write(CONFIGMAPS, "default", name, {"data": {}})
        await world.list_names("the-one", "a")
        revision, state = world.listed()
        await world.list_names("the-one", "b")
        await world.write(CONFIGMAPS, "default", "b", {"data": {"n": "1"}})
        clock.pass_time(3600)
        await world.write(CONFIGMAPS, "default", "a", None)
        follow(world, revision, state, 500)
        assert state == world.expected()
    finally:
        await store.close()
