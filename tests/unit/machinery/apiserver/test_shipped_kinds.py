"""Kubernetes' kinds are loaded once, and only who can wait is told that they are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll.machinery.apiserver.admission.chain import Plugin, Review
from atoll.machinery.apiserver.catalog.shipped_kinds import KindsPending, ShippedKinds
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.kinds.kubernetes.schema_names import schema_names
from atoll.machinery.meta.types import CONFIG_MAPS, NAMESPACES
from harness.servers.in_process.minimal_shard import cell

PODS = schema_names()["pods.core"]


async def test_who_can_wait_gets_them_once_they_are_loaded() -> None:
    shipped = ShippedKinds("root")
    shipped.caller.can_wait = True
    with pytest.raises(KindsPending) as pending:
        shipped.of(PODS, "root")
    assert shipped.lacks("root")
    await pending.value.fetch()
    assert not shipped.lacks("root")
    assert [kind.kind for kind in shipped.of(PODS, "root")] == ["Pod"]


def test_who_cannot_wait_gets_them_at_once() -> None:
    assert [kind.kind for kind in ShippedKinds("root").of(PODS, "root")] == ["Pod"]


@pytest.mark.parametrize("identity", ["", "other"])
def test_another_identity_has_none_and_lacks_none(identity: str) -> None:
    for shipped in (ShippedKinds("root"), ShippedKinds("")):
        shipped.caller.can_wait = True
        assert not shipped.lacks(identity)
        assert shipped.of(PODS, identity) == ()


class Reading(Plugin):
    """Reads a kind in the plan of a write."""

    resources = (("", "configmaps"),)

    def __init__(self, shipped: ShippedKinds) -> None:
        self._shipped = shipped
        self.found: list[bool] = []

    def mutate(self, review: Review) -> None:
        self.found.append(not self._shipped.lacks("root"))
        self._shipped.caller.can_wait = True
        try:
            self._shipped.of(PODS, "root")
        finally:
            self._shipped.caller.can_wait = False


async def test_a_write_is_planned_again_once_the_kinds_that_its_plan_needs_are_loaded(tmp_path: Path) -> None:
    plugin = Reading(ShippedKinds("root"))
    async with cell(tmp_path) as here:
        await here.cluster("home")
        await here.put(NAMESPACES, "home", {"metadata": {"name": "default"}})
        here.admit(plugin)
        for name in ("one", "two"):
            await here.loopback.create(
                Target(here.kind(CONFIG_MAPS), "home", "default", name), {"metadata": {"name": name}}
            )
        batch = here.loopback.batch()
        batch.create(Target(here.kind(CONFIG_MAPS), "home", "default", "three"), {"metadata": {"name": "three"}})
        await batch.submit()
    assert plugin.found == [False, True, True, True]
