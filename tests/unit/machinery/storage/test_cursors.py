"""Cursors far behind: the log, the chain of a type, the versions of a prefix, and the bounds of the ring."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from atoll.machinery.meta.names import ResourceType
from atoll.machinery.storage.contract import Change, Cursor, DeletePrefix, Operation, RevisionCompacted, Scope
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from atoll.machinery.storage.reading.log_reader import LogReader
from atoll.machinery.storage.watching.cursors import SCAN_ROWS
from atoll.machinery.storage.watching.ring import Ring
from harness.data.stores import CONFIGMAPS, HandClock, create, delete, key, put, store_options

OTHER = ResourceType("apps", "deployments")


async def many(store: LmdbStore, count: int, **where: object) -> list[int]:
    """Create many objects in few commits."""
    submits = [store.submit([put(key(f"n{index:05}", **where))]) for index in range(count)]  # type: ignore[arg-type]
    return [revision for [revision] in await asyncio.gather(*submits)]


def drain(cursor: Cursor, last: int, limit: int = 500) -> tuple[list[Change], int]:
    """Return the changes up to a revision, and the number of reads."""
    found, reads = [*cursor.read(limit)], 1
    while cursor.position < last:
        found += cursor.read(limit)
        reads += 1
    return found, reads


@pytest.fixture
async def busy(tmp_path: Path) -> AsyncIterator[LmdbStore]:
    """A store with few changes in cluster c, at the start and at the end, among many in other clusters."""
    store = open_store(store_options(tmp_path, ring_bytes=1))
    first, _ = await create(store, "a", "b", cluster="c")
    [other] = await create(store, "a", cluster="c", type=OTHER)
    await many(store, 2 * SCAN_ROWS + 500, cluster="elsewhere")
    await many(store, 700, cluster="c2", type=OTHER)
    await store.submit([put(key("a", cluster="c", type=OTHER), expected=other)])
    await store.submit([delete(key("a", cluster="c"), first)])
    yield store
    await store.close()


async def test_a_cluster_far_behind_is_read_by_its_chain_and_not_through_the_log(busy: LmdbStore) -> None:
    found, reads = drain(busy.cursor(Scope(CONFIGMAPS, "c"), 0), busy.hub.last)
    operations = [(change.operation, change.key.name) for change in found]
    assert operations == [(Operation.ADDED, "a"), (Operation.ADDED, "b"), (Operation.DELETED, "a")]
    assert reads == 1


async def test_a_wildcard_of_a_small_type_is_read_by_its_versions(busy: LmdbStore) -> None:
    found, reads = drain(busy.cursor(Scope(OTHER), 0), busy.hub.last, 10_000)
    assert [change.key.cluster for change in found] == ["c"] + ["c2"] * 700 + ["c"]
    assert reads == 1
    revisions = [change.revision for change in found]
    assert revisions == sorted(revisions)


async def test_a_detour_longer_than_the_limit_is_given_in_portions(busy: LmdbStore) -> None:
    found, _ = drain(busy.cursor(Scope(CONFIGMAPS, "c"), 0), busy.hub.last, 2)
    assert [change.key.name for change in found] == ["a", "b", "a"]
    found, _ = drain(busy.cursor(Scope(OTHER), 0), busy.hub.last, 100)
    assert len({change.revision for change in found}) == len(found) == 702


async def test_a_busy_scope_is_read_through_the_log_in_bounded_reads(busy: LmdbStore) -> None:
    cursor = busy.cursor(Scope(CONFIGMAPS, "elsewhere"), 0)
    found, reads = drain(cursor, busy.hub.last, 10_000)
    assert len({change.revision for change in found}) == len(found) == 2 * SCAN_ROWS + 500
    assert reads >= 3
    assert not cursor.read()


async def test_a_namespace_of_all_clusters_is_followed_through_the_log(busy: LmdbStore) -> None:
    found, _ = drain(busy.cursor(Scope(CONFIGMAPS, "", "default"), 0), busy.hub.last)
    assert len(found) == 2 * SCAN_ROWS + 503
    found, _ = drain(busy.cursor(Scope(CONFIGMAPS, "", "none"), 0), busy.hub.last)
    assert found == []


async def test_commits_while_catching_up_are_neither_lost_nor_given_twice(busy: LmdbStore) -> None:
    cursor = busy.cursor(Scope(CONFIGMAPS, "elsewhere"), 0)
    found = [*cursor.read(300)]
    late = await many(busy, 5, cluster="elsewhere", namespace="late")
    more, _ = drain(cursor, busy.hub.last, 300)
    revisions = [change.revision for change in found + more]
    assert revisions == sorted(set(revisions))
    assert revisions[-5:] == late
    assert len(revisions) == 2 * SCAN_ROWS + 505


async def test_an_idle_watch_skips_what_did_not_concern_it(tmp_path: Path) -> None:
    """Its position is stale and older than the entries of the ring, yet the watch needs no new list."""
    time = HandClock()
    store = open_store(store_options(tmp_path, ring_bytes=10_000, log_retention_s=60), clock=time.clock())
    cursor = store.cursor(Scope(CONFIGMAPS, "quiet"), 0)
    assert not cursor.read()
    await many(store, 100)
    time.pass_time(120)
    await store.compact()
    [revision] = await create(store, "a", cluster="quiet")
    assert cursor.position < revision
    assert [change.revision for change in cursor.read()] == [revision]
    await store.close()


async def test_a_watch_that_compaction_passed_is_told(tmp_path: Path) -> None:
    time = HandClock()
    store = open_store(store_options(tmp_path, ring_bytes=1, log_retention_s=60), clock=time.clock())
    [first] = await create(store, "a")
    slow = store.cursor(Scope(CONFIGMAPS, "root"), first)
    *_, last = await create(store, "b", "c")
    time.pass_time(120)
    await store.compact()
    with pytest.raises(RevisionCompacted):
        slow.read()
    for missed in (first, last - 1):
        with pytest.raises(RevisionCompacted):
            store.cursor(Scope(CONFIGMAPS, "root"), missed)
    assert not store.cursor(Scope(CONFIGMAPS, "root"), last).read()
    with pytest.raises(RevisionCompacted):
        store.tail(first)
    await store.close()


async def test_a_watch_of_a_quiet_scope_is_not_told_of_compaction(tmp_path: Path) -> None:
    """The cursor is opened before other clusters are written and compacted, and read afterwards."""
    time = HandClock()
    store = open_store(store_options(tmp_path, ring_bytes=1, log_retention_s=60), clock=time.clock())
    [quiet] = await create(store, "a", cluster="quiet")
    cursor = store.cursor(Scope(CONFIGMAPS, "quiet"), quiet)
    await many(store, 5)
    time.pass_time(120)
    await store.compact()
    assert not cursor.read()
    assert cursor.position == store.hub.last
    await store.close()


async def test_below_compaction_a_watch_resumes_where_nothing_happened_since(tmp_path: Path) -> None:
    time = HandClock()
    store = open_store(store_options(tmp_path, ring_bytes=1, log_retention_s=60), clock=time.clock())
    [quiet] = await create(store, "a", cluster="quiet")
    await many(store, 5)
    time.pass_time(120)
    await store.compact()
    cursor = store.cursor(Scope(CONFIGMAPS, "quiet"), quiet)
    assert not cursor.read()
    assert cursor.position == store.hub.last
    [revision] = await create(store, "b", cluster="quiet")
    assert [change.revision for change in cursor.read()] == [revision]
    # A missing row proves nothing: in a cluster without rows the store cannot determine what a watch missed.
    await store.submit([DeletePrefix(Scope(CONFIGMAPS, "quiet"))])
    time.pass_time(120)
    await store.compact()
    with store.snapshot() as snapshot:
        assert snapshot.last(CONFIGMAPS, "quiet") == 0
    with pytest.raises(RevisionCompacted):
        store.cursor(Scope(CONFIGMAPS, "quiet"), quiet)
    await store.close()


async def test_a_closed_watch_leaves_nothing_behind(tmp_path: Path) -> None:
    store = open_store(store_options(tmp_path))
    cursors = [store.cursor(Scope(CONFIGMAPS, f"c{index}"), 0) for index in range(10)]
    assert store.hub.watchers == 10
    for cursor in cursors:
        cursor.close()
        cursor.close()
    assert store.hub.watchers == 0
    await store.close()


def change(revision: int, size_bytes: int) -> Change:
    return Change(revision, Operation.ADDED, key("a"), None, b"x" * size_bytes)


def test_the_ring_is_bounded_in_bytes_and_knows_its_floor() -> None:
    ring = Ring(0, 100_000)
    for revision in range(1, 20_001):
        ring.extend([change(revision, 400)])
        assert ring.size_bytes <= 100_000
    assert len(ring) == 100
    assert ring.floor == 19_900
    assert [held.revision for held in ring.above(19_950, 1000)] == list(range(19_951, 20_001))
    assert [held.revision for held in ring.above(ring.floor, 1000)] == list(range(19_901, 20_001))


def test_a_change_larger_than_the_ring_empties_it() -> None:
    ring = Ring(0, 1000)
    ring.extend([change(1, 10), change(2, 5000)])
    assert len(ring) == 0
    assert ring.floor == 2


def test_what_the_ring_dropped_is_soon_not_held() -> None:
    payloads = [bytes(1000) for _ in range(200)]
    ring = Ring(0, 16_000)
    idle = [sys.getrefcount(payload) for payload in payloads]
    for revision in range(1, 201):
        ring.extend([Change(revision, Operation.ADDED, key("a"), None, payloads[revision - 1])])
    after = [sys.getrefcount(payload) for payload in payloads]
    held = sum(now > before for now, before in zip(after, idle, strict=True))
    assert len(ring) <= held <= len(ring) + 2


async def test_what_the_log_gives_up_to_the_limit_is_not_read_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of one read end with the limit reached, and more rows follow."""
    store = open_store(store_options(tmp_path, ring_bytes=1))
    await many(store, 5, cluster="c")
    await many(store, 5)

    def detour(*_: object) -> None:
        raise AssertionError("the chain is read although the log gave enough")

    cursor = store.cursor(Scope(CONFIGMAPS, "c"), 0)
    with monkeypatch.context() as patched:
        patched.setattr(LogReader, "chain", detour)
        assert len(cursor.read(5)) == 5
    await store.close()
