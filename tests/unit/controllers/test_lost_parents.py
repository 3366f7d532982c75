"""Logical clusters whose Workspace was on a shard that is lost for good."""

from __future__ import annotations

from pathlib import Path

from atoll.controllers.workspaces.lost_parents import OWNER_EXISTS
from atoll.machinery.kcp.sharding.forgotten_stores import ForgottenStore, with_forgotten
from atoll.machinery.meta import wellknown
from atoll.machinery.meta.conditions import find
from atoll.machinery.meta.names import ROOT
from atoll.machinery.meta.objects import Object, conditions_of
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from harness.servers.in_process.shard import InsideShard, shard_inside
from harness.servers.stand_ins.fake_shard import FarShard, comes, far_shard

PARENTS = ("lostone", "lostother")
CHILDREN = 5


async def child(shard: InsideShard, parent: str, cluster: str) -> None:
    owner = {"apiVersion": "tenancy.kcp.io/v1alpha1", "resource": "workspaces", "name": cluster, "uid": cluster}
    body: Object = {
        "apiVersion": "core.kcp.io/v1alpha1",
        "kind": "LogicalCluster",
        "metadata": {"name": "cluster", "annotations": {wellknown.PATH: f"root:lost:{cluster}"}},
        "spec": {"owner": {**owner, "cluster": parent}},
        "status": {"phase": "Ready"},
    }
    await shard.loopback.create(shard.target(LOGICAL_CLUSTERS, cluster, "", "cluster"), body, whole=True)


async def forget(shard: InsideShard) -> None:
    """Record a forgotten store on the Shard `root`."""
    target = shard.target(shard.app.identities.shard_objects, ROOT, "", "root")
    before = shard.loopback.get(target.kind.type, ROOT, "", "root")
    body: Object = before or {
        "apiVersion": "core.kcp.io/v1alpha1",
        "kind": "Shard",
        "metadata": {"name": "root"},
        "spec": {"baseURL": "https://127.0.0.1:6443"},
    }
    recorded = with_forgotten(body, ForgottenStore("lost", "a-store", "2026-01-01T00:00:00Z"))
    if before is None:
        await shard.loopback.create(target, recorded, whole=True)
    else:
        await shard.loopback.update(target, recorded, whole=True)


def is_marked(shard: InsideShard, cluster: str) -> bool:
    obj = shard.loopback.get(LOGICAL_CLUSTERS, cluster, "", "cluster")
    return obj is not None and bool(find(conditions_of(obj), OWNER_EXISTS)) and bool(obj["spec"]["directlyDeletable"])


def sought(far: FarShard) -> list[str]:
    """The clusters that the other shard was asked for."""
    return [each.cluster for each in far.requests if each.path.endswith("/logicalclusters/cluster")]


async def test_other_shards_are_asked_once_for_the_parent_of_many(tmp_path: Path) -> None:
    async with far_shard() as far, shard_inside(tmp_path, far.peers) as shard:
        await far.announce(shard)
        children = [(parent, f"{parent}{number}") for number in range(CHILDREN) for parent in PARENTS]
        for parent, cluster in children:
            await child(shard, parent, cluster)
        await forget(shard)
        await comes(lambda: all(is_marked(shard, cluster) for _, cluster in children))
        assert sorted(sought(far)) == sorted(PARENTS)
