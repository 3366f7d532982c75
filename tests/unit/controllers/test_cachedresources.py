"""Which writes are counted for ClusterCachedResources, of which most shards have none."""

from __future__ import annotations

from collections.abc import AsyncIterator, Hashable
from pathlib import Path

import pytest

from atoll.controllers.exports.cachedresources import CachedResources
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.types import CACHED_RESOURCES, CLUSTER_ROLES
from harness.servers.in_process.minimal_shard import Cell, cell

HOME = "provider"
CACHED: Object = {
    "metadata": {"name": "roles"},
    "spec": {"group": "rbac.authorization.k8s.io", "version": "v1", "resource": "clusterroles"},
}
COUNTED = [(HOME, "roles")]


class Scene:
    """A shard, and a controller that is passed the entries of its log."""

    def __init__(self, here: Cell) -> None:
        self.here, self.controller = here, CachedResources(here.loopback)

    @property
    def revision(self) -> int:
        with self.here.store.snapshot() as snapshot:
            return snapshot.revision

    async def role(self, name: str) -> list[Hashable]:
        """Create a ClusterRole; return what the controller counts anew for it."""
        position = self.revision
        await self.here.put(CLUSTER_ROLES, HOME, {"metadata": {"name": name}, "rules": []})
        return self.keys_behind(position)

    def keys_behind(self, position: int) -> list[Hashable]:
        return [key for entry in self.here.store.tail(position, 500) for key in self.controller.keys(entry)]


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with cell(tmp_path) as made:
        await made.cluster(HOME)
        yield Scene(made)


async def test_objects_are_counted_from_the_first_one_on(scene: Scene) -> None:
    assert await scene.role("a") == []
    position = scene.revision
    await scene.here.put(CACHED_RESOURCES, HOME, CACHED)
    assert scene.keys_behind(position) == COUNTED
    assert await scene.role("b") == COUNTED


async def test_one_that_stands_before_the_first_entry_is_found(scene: Scene) -> None:
    await scene.here.put(CACHED_RESOURCES, HOME, CACHED)
    assert await scene.role("a") == COUNTED


async def test_one_whose_entry_was_passed_over_is_found_after_all_are_listed(scene: Scene) -> None:
    assert await scene.role("a") == []
    await scene.here.put(CACHED_RESOURCES, HOME, CACHED)
    assert list(scene.controller.all_keys()) == COUNTED
    assert await scene.role("b") == COUNTED
