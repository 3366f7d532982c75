"""Pages of a scope in a batch: stored rows merged with the batch's own writes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from atoll.machinery.apiserver.call.options import DeleteOptions
from atoll.machinery.apiserver.writing.batch import Batch
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.types import CLUSTER_ROLES
from atoll.machinery.storage.contract import Position, Scope, Snapshot
from atoll.machinery.storage.pages import position_after
from harness.servers.in_process.minimal_shard import Cell, cell

HOME = "home"
STORED = ["b", "d", "f", "h", "j"]


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Cell]:
    async with cell(tmp_path) as made:
        await made.cluster(HOME)
        for name in STORED:
            await made.put(CLUSTER_ROLES, HOME, role(name))
        yield made


def role(name: str) -> dict[str, object]:
    return {"metadata": {"name": name}, "rules": []}


def target(here: Cell, name: str) -> Target:
    return Target(here.kind(CLUSTER_ROLES), HOME, "", name)


def pages(batch: Batch, limit: int) -> list[list[str]]:
    """The names of each page, up to the first that is not full."""
    found: list[list[str]] = []
    after: Position | None = None
    while not found or len(found[-1]) == limit:
        page = batch.scan(Scope(CLUSTER_ROLES, HOME), after, limit)
        found.append([record.key.name for record in page])
        after = position_after(page[-1].key) if page else after
    return found


def revisions_by_scan(batch: Batch, after: Position | None, limit: int) -> list[tuple[ObjectKey, int]]:
    """Keys and revisions of the records of a page; a new object has no revision."""
    return [(record.key, record.revision) for record in batch.scan(Scope(CLUSTER_ROLES, HOME), after, limit)]


@pytest.mark.parametrize("limit", [1, 2, 3, 500])
async def test_pages_of_a_batch_show_each_object_once_and_leave_none_out(here: Cell, limit: int) -> None:
    batch = here.loopback.batch()
    for name in ("a", "e", "z"):
        batch.create(target(here, name), role(name))
    for name in ("b", "d"):
        batch.delete(target(here, name), DeleteOptions())
    scope, after = Scope(CLUSTER_ROLES, HOME), Position("", "c", "")
    assert batch.revisions(scope, None, limit) == revisions_by_scan(batch, None, limit)
    assert batch.revisions(scope, after, limit) == revisions_by_scan(batch, after, limit)
    found = pages(batch, limit)
    assert [name for page in found for name in page] == ["a", "e", "f", "h", "j", "z"]
    assert all(len(page) == limit for page in found[:-1])


async def test_what_a_batch_deletes_makes_no_page_short(here: Cell) -> None:
    batch = here.loopback.batch()
    batch.delete(target(here, "b"), DeleteOptions())
    assert pages(batch, 2) == [["d", "f"], ["h", "j"], []]


async def test_what_fills_a_batch_reads_one_snapshot_and_later_reads_see_the_latest_state(
    here: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []
    store, scope = here.loopback.store, Scope(CLUSTER_ROLES, HOME)
    begin = store.snapshot

    def snapshot() -> AbstractContextManager[Snapshot]:
        opened.append(1)
        return begin()

    def fill(batch: Batch) -> None:
        monkeypatch.setattr(store, "snapshot", snapshot)
        assert [len(page) for page in pages(batch, 2)] == [2, 2, 1]
        assert batch.revision_of(batch.scan(scope)[0].key) and batch.replicas.empty
        assert not opened

    batch = here.loopback.batch()
    batch.fill(fill)
    monkeypatch.undo()
    await here.put(CLUSTER_ROLES, HOME, role("z"))
    assert pages(batch, 500) == [[*STORED, "z"]]
