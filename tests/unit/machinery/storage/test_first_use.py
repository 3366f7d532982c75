"""The first sum of what a quota's objects use: exact beside writes, in slices, and never long in the writer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from atoll.machinery.kinds.kubernetes.usage.charge import Amount
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.meta.types import RESOURCE_QUOTAS
from atoll.machinery.storage.contract import Delete, Put
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from atoll.machinery.storage.maintenance.fsck import fsck
from atoll.machinery.storage.writing import first_counts, first_use, limit_rows, sliced_reading
from atoll.machinery.storage.writing.first_use import FirstUse
from harness.data.stores import key, put, store_options

PODS = ResourceType("", "pods", "a" * 64)
SLICE, OBJECTS = 10, 95


def pod(name: str, cpu: int, expected: int = 0) -> Put:
    resources = {"requests": {"cpu": str(cpu)}}
    return put(key(name, type=PODS), expected=expected, spec={"containers": [{"name": "c", "resources": resources}]})


def quota(name: str = "q") -> Put:
    return put(key(name, type=RESOURCE_QUOTAS), spec={"hard": {"cpu": "1k", "pods": "1k"}})


@pytest.fixture
async def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LmdbStore]:
    monkeypatch.setattr(first_use, "SLICE_ROWS", SLICE)
    monkeypatch.setattr(first_use, "LOG_ROWS", 2 * SLICE)
    monkeypatch.setattr(first_counts, "SLICE_ROWS", SLICE)
    options = store_options(tmp_path / "store")
    made = open_store(options)
    await made.submit([pod(f"p{number:03}", 1) for number in range(OBJECTS)])
    yield made
    await made.close()
    assert fsck(options) == []


def used(store: LmdbStore) -> dict[str, Amount]:
    with store.snapshot() as snapshot:
        return {f"{each.quota}:{each.resource}": each.used for each in snapshot.limits(PODS, "root", "default")}


async def test_the_writer_reads_no_objects_for_the_sum(store: LmdbStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*arguments: object) -> None:
        pytest.fail("summed in the writer")

    monkeypatch.setattr(limit_rows, "use_of_all", never)
    await store.queue([quota()])
    assert used(store) == {"q:cpu": OBJECTS, "q:pods": OBJECTS}
    # The second quota takes the use of the first.
    monkeypatch.setattr(FirstUse, "run", never)
    await store.queue([quota("r")])
    assert used(store)["r:cpu"] == OBJECTS


async def test_what_is_written_beside_the_sum_counts_as_it_is_in_the_end(
    store: LmdbStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two slices Pods come, grow twice, and go, in front of, within and behind what was read."""
    turns = 0

    async def churn(delay_s: float) -> None:
        nonlocal turns
        turns += 1
        names = (f"a{turns}", f"p050-{turns}", f"z{turns}")
        for cpu in (1, 2, 3):
            with store.snapshot() as snapshot:
                found = [snapshot.revision_of(key(name, type=PODS)) for name in names]
            await store.submit([pod(name, cpu, revision) for name, revision in zip(names, found, strict=True)])
        with store.snapshot() as snapshot:
            doomed = [key(name, type=PODS) for name in (f"p{turns:03}", f"a{turns}")]
            gone = [Delete(each, snapshot.revision_of(each)) for each in doomed]
        await store.submit(gone)

    monkeypatch.setattr(sliced_reading, "asyncio", SimpleNamespace(sleep=churn))
    await store.queue([quota()])
    assert turns > OBJECTS / SLICE
    # Each time three came, with three each; one of them went, and one that had been there.
    assert used(store) == {"q:cpu": OBJECTS + 5 * turns, "q:pods": OBJECTS + turns}


async def test_where_the_log_was_compacted_meanwhile_the_writer_sums(
    store: LmdbStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    (use,) = first_counts.to_count(store._records, [quota()]).values()
    await use.run()
    environment = store._environment
    monkeypatch.setattr(type(environment), "compacted", lambda self, txn: self.last(txn) + 1)
    with environment.reading() as txn:
        assert use.at(txn) is None
    await store.submit([quota()])
    assert used(store)["q:cpu"] == OBJECTS
    monkeypatch.undo()


async def test_a_whole_cluster_is_summed_in_slices_too(store: LmdbStore) -> None:
    wide = put(
        key("w", type=RESOURCE_QUOTAS, namespace="admin"),
        metadata={"annotations": {"experimental.quota.kcp.io/cluster-scoped": "true"}},
        spec={"hard": {"cpu": "1k"}},
    )
    assert len(first_counts.to_count(store._records, [wide])) == 1
    await store.submit([wide])
    assert used(store) == {"w:cpu": OBJECTS}
