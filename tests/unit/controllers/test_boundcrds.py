"""Unused bound CRDs are deleted after an age; CRDs of an APIBinding never are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from atoll.controllers.bindings import bound_crd_gc
from atoll.controllers.bindings.apibindings import BindingKey
from atoll.controllers.bindings.bound_crd_gc import MIN_AGE_S, BoundCrdCollector, ClusterKey, CrdKey
from atoll.machinery.kcp.apis import bound_crds
from atoll.machinery.meta.names import SYSTEM_BOUND_CRDS
from atoll.machinery.meta.objects import decode
from atoll.machinery.meta.times import parse_time
from atoll.machinery.meta.types import API_BINDINGS, API_EXPORTS, API_RESOURCE_SCHEMAS, CRDS
from atoll.machinery.storage.contract import GuardFailed, Operation, Scope
from atoll.tenancy.bound_definitions import BoundCrd, SchemaMissing, target_of
from harness.clients.api import crd
from harness.clients.exports import resource_of, schema_of
from harness.servers.in_process.minimal_shard import Cell, cell

CIRCLES = crd("circles", "shapes.example.com")
_SCOPE = Scope(CRDS, SYSTEM_BOUND_CRDS)


class Scene:
    """A binding of one export, and a collector whose clock the test sets."""

    def __init__(self, here: Cell) -> None:
        self.here, self.now_s = here, 0.0
        self.collector = BoundCrdCollector(here.loopback, lambda: self.now_s)

    async def begin(self) -> None:
        await self.here.cluster("provider")
        await self.here.cluster("consumer")
        await self.here.export("provider", "shapes", CIRCLES)
        await self.here.bind("consumer", "provider", "shapes")
        await self.here.settle()
        (self.uid,) = self.uids()
        self.now_s = self.created_s()

    def uids(self) -> list[str]:
        return [each["metadata"]["name"] for each in self.here.loopback.each(_SCOPE)]

    def created_s(self) -> float:
        made = self.here.found(CRDS, SYSTEM_BOUND_CRDS, self.uid)["metadata"]["creationTimestamp"]
        return parse_time(made) or 0.0

    async def unbind(self) -> None:
        await self.here.delete(API_BINDINGS, "consumer", "shapes")
        await self.here.settle()

    async def look(self) -> float | None:
        return await self.collector.reconcile(CrdKey(self.uid))


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with cell(tmp_path) as here:
        made = Scene(here)
        await made.begin()
        yield made


async def test_one_that_is_bound_stays_however_old(scene: Scene) -> None:
    scene.now_s += 10 * MIN_AGE_S
    assert await scene.look() is None
    assert scene.uids() == [scene.uid]


async def test_a_binding_is_found_behind_a_page_of_others_that_wait(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bound_crd_gc, "LOOKED_AT_ONCE", 1)
    await scene.here.cluster("another")
    await scene.here.bind("another", "provider", "shapes")
    scene.now_s += 10 * MIN_AGE_S
    for _ in range(2):
        await scene.look()
    assert scene.uids() == [scene.uid]


async def test_one_that_nobody_binds_goes_once_it_is_old_enough(scene: Scene) -> None:
    await scene.unbind()
    scene.now_s += 60
    assert await scene.look() == MIN_AGE_S - 60
    scene.now_s += MIN_AGE_S - 60
    assert await scene.look() is None
    assert bound_crds.COLLECTED in scene.here.found(CRDS, SYSTEM_BOUND_CRDS, scene.uid)["metadata"]["annotations"]
    assert await scene.look() is None
    assert scene.uids() == []


async def test_whoever_binds_one_that_is_to_go_takes_the_mark_away(scene: Scene) -> None:
    await scene.unbind()
    scene.now_s += MIN_AGE_S
    await scene.look()
    await scene.here.bind("consumer", "provider", "shapes")
    await scene.here.settle()
    assert bound_crds.COLLECTED not in scene.here.found(CRDS, SYSTEM_BOUND_CRDS, scene.uid)["metadata"]["annotations"]
    await scene.look()
    await scene.look()
    assert scene.uids() == [scene.uid]


async def test_one_that_is_bound_between_the_look_and_the_deletion_stays(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.unbind()
    scene.now_s += MIN_AGE_S
    await scene.look()
    looked = scene.collector._is_bound

    async def late(found: object) -> bool:
        answer = await looked(found)  # type: ignore[arg-type]
        await scene.here.bind("consumer", "provider", "shapes")
        await scene.here.settle()
        return answer

    monkeypatch.setattr(scene.collector, "_is_bound", late)
    assert await scene.look() == 0.0
    assert scene.uids() == [scene.uid]
    assert scene.here.found(API_BINDINGS, "consumer", "shapes")["status"]["phase"] == "Bound"


async def test_one_that_changes_between_the_look_and_the_mark_is_not_marked(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.unbind()
    scene.now_s += MIN_AGE_S
    looked = scene.collector._is_bound

    async def late(found: BoundCrd) -> bool:
        answer = await looked(found)
        stored = scene.here.found(CRDS, SYSTEM_BOUND_CRDS, scene.uid)
        await scene.here.loopback.update(target_of(scene.uid), bound_crds.with_export(stored, "other"), whole=True)
        return answer

    monkeypatch.setattr(scene.collector, "_is_bound", late)
    assert await scene.look() == 0.0
    assert bound_crds.COLLECTED not in scene.here.found(CRDS, SYSTEM_BOUND_CRDS, scene.uid)["metadata"]["annotations"]


async def test_a_binding_planned_before_the_mark_is_planned_again(scene: Scene) -> None:
    """Its batch guards the revision of the bound CRD."""
    await scene.unbind()
    await scene.here.bind("consumer", "provider", "shapes")
    controller = scene.here.controllers[0]
    batch = scene.here.loopback.batch()
    controller._plan(batch, BindingKey("consumer", "shapes"))  # type: ignore[attr-defined]
    scene.now_s += MIN_AGE_S
    await scene.look()
    with pytest.raises(GuardFailed):
        await batch.submit()


async def test_one_left_by_an_upgrade_is_looked_for_until_its_last_binding_moved_on(scene: Scene) -> None:
    later = schema_of(CIRCLES, "later")
    await scene.here.put(API_RESOURCE_SCHEMAS, "provider", later)
    await scene.here.change(API_EXPORTS, "provider", "shapes", spec={"resources": [resource_of(later)]})
    scene.now_s += MIN_AGE_S
    assert await scene.collector.reconcile(ClusterKey("provider")) == MIN_AGE_S
    await scene.here.settle()
    assert len(scene.uids()) == 2
    await scene.look()
    await scene.look()
    assert len(scene.uids()) == 1
    assert scene.uid not in scene.uids()


async def test_a_schema_made_anew_under_its_name_is_not_bound_as_the_one_before(scene: Scene) -> None:
    binding = scene.here.found(API_BINDINGS, "consumer", "shapes")
    (name,) = (each["metadata"]["name"] for each in scene.here.loopback.each(Scope(API_RESOURCE_SCHEMAS, "provider")))
    await scene.here.delete_row(CRDS, SYSTEM_BOUND_CRDS, scene.uid)
    await scene.here.delete_row(API_RESOURCE_SCHEMAS, "provider", name)
    again = schema_of(CIRCLES, name.partition(".")[0])
    await scene.here.put(API_RESOURCE_SCHEMAS, "provider", again)
    with pytest.raises(SchemaMissing):
        scene.collector._bound.add(scene.here.loopback.batch(), binding)
    batch = scene.here.loopback.batch()
    scene.collector._bound.add(batch, binding, binding)
    assert not len(batch)


async def test_deletions_and_changes_of_exports_are_what_wakes_it(scene: Scene) -> None:
    start = scene.here.position
    await scene.unbind()
    await scene.here.delete(API_EXPORTS, "provider", "shapes")
    keys = [key for entry in scene.here.store.tail(start) for key in scene.collector.keys(entry)]
    assert CrdKey(scene.uid) in keys
    assert ClusterKey("provider") in keys
    removed = [each for each in scene.here.store.tail(start) if each.operation is Operation.DELETED]
    assert decode(removed[0].value)["metadata"]["name"] == "shapes"
