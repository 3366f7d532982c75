"""Clusters that a shard creates for its users and for other shards: none that is somebody else's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from atoll.machinery.meta import hashes, wellknown
from atoll.machinery.meta.names import ROOT, ObjectKey
from atoll.machinery.meta.objects import Object, encode
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.storage.contract import ClusterRoute, Put
from harness.servers.in_process.requests import InProcessClient
from harness.servers.in_process.shard import InsideShard, shard_inside

CLUSTERS = "/apis/core.kcp.io/v1alpha1/logicalclusters"
HOME = "/apis/tenancy.kcp.io/v1alpha1/workspaces/~"
USERS = 'alice-token,alice,u-alice\nfar-token,far,u-far,"system:kcp:logical-cluster-admin"\n'


@pytest.fixture
async def shard(tmp_path: Path) -> AsyncIterator[InsideShard]:
    (tmp_path / "tokens.csv").write_text(USERS)
    async with shard_inside(tmp_path, tokens=str(tmp_path / "tokens.csv")) as inside:
        yield inside


async def test_a_cluster_of_another_shard_is_not_created_here(shard: InsideShard) -> None:
    cluster = hashes.cluster_name_of(ROOT, "u-1", "root")
    owner = {"apiVersion": "tenancy.kcp.io/v1alpha1", "resource": "workspaces", "cluster": ROOT, "name": "w"}
    annotations = {wellknown.PATH: "root:w", wellknown.TYPE: "root:universal", wellknown.SHARD: "root"}
    body: Object = {
        "apiVersion": "core.kcp.io/v1alpha1",
        "kind": "LogicalCluster",
        "metadata": {"name": "cluster", "annotations": annotations},
        "spec": {"owner": {**owner, "uid": "u-1"}},
    }
    far = InProcessClient(shard.app.pipeline(), cluster, "far-token")
    await shard.app.store.submit([ClusterRoute(cluster, "west", 1)])
    code, found = await far.send("POST", CLUSTERS, body)
    assert (code, found["reason"]) == (409, "AlreadyExists"), found
    assert 'lies on shard "west"' in found["message"]
    await shard.app.store.submit([ClusterRoute(cluster, "", 1)])
    assert (await far.send("POST", CLUSTERS, body))[0] == 201


async def test_a_home_that_somebody_else_created_is_not_shown(shard: InsideShard) -> None:
    alice = InProcessClient(shard.app.pipeline(), ROOT, "alice-token")
    cluster = hashes.home_cluster_name("alice")
    obj: Object = {
        "apiVersion": "core.kcp.io/v1alpha1",
        "kind": "LogicalCluster",
        "metadata": {
            "name": "cluster",
            "uid": "u-1",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {wellknown.CLUSTER: cluster, wellknown.PATH: "user:alice"},
        },
        "spec": {"createdBy": {"username": "mallory"}},
        "status": {"phase": "Ready"},
    }
    value, hole = encode(obj)
    await shard.app.store.submit([Put(ObjectKey(LOGICAL_CLUSTERS, cluster, "", "cluster"), value, hole, 0)])
    code, found = await alice.send("GET", HOME)
    assert (code, "belongs to somebody else" in found["message"]) == (403, True), found
