"""What a plug-in writes beside an object: in its transaction, planned again when another writer was first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from atoll.machinery.apiserver.admission.chain import Admission, Plugin, Review
from atoll.machinery.apiserver.call.options import DeleteOptions
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode, encode, labels_of
from atoll.machinery.meta.status import ServiceUnavailable
from atoll.machinery.meta.types import NAMESPACES
from atoll.machinery.storage.contract import Delete, Gate, GateState, Put
from harness.models.rbac_snapshot import FakeStore
from harness.servers.in_process.minimal_shard import Cell, cell

HOME = "home"
NUMBERS = ResourceType("internal.example.com", "numbers")


def number(value: int) -> ObjectKey:
    return ObjectKey(NUMBERS, HOME, "", str(value))


class Numbers(Plugin):
    """Gives each Namespace the first number that is free in its view, unless `fixed`."""

    resources = (("", "namespaces"),)
    reviews_deletions = True
    fixed = False

    def validate(self, review: Review) -> None:
        if review.obj is not None:
            taken = (value for value in range(9) if self.fixed or review.view.get(number(value)) is None)
            review.writes.append(Put(number(next(taken)), *encode({"metadata": {"name": review.name}}), 0))
        else:
            review.writes.append(Delete(number(0), review.view.revision_of(number(0))))


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Cell]:
    async with cell(tmp_path) as made:
        await made.cluster(HOME)
        made.admit(Numbers())
        yield made


def target(here: Cell, name: str) -> Target:
    return Target(here.kind(NAMESPACES), HOME, "", name)


def holders(here: Cell) -> dict[str, str]:
    with here.store.snapshot() as snapshot:
        found = [snapshot.get(number(value)) for value in range(9)]
    return {each.key.name: decode(each.value)["metadata"]["name"] for each in found if each is not None}


def labelled(obj: Object) -> Object:
    return {**obj, "metadata": {**obj["metadata"], "labels": {**labels_of(obj), "a": "b"}}}


async def made(here: Cell, name: str) -> Object:
    return await here.loopback.create(target(here, name), {"metadata": {"name": name}})


async def test_a_record_is_written_with_its_object_and_by_the_batch_that_writes_it(here: Cell) -> None:
    await made(here, "a")
    batch = here.loopback.batch()
    for name in ("b", "c"):
        batch.create(target(here, name), {"metadata": {"name": name}})
    await batch.submit()
    assert holders(here) == {"0": "a", "1": "b", "2": "c"}


async def test_a_deletion_that_finalizers_delay_leaves_the_record(here: Cell) -> None:
    await made(here, "a")
    await here.loopback.delete(target(here, "a"), DeleteOptions())
    assert here.loopback.get(NAMESPACES, HOME, "", "a") is not None
    assert holders(here) == {"0": "a"}


async def test_writes_that_take_the_same_record_are_planned_again_until_each_has_its_own(here: Cell) -> None:
    """Updates from a known revision too: the conflict is not about the client's object."""
    objects = [await made(here, name) for name in "abc"]
    await asyncio.gather(
        *(here.loopback.update(target(here, each["metadata"]["name"]), labelled(each)) for each in objects)
    )
    assert sorted(holders(here).values()) == ["a", "a", "b", "b", "c", "c"]


async def test_a_record_that_stays_taken_is_no_conflict_of_the_client(here: Cell) -> None:
    obj = await made(here, "a")
    here.admit(type("Fixed", (Numbers,), {"fixed": True})())
    with pytest.raises(ServiceUnavailable, match="the workspace changed"):
        await here.loopback.update(target(here, "a"), labelled(obj))


def test_kinds_whose_deletions_a_plugin_sees_go_one_by_one_but_in_a_terminating_cluster() -> None:
    admission, view = Admission([Numbers()]), FakeStore()
    bound = Kind(group="", version="v1", kind="Namespace", plural="namespaces", singular="", identity="k" * 64)
    assert admission.reviews_deletions(view, HOME, bound)
    assert admission.may_review_deletions(view, HOME, [bound.type])
    assert not admission.may_review_deletions(view, HOME, [NAMESPACES])
    view.gate = lambda cluster: Gate(GateState.DELETING)  # type: ignore[method-assign]
    assert not admission.reviews_deletions(view, HOME, bound)
