"""In-process writes of an object that another writer changes or deletes between the read and the write."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from atoll.machinery.apiserver.call.options import DeleteOptions
from atoll.machinery.apiserver.writing.batch import LOST, Batch
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import Object, decode, labels_of
from atoll.machinery.meta.status import Invalid
from atoll.machinery.meta.types import NAMESPACES
from atoll.machinery.process.retry import ATTEMPTS
from atoll.machinery.storage.contract import Delete, RevisionUnchanged
from harness.servers.in_process.minimal_shard import Cell, cell

HOME, NAME = "home", "space"
KEY = ObjectKey(NAMESPACES, HOME, "", NAME)


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Cell]:
    async with cell(tmp_path) as made:
        await made.cluster(HOME)
        await made.put(NAMESPACES, HOME, {"metadata": {"name": NAME}})
        yield made


def target(here: Cell) -> Target:
    return Target(here.kind(NAMESPACES), HOME, "", NAME)


def read(here: Cell) -> Object:
    found = here.loopback.get(NAMESPACES, HOME, "", NAME)
    assert found is not None
    return found


def labelled(obj: Object, value: str) -> Object:
    return {**obj, "metadata": {**obj["metadata"], "labels": {**labels_of(obj), value: ""}}}


def unchanged(obj: Object) -> RevisionUnchanged:
    return RevisionUnchanged(KEY, int(obj["metadata"]["resourceVersion"]))


async def write(here: Cell, value: str) -> None:
    await here.loopback.update(target(here), labelled(read(here), value))


async def remove(here: Cell) -> None:
    await here.store.submit([Delete(KEY, int(read(here)["metadata"]["resourceVersion"]))])


async def test_an_update_of_a_changed_object_returns_none(here: Cell) -> None:
    before = read(here)
    stored = await here.loopback.try_update(target(here), labelled(before, "first"))
    assert stored is not None and "first" in labels_of(stored)
    assert await here.loopback.try_update(target(here), labelled(before, "second")) is None
    assert "second" not in labels_of(read(here))


async def test_an_update_of_a_deleted_object_returns_none(here: Cell) -> None:
    before = read(here)
    await remove(here)
    assert await here.loopback.try_update(target(here), labelled(before, "late")) is None
    assert here.loopback.get(NAMESPACES, HOME, "", NAME) is None


async def test_an_update_that_is_invalid_still_raises(here: Cell) -> None:
    with pytest.raises(Invalid):
        await here.loopback.try_update(target(here), labelled(read(here), "no label!"))


async def test_a_batch_planned_before_another_write_is_not_applied(here: Cell) -> None:
    late, missing, right = here.loopback.batch(), here.loopback.batch(), here.loopback.batch()
    late.update(target(here), labelled(read(here), "late"))
    await write(here, "first")
    assert not await late.try_submit()
    missing.delete(target(here), DeleteOptions())
    right.update(target(here), labelled(read(here), "right"))
    assert await right.try_submit()
    await remove(here)
    assert not await missing.try_submit()


async def test_a_lost_batch_is_filled_again_from_the_newer_state(here: Cell) -> None:
    before = read(here)
    await write(here, "first")
    seen: list[Object] = []

    def fill(batch: Batch) -> None:
        record = batch.get(KEY)
        assert record is not None
        seen.append(decode(record.value))
        if len(seen) == 1:
            batch.guard(unchanged(before))
        batch.update(target(here), labelled(seen[-1], "filled"))

    await here.loopback.submit(fill)
    assert len(seen) == 2 and labels_of(read(here)).keys() >= {"first", "filled"}


async def test_a_batch_that_is_always_lost_raises_after_all_attempts(here: Cell) -> None:
    before, fills = read(here), list[int]()
    await write(here, "first")

    def fill(batch: Batch) -> None:
        fills.append(1)
        batch.guard(unchanged(before))
        batch.update(target(here), labelled(read(here), "filled"))

    with pytest.raises(LOST):
        await here.loopback.submit(fill)
    assert len(fills) == ATTEMPTS
