"""The logical cluster that goes with its Workspace at once: the Workspace's own, which nobody else waits for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from atoll.controllers.workspaces.workspace_deletion import release_owner, unheld
from atoll.machinery.apiserver.call.options import DeleteOptions
from atoll.machinery.meta import wellknown
from atoll.machinery.meta.names import ROOT
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from harness.servers.in_process.minimal_shard import Cell, cell
from harness.servers.in_process.shard import shard_inside

WORKSPACE: Object = {"metadata": {"name": "w", "uid": "u-1"}, "spec": {"cluster": "leaf"}}
OWNER: Object = {"apiVersion": "tenancy.kcp.io/v1alpha1", "resource": "workspaces", "cluster": "above", "name": "w"}
WAITING = "root:cleaning"


@pytest.fixture
async def leaf(tmp_path: Path) -> AsyncIterator[Cell]:
    """A shard with the logical cluster of the Workspace."""
    async with cell(tmp_path) as here:
        await here.cluster("leaf")
        await changed(here, "u-1")
        yield here


async def changed(here: Cell, owner: str, *terminators: str, finalizer: str = "") -> None:
    """Set who owns the logical cluster and what it waits for."""
    obj = here.found(LOGICAL_CLUSTERS, "leaf", wellknown.SINGLETON)
    await here.change(
        LOGICAL_CLUSTERS,
        "leaf",
        wellknown.SINGLETON,
        spec={**obj["spec"], "owner": {**OWNER, "uid": owner}},
        metadata={**obj["metadata"], "finalizers": [wellknown.DELETION_FINALIZER, *filter(None, [finalizer])]},
        status={**obj["status"], "terminators": list(terminators)},
    )


async def test_the_own_cluster_goes_at_once(leaf: Cell) -> None:
    assert unheld(leaf.loopback.batch(), WORKSPACE) == "leaf"


async def test_the_cluster_of_another_workspace_does_not(leaf: Cell) -> None:
    await changed(leaf, "u-2")
    assert unheld(leaf.loopback.batch(), WORKSPACE) == ""


async def test_a_cluster_that_waits_for_a_terminator_does_not(leaf: Cell) -> None:
    await changed(leaf, "u-1", WAITING)
    assert unheld(leaf.loopback.batch(), WORKSPACE) == ""


async def test_a_cluster_or_workspace_with_a_finalizer_of_others_does_not(leaf: Cell) -> None:
    held = {**WORKSPACE, "metadata": {**WORKSPACE["metadata"], "finalizers": ["example.com/hold"]}}
    assert unheld(leaf.loopback.batch(), held) == ""
    await changed(leaf, "u-1", finalizer="example.com/hold")
    assert unheld(leaf.loopback.batch(), WORKSPACE) == ""


async def test_a_cluster_that_is_gone_is_none(leaf: Cell) -> None:
    await leaf.delete_row(LOGICAL_CLUSTERS, "leaf", wellknown.SINGLETON)
    assert unheld(leaf.loopback.batch(), WORKSPACE) == ""


async def test_a_workspace_is_released_for_its_own_cluster_only(tmp_path: Path) -> None:
    async with shard_inside(tmp_path) as shard:
        cluster, type = await shard.workspace("w"), shard.app.identities.workspaces
        obj = shard.loopback.get(LOGICAL_CLUSTERS, cluster, "", wellknown.SINGLETON) or {}
        held = {**obj["metadata"], "finalizers": [*obj["metadata"]["finalizers"], "example.com/hold"]}
        target = shard.target(LOGICAL_CLUSTERS, cluster, "", wellknown.SINGLETON)
        await shard.loopback.update(target, {**obj, "metadata": held})
        await shard.loopback.delete(shard.target(type, ROOT, "", "w"), DeleteOptions())
        await shard.until_idle()

        def released(owner: Object) -> int:
            batch = shard.loopback.batch()
            release_owner(batch, {**obj, "spec": {**obj["spec"], "owner": owner}}, type)
            return len(batch)

        owner = obj["spec"]["owner"]
        assert [released(owner), released({**owner, "uid": "another"})] == [1, 0]
