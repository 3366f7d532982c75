"""A logical cluster with a foreign finalizer is emptied; its Workspace on another shard is released last."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from atoll.controllers.content_deleter import CONFLICT
from atoll.controllers.workspaces.logicalcluster_deletion import LogicalClusterDeletion
from atoll.controllers.workspaces.owner_notifications import OwnerShards
from atoll.machinery.apiserver.call.options import DeleteOptions
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.meta import wellknown
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import encode
from atoll.machinery.meta.types import CONFIG_MAPS, LOGICAL_CLUSTERS
from atoll.machinery.storage.contract import ClusterRoute, Put
from harness.servers.in_process.minimal_shard import Cell, cell

HOLD = "example.com/hold"


class Released(OwnerShards):
    """Counts releases; makes no calls."""

    def __init__(self) -> None:
        self.count = 0

    async def release(self, owner: object, cluster: str) -> None:
        self.count += 1


async def going(here: Cell, *finalizers: str) -> None:
    """A logical cluster of a Workspace on another shard, with one object, in deletion."""
    await here.cluster("leaf")
    await here.store.submit([ClusterRoute("above", "far")])
    obj = here.found(LOGICAL_CLUSTERS, "leaf", wellknown.SINGLETON)
    owner = {"apiVersion": "tenancy.kcp.io/v1alpha1", "resource": "workspaces", "cluster": "above", "name": "w"}
    spec = {**obj["spec"], "owner": {**owner, "uid": "u-1"}}
    metadata = {**obj["metadata"], "finalizers": [wellknown.DELETION_FINALIZER, *finalizers]}
    await here.change(LOGICAL_CLUSTERS, "leaf", wellknown.SINGLETON, spec=spec, metadata=metadata)
    value, hole = encode({"metadata": {"name": "a", "namespace": "default"}})
    await here.store.submit([Put(ObjectKey(CONFIG_MAPS, "leaf", "default", "a"), value, hole, 0)])
    target = Target(here.kind(LOGICAL_CLUSTERS), "leaf", "", wellknown.SINGLETON)
    await here.loopback.delete(target, DeleteOptions())


def deletion(here: Cell, owners: Released) -> LogicalClusterDeletion:
    workspaces = here.facts.identities.workspaces
    return LogicalClusterDeletion(here.loopback, here.kind(LOGICAL_CLUSTERS), workspaces, cast("OwnerShards", owners))


async def test_a_remote_workspace_is_not_released_while_a_stranger_holds_its_cluster(tmp_path: Path) -> None:
    async with cell(tmp_path) as here:
        await going(here, HOLD)
        owners = Released()
        assert await deletion(here, owners).reconcile("leaf") is None
        assert owners.count == 0
        left = here.found(LOGICAL_CLUSTERS, "leaf", wellknown.SINGLETON)
        assert left["metadata"]["finalizers"] == [HOLD]
        with here.store.snapshot() as snapshot:
            assert [usage.type for usage in snapshot.usage("leaf")] == [LOGICAL_CLUSTERS]
        # Neither a reconcile nor a write follows.
        revision = int(left["metadata"]["resourceVersion"])
        assert await deletion(here, owners).reconcile("leaf") is None
        assert int(here.found(LOGICAL_CLUSTERS, "leaf", wellknown.SINGLETON)["metadata"]["resourceVersion"]) == revision


async def test_a_remote_workspace_is_released_with_a_cluster_that_nobody_holds(tmp_path: Path) -> None:
    async with cell(tmp_path) as here:
        await going(here)
        owners = Released()
        assert await deletion(here, owners).reconcile("leaf") is None
        assert owners.count == 1
        assert here.get(LOGICAL_CLUSTERS, "leaf", wellknown.SINGLETON) is None


async def test_an_object_that_comes_while_a_held_cluster_is_emptied_is_not_left_behind(tmp_path: Path) -> None:
    async with cell(tmp_path) as here:
        await going(here, HOLD)
        here_deletes = deletion(here, Released())
        obj = here.found(LOGICAL_CLUSTERS, "leaf", wellknown.SINGLETON)
        free = here_deletes._removable("leaf", 10) or []
        value, hole = encode({"metadata": {"name": "late", "namespace": "default"}})
        await here.store.submit([Put(ObjectKey(CONFIG_MAPS, "leaf", "default", "late"), value, hole, 0)])
        assert await here_deletes._leave("leaf", obj, free, [HOLD]) is CONFLICT
        left = here.found(LOGICAL_CLUSTERS, "leaf", wellknown.SINGLETON)
        assert wellknown.DELETION_FINALIZER in left["metadata"]["finalizers"]
        assert await here_deletes.reconcile("leaf") is None
        with here.store.snapshot() as snapshot:
            assert [usage.type for usage in snapshot.usage("leaf")] == [LOGICAL_CLUSTERS]
