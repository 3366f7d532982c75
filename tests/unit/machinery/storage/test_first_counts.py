"""The first count of a quota: exact beside writes, in slices, and never long in the writer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from atoll.machinery.meta.types import CONFIG_MAPS, RESOURCE_QUOTAS
from atoll.machinery.storage.contract import Delete, Put
from atoll.machinery.storage.limits import Limit
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from atoll.machinery.storage.maintenance.fsck import fsck
from atoll.machinery.storage.writing import first_counts, sliced_reading
from atoll.machinery.storage.writing.first_counts import FirstCount
from atoll.machinery.storage.writing.limit_rows import LimitRows
from harness.data.stores import create, key, put, store_options

SLICE = 10
OBJECTS = 95


@pytest.fixture
async def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LmdbStore]:
    monkeypatch.setattr(first_counts, "SLICE_ROWS", SLICE)
    options = store_options(tmp_path / "store")
    made = open_store(options)
    await create(made, *(f"c{number:03}" for number in range(OBJECTS)))
    await made.submit([put(key("z", namespace="other"))])
    yield made
    await made.close()
    assert fsck(options) == []


def quota(name: str = "q", namespace: str = "default") -> Put:
    where = key(name, type=RESOURCE_QUOTAS, namespace=namespace)
    return put(where, spec={"hard": {"count/configmaps": "1000"}})


def used(store: LmdbStore) -> list[Limit]:
    with store.snapshot() as snapshot:
        return snapshot.limits(CONFIG_MAPS, "root", "default")


def count_of(store: LmdbStore) -> FirstCount:
    (found,) = first_counts.to_count(store._records, [quota()]).values()
    assert isinstance(found, FirstCount)
    return found


async def test_the_writer_reads_no_objects_for_the_count(store: LmdbStore, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    before = FirstCount._read

    def counting(self: FirstCount) -> bool:
        had, is_more = self._count, before(self)
        read.append(self._count - had)
        return is_more

    def never(self: LimitRows, prefix: bytes) -> int:
        pytest.fail("counted in the writer")

    monkeypatch.setattr(FirstCount, "_read", counting)
    monkeypatch.setattr(LimitRows, "_count", never)
    await store.queue([quota()])
    assert read == [SLICE] * 9 + [5]
    assert used(store) == [Limit("q", "count/configmaps", 1000, OBJECTS)]
    # The second quota takes the use of the first.
    await store.submit([quota("r")])
    assert len(read) == 10 and [each.used for each in used(store)] == [OBJECTS, OBJECTS]


async def test_what_comes_and_goes_beside_the_count_is_counted_once(
    store: LmdbStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two slices objects come and go in front of, within and behind what was counted."""
    turns = 0

    async def churn(delay_s: float) -> None:
        nonlocal turns
        turns += 1
        await create(store, f"a{turns}", f"c050-{turns}", f"z{turns}")
        with store.snapshot() as snapshot:
            doomed = [(name, snapshot.revision_of(key(name))) for name in (f"c{turns:03}", f"a{turns}")]
        await store.submit([Delete(key(name), revision) for name, revision in doomed])

    monkeypatch.setattr(sliced_reading, "asyncio", SimpleNamespace(sleep=churn))
    await store.queue([quota()])
    assert turns > OBJECTS / SLICE
    # Three came and two went each time.
    assert [each.used for each in used(store)] == [OBJECTS + turns]


async def test_where_the_log_was_compacted_meanwhile_the_writer_counts(
    store: LmdbStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = count_of(store)
    await count.run()
    await create(store, "later")
    environment = store._environment
    with environment.reading() as txn:
        assert count.at(txn) == OBJECTS + 1
    monkeypatch.setattr(type(environment), "compacted", lambda self, txn: self.last(txn))
    with environment.reading() as txn:
        assert count.at(txn) is None
    await store.submit([quota()])
    assert [each.used for each in used(store)] == [OBJECTS + 1]
    monkeypatch.undo()


async def test_few_objects_and_whole_clusters_are_counted_by_the_writer(store: LmdbStore) -> None:
    def needed(*quotas: Put) -> int:
        return len(first_counts.to_count(store._records, quotas))

    wide = put(
        key("w", type=RESOURCE_QUOTAS, namespace="admin"),
        metadata={"annotations": {"experimental.quota.kcp.io/cluster-scoped": "true"}},
        spec={"hard": {"count/configmaps": "1000"}},
    )
    assert (needed(quota()), needed(wide), needed(put(key("a")))) == (1, 0, 0)
    assert needed(quota(namespace="other"), quota()) == 2
    few = put(key("s", type=RESOURCE_QUOTAS), spec={"hard": {"count/secrets": "3"}})
    assert needed(few) == 0


async def test_counts_are_made_one_after_the_other(store: LmdbStore, monkeypatch: pytest.MonkeyPatch) -> None:
    running: set[FirstCount] = set()
    most = 0
    before = FirstCount.run

    async def run(self: FirstCount) -> None:
        nonlocal most
        running.add(self)
        most = max(most, len(running))
        await before(self)
        running.discard(self)

    monkeypatch.setattr(FirstCount, "run", run)
    await asyncio.gather(*(store.queue([quota(name)]) for name in "qrs"))
    assert most == 1 and [each.used for each in used(store)] == [OBJECTS] * 3
