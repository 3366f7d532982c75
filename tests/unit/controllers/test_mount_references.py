"""What the mounts controller caches of clusters that write: references of mounts, and nothing without Workspaces."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path

from atoll.controllers.workspaces.mounts import MAX_BYTES, MountController
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import Object, encode
from atoll.machinery.meta.sizes import size_bytes
from atoll.machinery.meta.types import CONFIG_MAPS
from atoll.machinery.storage.contract import LogEntry, Operation, Put
from harness.servers.in_process.minimal_shard import Cell, cell


def keys(controller: MountController, key: ObjectKey, obj: Object, how: Operation = Operation.ADDED) -> list[Hashable]:
    return list(controller.keys(LogEntry(1, how, key, encode(obj)[0], False, 0, 0, 0)))


def config_map(controller: MountController, cluster: str, name: str = "far") -> list[Hashable]:
    key = ObjectKey(CONFIG_MAPS, cluster, "default", name)
    return keys(controller, key, {"metadata": {"name": name, "namespace": "default"}})


async def mount(here: Cell, name: str, of: str = "far") -> tuple[ObjectKey, Object]:
    ref = {"apiVersion": "v1", "kind": "ConfigMap", "name": of, "namespace": "default"}
    obj = {"metadata": {"name": name}, "spec": {"mount": {"ref": ref}}}
    key = ObjectKey(here.facts.identities.workspaces, "above", "", name)
    value, hole = encode(obj)
    await here.store.submit([Put(key, value, hole, 0)])
    return key, obj


async def test_a_cluster_without_workspaces_leaves_nothing_behind(tmp_path: Path) -> None:
    async with cell(tmp_path) as here:
        controller = MountController(here.loopback, here.facts)
        for number in range(100):
            assert config_map(controller, f"leaf{number}") == []
        assert not len(controller._mounts) and not controller._clusters


async def test_what_a_workspace_mounts_is_found_by_its_object(tmp_path: Path) -> None:
    async with cell(tmp_path) as here:
        controller = MountController(here.loopback, here.facts)
        first = await mount(here, "w")
        assert list(controller.all_keys()) == [("above", "w")]
        assert config_map(controller, "above") == [("above", "w")]
        assert keys(controller, *first) == [("above", "w")]
        key, obj = await mount(here, "v")
        assert keys(controller, key, obj) == [("above", "v")]
        assert sorted(map(str, config_map(controller, "above"))) == ["('above', 'v')", "('above', 'w')"]
        assert keys(controller, key, obj, Operation.DELETED) == []
        assert config_map(controller, "above") == [("above", "w")]
        assert config_map(controller, "above", "other") == []
        assert keys(controller, *first, Operation.DELETED) == []
        assert config_map(controller, "above") == [] and not controller._clusters and not len(controller._mounts)


async def test_the_references_are_bounded_in_bytes(tmp_path: Path) -> None:
    async with cell(tmp_path) as here:
        controller = MountController(here.loopback, here.facts)
        await mount(here, "w", "x" * 10_000)
        assert list(controller.all_keys()) == [("above", "w")]
        config_map(controller, "above")
        references = controller._mounts.get("above")
        assert references is not None and size_bytes(references) > 10_000
        for number in range(1000):
            controller._mounts.put(f"c{number}", references)
        assert len(controller._mounts) * 10_000 < MAX_BYTES
