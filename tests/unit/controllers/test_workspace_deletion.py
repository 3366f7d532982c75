"""The logical cluster that goes with its Workspace at once: the Workspace's own, which nobody else waits for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from atoll.controllers.workspaces.workspace_deletion import unheld
from atoll.machinery.meta import wellknown
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from harness.servers.in_process.minimal_shard import Cell, cell

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
