"""The configuration cache over a store: what drops its answers, and what does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll.machinery.apiserver.authorization import state_versions
from atoll.machinery.apiserver.authorization.chain import MASTER
from atoll.machinery.apiserver.configuration_cache import MAX_ENTRIES, TYPES, Access, Configuration, ConfigurationCache
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.meta.types import API_BINDINGS, API_CONVERSIONS, CRDS, LOGICAL_CLUSTERS
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from harness.data.stores import create, delete, key, put, replica, store_options

WORKSPACES = ResourceType("tenancy.kcp.io", "workspaces", "hash")


def at(cache: ConfigurationCache, store: LmdbStore) -> Configuration:
    with store.snapshot() as snapshot:
        return cache.at(snapshot)


def test_it_follows_everything_that_decisions_and_catalogues_derive_from() -> None:
    assert set(state_versions.SOURCES) <= set(TYPES)
    assert {LOGICAL_CLUSTERS, API_BINDINGS, CRDS, API_CONVERSIONS} <= set(TYPES)


@pytest.mark.parametrize("type", [*TYPES, WORKSPACES], ids=lambda type: type.resource)
async def test_each_change_of_a_type_in_any_cluster_drops_the_answers(tmp_path: Path, type: ResourceType) -> None:
    store, cache = open_store(store_options(tmp_path)), ConfigurationCache((WORKSPACES,))
    # The first object of a type is the first row of its kind anywhere.
    before = at(cache, store)
    [created] = await create(store, "a", cluster="far", namespace="", type=type)
    after_create = at(cache, store)
    target = key("a", cluster="far", namespace="", type=type)
    [changed] = await store.submit([put(target, expected=created, data="b")])
    after_update = at(cache, store)
    await store.submit([delete(target, changed)])
    after_delete = at(cache, store)
    assert len({id(each) for each in (before, after_create, after_update, after_delete)}) == 4
    await store.close()


async def test_other_changes_keep_the_answers(tmp_path: Path) -> None:
    store, cache = open_store(store_options(tmp_path)), ConfigurationCache(())
    before = at(cache, store)
    await create(store, "a")
    assert at(cache, store) is before
    await store.close()


async def test_a_replica_drops_the_answers(tmp_path: Path) -> None:
    store, cache = open_store(store_options(tmp_path)), ConfigurationCache(())
    before = at(cache, store)
    await store.submit([replica(key("a", cluster="far"), 5)])
    assert at(cache, store) is not before
    await store.close()


async def test_an_older_snapshot_does_not_get_newer_answers(tmp_path: Path) -> None:
    store, cache = open_store(store_options(tmp_path)), ConfigurationCache(())
    with store.snapshot() as older:
        first = cache.at(older)
        await create(store, "a", cluster="far", namespace="", type=CRDS)
        newer = at(cache, store)
        assert newer is not first
        assert cache.at(older) is not newer
    await store.close()


def test_its_tables_are_bounded() -> None:
    configuration = Configuration()
    for number in range(MAX_ENTRIES + 1):
        configuration.add_target(f"root:{number}", "c")
        configuration.add_access(number, Access(MASTER))
    assert len(configuration.targets) == len(configuration.accesses) == 1
