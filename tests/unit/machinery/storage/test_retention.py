"""Retention of the store: compaction, expiry and the list window; also the damage that fsck reports."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.types import EVENTS
from atoll.machinery.storage import sealing
from atoll.machinery.storage.contract import Operation, RevisionCompacted, Scope
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from atoll.machinery.storage.maintenance.fsck import fsck
from harness.clients.raw_http import until
from harness.data.store_damage import KINDS, Damage, spoil
from harness.data.stores import CONFIGMAPS, HandClock, create, delete, key, listed, put, store_options

HERE = Scope(CONFIGMAPS, "root")


@pytest.fixture
def time() -> HandClock:
    return HandClock()


async def close_and_check(store: LmdbStore) -> None:
    await store.close()
    assert fsck(store.options) == []


async def test_compaction_by_age_drops_a_prefix_and_keeps_what_stands(tmp_path: Path, time: HandClock) -> None:
    store = open_store(store_options(tmp_path, log_retention_s=100), clock=time.clock())
    first, second, gone = await create(store, "a", "b", "gone")
    [gone] = await store.submit([delete(key("gone"), gone)])
    time.pass_time(101)
    [third] = await store.submit([put(key("a"), expected=first, data="new")])
    assert await store.compact() == 4
    assert store.compacted == gone
    assert [entry.revision for entry in store.tail(gone)] == [third]
    assert len(listed(store, HERE, at=gone)) == 2
    with pytest.raises(RevisionCompacted):
        store.page(HERE, at=second)
    time.pass_time(101)
    await store.compact()
    with store.snapshot() as snapshot:
        assert snapshot.get(key("a")) is not None
        assert snapshot.get(key("b")) is not None
    await store.submit([put(key("b"), expected=second)])
    await close_and_check(store)


async def test_compaction_by_bytes_keeps_the_newest(tmp_path: Path, time: HandClock) -> None:
    options = store_options(tmp_path, log_retention_bytes=50_000)
    store = open_store(options, clock=time.clock())
    revision = 0
    revisions = []
    for _ in range(100):
        [revision] = await store.submit([put(key("a"), expected=revision, data="x" * 2000)])
        revisions.append(revision)
    await store.compact()
    kept = store.tail(store.compacted)
    assert [entry.revision for entry in kept] == revisions[-len(kept) :]
    assert 20 < len(kept) < 26
    await close_and_check(store)


async def test_compaction_waits_for_the_publisher(tmp_path: Path, time: HandClock) -> None:
    store = open_store(store_options(tmp_path, log_retention_s=100), clock=time.clock())
    first, second, _ = await create(store, "a", "b", "c")
    store.set_published(0)
    time.pass_time(1000)
    assert await store.compact() == 0
    await create(store, "d")
    store.set_published(second)
    # Compaction follows the saved mark: a publisher that starts after a crash must find all later changes.
    assert await store.compact() == 0
    await create(store, "e")
    assert await store.compact() == 2
    assert store.compacted == second
    assert first < second
    await close_and_check(store)


async def test_a_full_disk_takes_published_history_first_and_then_alarms(tmp_path: Path, time: HandClock) -> None:
    alarms: list[str] = []
    store = open_store(store_options(tmp_path), clock=time.clock(), alarm=lambda event, **_facts: alarms.append(event))
    _, second, third = await create(store, "a", "b", "c")
    store.set_published(second)
    store.space._options = store_options(tmp_path, reserve_bytes=1 << 60)
    time.pass_time(2)
    await store._writer.run(lambda _application, _txn: None)
    await store.compact()
    assert store.compacted == second
    assert alarms == []
    await store.compact()
    assert store.compacted == third
    assert alarms == ["log compacted past published"]
    await close_and_check(store)


async def test_compaction_is_done_in_steps_between_which_writers_commit(tmp_path: Path, time: HandClock) -> None:
    store = open_store(store_options(tmp_path, log_retention_s=100), clock=time.clock())
    await asyncio.gather(*(create(store, f"n{index}") for index in range(1000)))
    time.pass_time(200)
    before = store.stats.commits
    compacting = asyncio.create_task(store.compact())
    [revision] = await create(store, "between")
    assert not compacting.done()
    assert await compacting == 1000
    assert store.stats.commits - before >= 4
    assert [entry.revision for entry in store.tail(store.compacted)] == [revision]
    await close_and_check(store)


async def test_a_counter_row_goes_only_when_its_last_change_is_compacted(tmp_path: Path, time: HandClock) -> None:
    store = open_store(store_options(tmp_path, log_retention_s=100), clock=time.clock())
    [first] = await create(store, "a")
    await store.submit([delete(key("a"), first)])
    time.pass_time(101)
    [second] = await create(store, "a")
    [last] = await store.submit([delete(key("a"), second)])
    await store.compact()
    with store.snapshot() as snapshot:
        assert snapshot.last(CONFIGMAPS, "root") == snapshot.last(CONFIGMAPS, "") == last
    time.pass_time(101)
    await store.compact()
    with store.snapshot() as snapshot:
        assert snapshot.last(CONFIGMAPS, "root") == snapshot.last(CONFIGMAPS, "") == 0
    await close_and_check(store)


async def test_events_go_an_hour_after_their_last_write(tmp_path: Path, time: HandClock) -> None:
    store = open_store(store_options(tmp_path), clock=time.clock())
    old, young, held = (ObjectKey(EVENTS, "root", "default", name) for name in ("old", "young", "held"))
    await store.submit([put(old)])
    [revision] = await store.submit([put(young)])
    await store.submit([put(held, metadata={"finalizers": ["x/y"]})])
    await create(store, "configmap")
    time.pass_time(1800)
    await store.submit([put(young, expected=revision)])
    assert await store.expire() == 0
    time.pass_time(1801)
    cursor = store.cursor(Scope(EVENTS, "root"), store.hub.last)
    assert await store.expire() == 1
    assert [(change.operation, change.key) for change in cursor.read()] == [(Operation.DELETED, old)]
    time.pass_time(1800)
    assert await store.expire() == 1
    with store.snapshot() as snapshot:
        assert [record.key for record in snapshot.scan(Scope(EVENTS))] == [held]
        assert snapshot.get(key("configmap")) is not None
    await close_and_check(store)


async def test_maintenance_goes_past_an_object_that_does_not_open(tmp_path: Path, time: HandClock) -> None:
    for name in ("lost", "kept"):
        sealing.ensure_key_file(tmp_path / name)
    bad, good = (ObjectKey(EVENTS, "root", "default", name) for name in ("bad", "good"))
    for key_name, event in (("lost", bad), ("kept", good)):
        options = store_options(tmp_path / "s", sealed_types=(EVENTS,), key_file=str(tmp_path / key_name))
        store = open_store(options, clock=time.clock(), alarm=lambda *_event, **_facts: None)
        await store.submit([put(event)])
        if event is bad:
            await store.close()
    time.pass_time(3601)
    await store.maintain()
    with store.snapshot() as snapshot:
        assert snapshot.revision_of(bad)
        assert not snapshot.revision_of(good)
    await store.close()


async def test_an_exact_revision_expires_with_the_entry_above_it(tmp_path: Path, time: HandClock) -> None:
    store = open_store(store_options(tmp_path, list_window_s=300), clock=time.clock())
    [first] = await create(store, "a")
    time.pass_time(10_000)
    # The current state does not expire at any age.
    assert len(listed(store, HERE, at=first)) == 1
    [second] = await create(store, "b")
    time.pass_time(300)
    assert len(listed(store, HERE, at=first)) == 1
    time.pass_time(1)
    with pytest.raises(RevisionCompacted):
        store.page(HERE, at=first)
    assert len(listed(store, HERE, at=second)) == 2
    await close_and_check(store)


async def test_maintenance_goes_on_by_itself(tmp_path: Path, time: HandClock) -> None:
    options = store_options(tmp_path, log_retention_s=100, maintenance_interval_s=0.01)
    store = open_store(options, clock=time.clock())
    maintenance = asyncio.create_task(store.run_maintenance())
    [first] = await create(store, "a")
    time.pass_time(101)
    await until(lambda: store.compacted >= first)
    maintenance.cancel()
    await asyncio.gather(maintenance, return_exceptions=True)
    await close_and_check(store)


# --- fsck must be able to fail


@pytest.mark.parametrize(("damage", "where"), KINDS)
async def test_fsck_finds_each_kind_of_damage(tmp_path: Path, damage: Damage, where: str) -> None:
    store = open_store(store_options(tmp_path))
    metadata = {"ownerReferences": [{"uid": "u"}], "labels": {"claimed.internal.apis.kcp.io/x": "y"}}
    first, _ = await create(store, "a", "b")
    await store.submit([put(key("a"), expected=first, metadata=metadata)])
    await store.submit([put(key("a"), expected=store.hub.last, metadata=metadata, data="2")])
    await close_and_check(store)
    spoil(tmp_path, damage)
    assert where in {problem.where for problem in fsck(store_options(tmp_path))}
