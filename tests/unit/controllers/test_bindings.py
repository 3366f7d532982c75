"""Two concurrent claims of one name: both are planned from the same state, one is written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from atoll.controllers.bindings.apibindings import ApiBindings, BindingKey, WaitingKey
from atoll.controllers.kubernetes.customresourcedefinitions import CustomResourceDefinitionController
from atoll.machinery.apiserver.admission.boundapis import BoundLifecycle
from atoll.machinery.apiserver.writing.batch import LOST, Batch
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.kcp.apis.apibindings import Export
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import Forbidden, NotFound
from atoll.machinery.meta.types import API_BINDINGS, API_EXPORTS, API_RESOURCE_SCHEMAS, CRDS, LOGICAL_CLUSTERS
from atoll.machinery.meta.wellknown import LOCKS
from atoll.machinery.storage.contract import GuardFailed, Scope
from harness.clients.api import crd
from harness.clients.exports import an_object, resource_of, schema_of
from harness.servers.in_process.minimal_shard import Cell, bound, cell, locks_of

GROUP, HERE, THERE = "shapes.example.com", "consumer", "provider"


class Scene:
    """A provider and a consumer, and controllers whose plans a test writes in any order."""

    def __init__(self, here: Cell) -> None:
        self.here = here
        bindings, _, _, definitions = here.controllers
        assert isinstance(bindings, ApiBindings)
        assert isinstance(definitions, CustomResourceDefinitionController)
        self.bindings, self._definitions = bindings, definitions

    def bind(self, name: str) -> Batch:
        batch = self.here.loopback.batch()
        self.bindings._plan(batch, BindingKey(HERE, name))
        return batch

    def define(self, plural: str) -> Batch:
        batch = self.here.loopback.batch()
        self._definitions._plan(batch, ObjectKey(CRDS, HERE, "", f"{plural}.{GROUP}"))
        return batch

    async def upgrade(self, export: str, plural: str, **names: object) -> None:
        """Let an export offer a schema with other names."""
        made = schema_of(crd(plural, GROUP), f"later-{export}")
        made["spec"]["names"] = {**made["spec"]["names"], **names}
        await self.here.put(API_RESOURCE_SCHEMAS, THERE, made)
        await self.here.change(API_EXPORTS, THERE, export, spec={"resources": [resource_of(made)]})

    async def rename(self, plural: str, short_name: str) -> None:
        """Request a short name in a definition."""
        name = f"{plural}.{GROUP}"
        spec = self.here.found(CRDS, HERE, name)["spec"]
        spec["names"]["shortNames"] = [short_name]
        await self.here.change(CRDS, HERE, name, spec=spec)

    def locks(self) -> Object:
        return locks_of(self.here.found(LOGICAL_CLUSTERS, HERE, "cluster"))


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with cell(tmp_path) as here:
        await here.cluster(THERE)
        await here.cluster(HERE)
        for export, plural in (("one", "circles"), ("two", "squares")):
            await here.export(THERE, export, crd(plural, GROUP))
        yield Scene(here)


async def _one_of(first: Batch, second: Batch) -> None:
    await first.submit()
    with pytest.raises(LOST):
        await second.submit()


async def test_of_two_new_bindings_of_a_resource_one_is_written(scene: Scene) -> None:
    await scene.here.export(THERE, "other", crd("circles", GROUP), prefix="other")
    await scene.here.bind(HERE, THERE, "one")
    await scene.here.bind(HERE, THERE, "other")
    await _one_of(scene.bind("one"), scene.bind("other"))
    assert scene.locks() == {f"circles.{GROUP}": {"n": "one"}}


async def test_of_a_new_binding_and_a_new_definition_one_is_written_in_either_order(scene: Scene) -> None:
    await scene.here.put(CRDS, HERE, crd("circles", GROUP))
    await scene.here.bind(HERE, THERE, "one")
    await _one_of(scene.bind("one"), scene.define("circles"))
    await scene.here.delete(API_BINDINGS, HERE, "one")
    await scene.here.bind(HERE, THERE, "two")
    await scene.here.put(CRDS, HERE, crd("squares", GROUP))
    await _one_of(scene.define("squares"), scene.bind("two"))


async def test_an_annotation_does_not_stand_in_for_the_phase(scene: Scene) -> None:
    await scene.here.settle()
    await scene.here.bind(HERE, THERE, "one", annotations={"phase": "Bound"})
    await scene.here.settle()
    assert bound(scene.here.found(API_BINDINGS, HERE, "one")) == ["circles"]


async def test_of_two_upgrades_to_one_name_one_is_written(scene: Scene) -> None:
    """Neither takes a new lock, so that only the guards on each other's revisions can detect it."""
    for name in ("one", "two"):
        await scene.here.bind(HERE, THERE, name)
    await scene.here.settle()
    await scene.upgrade("one", "circles", shortNames=["round"])
    await scene.upgrade("two", "squares", shortNames=["round"])
    await _one_of(scene.bind("one"), scene.bind("two"))


async def test_of_an_upgrade_and_a_definition_that_changes_its_names_one_is_written(scene: Scene) -> None:
    await scene.here.bind(HERE, THERE, "one")
    await scene.here.put(CRDS, HERE, crd("squares", GROUP))
    await scene.here.settle()
    await scene.upgrade("one", "circles", shortNames=["round"])
    await scene.rename("squares", "round")
    await _one_of(scene.define("squares"), scene.bind("one"))
    await scene.here.settle()
    assert scene.here.found(CRDS, HERE, f"squares.{GROUP}")["status"]["acceptedNames"]["shortNames"] == ["round"]


async def test_the_same_two_in_the_other_order(scene: Scene) -> None:
    await scene.here.bind(HERE, THERE, "one")
    await scene.here.put(CRDS, HERE, crd("squares", GROUP))
    await scene.here.settle()
    await scene.upgrade("one", "circles", shortNames=["round"])
    await scene.rename("squares", "round")
    await _one_of(scene.bind("one"), scene.define("squares"))


async def test_an_upgrade_does_not_take_the_names_of_a_definition_that_came_meanwhile(scene: Scene) -> None:
    """At planning no object existed whose revision could be guarded, except the lock that the definition took."""
    await scene.here.bind(HERE, THERE, "one")
    await scene.here.settle()
    await scene.upgrade("one", "circles", shortNames=["squares"])
    planned = scene.bind("one")
    await scene.here.put(CRDS, HERE, crd("squares", GROUP))
    await _one_of(scene.define("squares"), planned)


async def test_a_definition_does_not_take_the_names_of_a_binding_that_came_meanwhile(scene: Scene) -> None:
    await scene.here.put(CRDS, HERE, crd("squares", GROUP))
    await scene.here.settle()
    await scene.rename("squares", "circles")
    planned = scene.define("squares")
    await scene.here.bind(HERE, THERE, "one")
    await _one_of(scene.bind("one"), planned)


async def test_of_two_definitions_that_change_to_one_name_one_is_written(scene: Scene) -> None:
    for plural in ("squares", "rings"):
        await scene.here.put(CRDS, HERE, crd(plural, GROUP))
    await scene.here.settle()
    for plural in ("squares", "rings"):
        await scene.rename(plural, "round")
    await _one_of(scene.define("squares"), scene.define("rings"))


async def test_two_clusters_that_bind_a_schema_first_at_one_time_share_one_row(scene: Scene) -> None:
    await scene.here.cluster("other")
    for cluster in (HERE, "other"):
        await scene.here.bind(cluster, THERE, "one")
    await scene.here.settle(at_once=4)
    found = [scene.here.found(API_BINDINGS, cluster, "one") for cluster in (HERE, "other")]
    assert [bound(each) for each in found] == [["circles"]] * 2
    assert scene.here.catalog(HERE) is scene.here.catalog("other")


async def test_a_binding_that_is_right_is_written_once(scene: Scene) -> None:
    await scene.here.bind(HERE, THERE, "one")
    await scene.here.settle()
    revision = scene.here.found(API_BINDINGS, HERE, "one")["metadata"]["resourceVersion"]
    await scene.here.change(API_EXPORTS, THERE, "one", metadata=_touched(scene.here))
    await scene.here.settle()
    assert scene.here.found(API_BINDINGS, HERE, "one")["metadata"]["resourceVersion"] == revision


def _unlocked(here: Cell) -> Object:
    metadata = here.found(LOGICAL_CLUSTERS, HERE, "cluster")["metadata"]
    return {**metadata, "annotations": {**metadata["annotations"], LOCKS: "{}"}}


def _touched(here: Cell) -> Object:
    metadata = here.found(API_EXPORTS, THERE, "one")["metadata"]
    return {**metadata, "annotations": {**metadata["annotations"], "touched": "yes"}}


async def test_the_entry_of_the_write_that_bound_it_does_not_plan_a_binding_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does where the binding or its export is another by then: the export was read without a guard."""
    here, key = scene.here, BindingKey(HERE, "one")
    bindings, plans = scene.bindings, list[BindingKey]()

    def planned(batch: Batch, key: BindingKey, *, is_prepared: bool = False) -> tuple[Export | None, bool]:
        plans.append(key)
        return ApiBindings._plan(bindings, batch, key, is_prepared=is_prepared)

    async def plans_after(change: Callable[[], Awaitable[object]]) -> int:
        await here.change(API_BINDINGS, HERE, "one", status={})
        await here.change(LOGICAL_CLUSTERS, HERE, "cluster", metadata=_unlocked(here))
        await bindings.reconcile(key)
        assert bound(here.found(API_BINDINGS, HERE, "one")) == ["circles"]
        plans.clear()
        await change()
        await bindings.reconcile(key)
        return len(plans)

    monkeypatch.setattr(bindings, "_plan", planned)
    await here.bind(HERE, THERE, "one")
    assert await plans_after(lambda: asyncio.sleep(0)) == 0
    await bindings.reconcile(key)
    assert plans == [key]
    assert await plans_after(lambda: scene.upgrade("one", "circles")) == 1
    assert await plans_after(lambda: here.change(API_BINDINGS, HERE, "one", status={})) == 1
    # What is not bound completely is planned again each time.
    await here.change(API_EXPORTS, THERE, "one", status={})
    await here.change(API_BINDINGS, HERE, "one", status={})
    plans.clear()
    for _ in range(2):
        await bindings.reconcile(key)
    assert plans == [key, key]


async def test_a_binding_that_waits_for_a_schema_is_not_planned_for_those_behind_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, planned, plan = scene.here, 0, ApiBindings._plan

    def counted(self: ApiBindings, *given: Any, **more: Any) -> tuple[Export | None, bool]:
        nonlocal planned
        planned += 1
        return plan(self, *given, **more)

    async def plans() -> int:
        before = planned
        await here.settle()
        return planned - before

    def waits_for() -> str:
        conditions = here.found(API_BINDINGS, HERE, "shapes")["status"]["conditions"]
        return " ".join(each.get("message", "") for each in conditions)

    async def again(name: str) -> None:
        if here.get(API_RESOURCE_SCHEMAS, THERE, made[name]["metadata"]["name"]) is not None:
            await here.delete_row(API_RESOURCE_SCHEMAS, THERE, made[name]["metadata"]["name"])
            await here.settle()
        await here.put(API_RESOURCE_SCHEMAS, THERE, made[name])
        await here.settle()

    monkeypatch.setattr(ApiBindings, "_plan", counted)
    names = [f"shapes{letter}" for letter in "abcde"]
    await here.export(THERE, "shapes", *(crd(each, GROUP) for each in names))
    made = {name: schema_of(crd(name, GROUP), "today") for name in names}
    for name in names:
        await here.delete_row(API_RESOURCE_SCHEMAS, THERE, made[name]["metadata"]["name"])
    await here.bind(HERE, THERE, "shapes")
    await here.settle()
    # Planned once more, as nobody noted yet for what it waits.
    for name, most in (("shapese", 1), ("shapesd", 0), ("shapesc", 0)):
        await here.put(API_RESOURCE_SCHEMAS, THERE, made[name])
        assert await plans() <= most
        assert "shapesa" in waits_for()
    await here.put(API_RESOURCE_SCHEMAS, THERE, made["shapesa"])
    assert await plans()
    assert "shapesb" in waits_for()
    # A binding that was planned meanwhile waits for another one.
    await again("shapese")
    await here.delete_row(API_RESOURCE_SCHEMAS, THERE, made["shapesa"]["metadata"]["name"])
    await scene.bindings.reconcile(BindingKey(HERE, "shapes"))
    await here.settle()
    assert "shapesa" in waits_for()
    await again("shapesa")
    assert "shapesb" in waits_for()
    # One before it that goes is told with the next that comes.
    await here.delete_row(API_RESOURCE_SCHEMAS, THERE, made["shapesa"]["metadata"]["name"])
    await here.delete_row(API_RESOURCE_SCHEMAS, THERE, made["shapesc"]["metadata"]["name"])
    await here.settle()
    await here.put(API_RESOURCE_SCHEMAS, THERE, made["shapesb"])
    await here.settle()
    assert "shapesa" in waits_for()
    for name in ("shapesc", "shapesa"):
        await again(name)
    assert len(bound(here.found(API_BINDINGS, HERE, "shapes"))) == len(names)


async def test_names_are_looked_for_again_once_a_binding_may_hold_fewer(scene: Scene) -> None:
    here, position = scene.here, scene.here.position
    await here.bind(HERE, THERE, "one")
    await here.settle()
    await here.change(API_BINDINGS, HERE, "one", status={})
    entries = [each for each in here.store.tail(position, 500) if each.key.type == API_BINDINGS]
    found = [WaitingKey(HERE) in scene.bindings.keys(each) for each in entries]
    assert (found[:2], found[-1]) == ([False, False], True)


async def test_bindings_that_wait_are_looked_at_once_a_lock_is_gone_and_not_for_new_ones(scene: Scene) -> None:
    here = scene.here

    async def looks_after(change: Awaitable[object]) -> list[bool]:
        with here.store.snapshot() as snapshot:
            position = snapshot.revision
        await change
        entries = [each for each in here.store.tail(position, 500) if each.key.type == LOGICAL_CLUSTERS]
        return [WaitingKey(HERE) in scene.bindings.keys(each) for each in entries]

    await here.bind(HERE, THERE, "one")
    assert await looks_after(here.settle()) == [False]
    assert "circles.shapes.example.com" in scene.locks()
    assert await looks_after(here.change(LOGICAL_CLUSTERS, HERE, "cluster", metadata=_unlocked(here))) == [True]
    assert await looks_after(here.change(LOGICAL_CLUSTERS, HERE, "cluster", status={"phase": "Inactive"})) == [True]


async def test_an_identity_that_comes_binds_and_one_that_changes_binds_anew(scene: Scene) -> None:
    await scene.here.change(API_EXPORTS, THERE, "one", status={})
    await scene.here.bind(HERE, THERE, "one")
    await scene.here.settle()
    waiting = scene.here.found(API_BINDINGS, HERE, "one")["status"]
    said = {each["type"]: each for each in waiting["conditions"]}["APIExportValid"]
    assert (waiting["phase"], said["reason"], said["severity"]) == ("Binding", "MissingIdentityHash", "Warning")
    for identity in ("a" * 64, "b" * 64):
        await scene.here.change(API_EXPORTS, THERE, "one", status={"identityHash": identity})
        await scene.here.settle()
        (item,) = scene.here.found(API_BINDINGS, HERE, "one")["status"]["boundResources"]
        assert item["schema"]["identityHash"] == identity


async def test_without_a_logical_cluster_a_binding_says_so(scene: Scene) -> None:
    await scene.here.bind("nowhere", THERE, "one")
    await scene.here.settle()
    status = scene.here.found(API_BINDINGS, "nowhere", "one")["status"]
    said = {each["type"]: each["reason"] for each in status["conditions"]}
    assert said == {"Ready": "LogicalClusterNotFound", "InitialBindingCompleted": "LogicalClusterNotFound"}


async def test_an_object_planned_before_the_end_of_its_binding_is_not_left_behind(scene: Scene) -> None:
    here, wide = scene.here, crd("rings", GROUP)
    wide["spec"]["scope"] = "Cluster"
    await here.export(THERE, "wide", wide)
    await here.bind(HERE, THERE, "wide")
    await here.settle()
    kind = here.catalog(HERE).find(GROUP, "v1", "rings")
    assert kind is not None
    here.admit(BoundLifecycle(here.core.catalogs))

    def planned(name: str) -> Batch:
        batch = here.loopback.batch()
        batch.create(Target(kind, HERE, "", name), an_object(schema_of(wide), name), whole=False)
        return batch

    await planned("early").submit()
    late = planned("late")
    await here.delete(API_BINDINGS, HERE, "wide")
    with pytest.raises(Forbidden):
        planned("later")
    await here.settle()
    with pytest.raises(NotFound):
        planned("latest")
    with pytest.raises(GuardFailed):
        await late.submit()
    assert list(here.loopback.each(Scope(kind.type))) == []


async def test_an_annotation_does_not_stand_in_for_the_deletion_of_another_binding(scene: Scene) -> None:
    here, wide = scene.here, crd("rings", GROUP)
    wide["spec"]["scope"] = "Cluster"
    await here.export(THERE, "wide", wide)
    await here.bind(HERE, THERE, "wide")
    await here.settle()
    await here.bind(HERE, THERE, "wide", called="again", annotations={"deletionTimestamp": "never"})
    await here.settle()
    kind = here.catalog(HERE).find(GROUP, "v1", "rings")
    assert kind is not None
    await here.loopback.create(Target(kind, HERE, "", "kept"), an_object(schema_of(wide), "kept"))
    await here.delete(API_BINDINGS, HERE, "wide")
    await here.settle()
    assert here.get(API_BINDINGS, HERE, "wide") is None
    assert here.found(kind.type, HERE, "kept")
