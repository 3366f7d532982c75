"""Rows kept from one transaction to the next: what a snapshot reads is what the file holds, whatever was committed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from pathlib import Path

import pytest

from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.types import LOGICAL_CLUSTERS, NAMESPACES
from atoll.machinery.storage.contract import Check, GateState, Store
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from harness.data.stores import CONFIGMAPS, create, delete, key, put, replica, store_options

LAMPS = ResourceType("a.io", "lamps")
TYPES = (NAMESPACES, LAMPS)
SPACE = ObjectKey(NAMESPACES, "root", "", "default")
CLUSTER = ObjectKey(LOGICAL_CLUSTERS, "root", "", "cluster")


@pytest.fixture(params=[False, True], ids=["in the loop", "in a thread"])
async def store(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[LmdbStore]:
    opened = open_store(store_options(tmp_path, commit_in_thread=request.param))
    yield opened
    await opened.close()


def stamp(store: Store) -> Hashable:
    with store.snapshot() as snapshot:
        return snapshot.stamp(TYPES)


def last(store: Store) -> int:
    with store.snapshot() as snapshot:
        return snapshot.last(CONFIGMAPS, "root")


def space(store: Store) -> bytes | None:
    with store.snapshot() as snapshot:
        record = snapshot.get(SPACE)
        return record.value if record is not None else None


async def test_a_namespace_that_was_read_is_read_anew_once_it_changed(store: LmdbStore) -> None:
    assert space(store) is None
    [revision] = await store.submit([put(SPACE, data="first")])
    assert b"first" in (space(store) or b"")
    await create(store, "a")
    assert b"first" in (space(store) or b"")
    [revision] = await store.submit([put(SPACE, expected=revision, data="second")])
    assert b"second" in (space(store) or b"")
    await store.submit([delete(SPACE, revision)])
    assert space(store) is None


async def test_the_last_revision_of_a_type_is_that_of_its_last_write(store: LmdbStore) -> None:
    for name in ("a", "b", "c"):
        [revision] = await create(store, name)
        assert last(store) == last(store) == revision


async def test_a_stamp_is_another_one_after_each_change_of_its_types_and_of_replicas_alone(store: LmdbStore) -> None:
    [revision] = await store.submit([put(SPACE)])
    await create(store, "a")
    first = stamp(store)
    await store.submit([put(SPACE, expected=revision, data="second")])
    before = stamp(store)
    assert before != first
    await create(store, "b")
    assert stamp(store) == stamp(store) == before
    await store.submit([put(ObjectKey(LAMPS, "root", "", "new"))])
    with_lamps = stamp(store)
    assert with_lamps != before
    await store.submit([replica(key("far", cluster="elsewhere"), 5)])
    assert stamp(store) not in (before, with_lamps)


async def test_a_gate_follows_its_logical_cluster(store: LmdbStore) -> None:
    def state() -> GateState:
        with store.snapshot() as snapshot:
            return snapshot.gate("root").state

    await create(store, "a")
    assert state() is state() is GateState.CLOSED
    [revision] = await store.submit([put(CLUSTER, status={"phase": "Ready"})])
    opened = state()
    assert opened is not GateState.CLOSED
    await store.submit([delete(CLUSTER, revision)])
    assert state() is GateState.CLOSED


async def test_an_open_snapshot_reads_what_it_read_before_though_a_write_was_committed(store: LmdbStore) -> None:
    [first] = await store.submit([put(SPACE, data="first")])
    await create(store, "a")
    with store.snapshot() as snapshot:
        before = snapshot.last(NAMESPACES, "root"), snapshot.stamp(TYPES)
        await store.submit([put(SPACE, expected=first, data="second")])
        assert b"second" in (space(store) or b"")
        with store.snapshot() as later:
            assert later.last(NAMESPACES, "root") > first
            assert later.stamp(TYPES) != before[1]
        assert (snapshot.last(NAMESPACES, "root"), snapshot.stamp(TYPES)) == before
        found = snapshot.get(SPACE)
        assert found is not None
        assert b"first" in found.value


async def test_a_commit_that_is_not_reported_yet_is_read_from_the_file(store: LmdbStore) -> None:
    """As in the moment between the end of a commit in the thread and its report."""
    [first] = await create(store, "a")
    assert last(store) == first
    recent = store._environment.recent
    reported, rows = recent.transaction, dict(recent.rows)
    await create(store, "b")
    recent.transaction, recent.rows = reported, rows
    assert last(store) > first


async def test_another_thread_reads_the_file(store: LmdbStore) -> None:
    [first] = await create(store, "a")
    assert last(store) == first
    recent = store._environment.recent
    recent.rows = dict.fromkeys(recent.rows)
    assert last(store) == 0
    assert await asyncio.to_thread(last, store) == first


async def test_a_submit_that_writes_nothing_keeps_no_number_for_the_next_one(store: LmdbStore) -> None:
    [first] = await create(store, "a")
    assert last(store) == first
    await store.submit([Check(key("a"), first)])
    assert store._environment.recent.transaction[0] < 0
    [second] = await create(store, "b")
    assert last(store) == second
