"""Paths that cross shards: resolved by published rows, without stale results."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from atoll.machinery.apiserver.federation.federated_view import federated
from atoll.machinery.apiserver.federation.pathindex import PathIndex, ResolvedPath
from atoll.machinery.kcp.manifest import ObjectStamp
from atoll.machinery.kcp.workspaces.logicalcluster import ClusterFacts, logical_cluster
from atoll.machinery.meta import hashes
from atoll.machinery.meta.names import ROOT, ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, encode
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.storage.contract import ClusterRoute, Delete, Put, Replica
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from harness.data.stores import gone, replica, store_options

WORKSPACES = ResourceType("tenancy.kcp.io", "workspaces", "w" * 64)
TEAM, SHOP = "4team", "5shop"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[LmdbStore]:
    made = open_store(store_options(tmp_path))
    try:
        yield made
    finally:
        await made.close()


@pytest.fixture
def index() -> PathIndex:
    return PathIndex(WORKSPACES)


def workspace(cluster: str, name: str) -> ObjectKey:
    return ObjectKey(WORKSPACES, cluster, "", name)


def leading(cluster: str, phase: str = "Ready") -> Object:
    return {"spec": {"cluster": cluster}, "status": {"phase": phase}}


async def put(store: LmdbStore, key: ObjectKey, **members: object) -> None:
    value, hole = encode({"metadata": {"name": key.name}, **members})
    with store.snapshot() as snapshot:
        expected = snapshot.revision_of(key)
    await store.submit([Put(key, value, hole, expected)])


async def cluster_here(store: LmdbStore, name: str) -> None:
    stamp = ObjectStamp(name, name, "2026-01-01T00:00:00Z", lambda _: "uid")
    made = logical_cluster(stamp, ClusterFacts("here", "https://here")).object
    value, hole = encode(made)
    await store.submit([Put(ObjectKey(LOGICAL_CLUSTERS, name, "", "cluster"), value, hole, 0)])


async def published(store: LmdbStore, cluster: str, *rows: Replica) -> None:
    await store.submit([ClusterRoute(cluster, "east"), *rows])


def find(store: LmdbStore, index: PathIndex, path: str) -> ResolvedPath | None:
    with store.snapshot() as snapshot:
        return index.find(snapshot, path)


async def test_a_path_goes_on_where_another_shard_holds_the_workspace(store: LmdbStore, index: PathIndex) -> None:
    await cluster_here(store, ROOT)
    await put(store, workspace(ROOT, "team"), **leading(TEAM))
    for _ in range(2):
        assert find(store, index, "root:team:shop") is None
    await published(store, TEAM, replica(workspace(TEAM, "shop"), 7, **leading(SHOP)))
    await published(store, SHOP)
    for _ in range(2):
        assert find(store, index, "root:team") == ResolvedPath(TEAM, remote=True)
        assert find(store, index, "root:team:shop") == ResolvedPath(SHOP, remote=True)


async def test_a_way_that_changed_elsewhere_is_not_remembered(store: LmdbStore, index: PathIndex) -> None:
    await published(store, ROOT, replica(workspace(ROOT, "team"), 7, **leading(TEAM)))
    assert find(store, index, "root:team") == ResolvedPath(TEAM)
    await published(store, TEAM)
    assert find(store, index, "root:team") == ResolvedPath(TEAM, remote=True)
    await published(store, ROOT, replica(workspace(ROOT, "team"), 8, **leading(SHOP)))
    assert find(store, index, "root:team") == ResolvedPath(SHOP)
    await published(store, ROOT, gone(workspace(ROOT, "team"), 9))
    assert find(store, index, "root:team") is None


async def test_a_root_of_another_shard_is_found_under_the_name_of_its_path_alone(
    store: LmdbStore, index: PathIndex
) -> None:
    label, value = hashes.root_path_label("tenant:acme")
    labels: Object = {"labels": {label: value}}
    taken = ObjectKey(LOGICAL_CLUSTERS, SHOP, "", "cluster")
    await published(store, SHOP, replica(taken, 7, metadata=labels))
    assert find(store, index, "tenant:acme") is None
    acme = hashes.root_cluster_name("tenant:acme")
    await published(store, acme, replica(ObjectKey(LOGICAL_CLUSTERS, acme, "", "cluster"), 8, metadata=labels))
    await published(store, acme, replica(workspace(acme, "team"), 9, **leading(TEAM)))
    await published(store, TEAM)
    assert find(store, index, "tenant:acme") == ResolvedPath(acme, remote=True)
    assert find(store, index, "tenant:acme:team") == ResolvedPath(TEAM, remote=True)
    with store.snapshot() as snapshot:
        view = federated(snapshot)
        assert list(index.followed(view, "tenant:acme:team:new")) == [(acme, "team:new"), (TEAM, "new")]
        assert index.awaited(snapshot, "tenant:acme:late:x") == (acme, "late")


async def test_a_cluster_that_comes_to_stand_here_is_here(store: LmdbStore, index: PathIndex) -> None:
    await cluster_here(store, ROOT)
    await put(store, workspace(ROOT, "team"), **leading(TEAM))
    await published(store, TEAM)
    assert find(store, index, "root:team") == ResolvedPath(TEAM, remote=True)
    await cluster_here(store, TEAM)
    for _ in range(2):
        assert find(store, index, "root:team") == ResolvedPath(TEAM)
    with store.snapshot() as snapshot:
        revision = snapshot.revision_of(workspace(ROOT, "team"))
    await store.submit([Delete(workspace(ROOT, "team"), revision)])
    assert find(store, index, "root:team") is None


async def test_what_another_shard_says_of_a_cluster_that_stands_here_leads_nowhere(
    store: LmdbStore, index: PathIndex
) -> None:
    await cluster_here(store, ROOT)
    await published(store, ROOT, replica(workspace(ROOT, "team"), 7, **leading(TEAM)))
    assert find(store, index, "root:team") is None


async def test_an_unavailable_workspace_is_told_of_and_what_lies_below_it_is_found(
    store: LmdbStore, index: PathIndex
) -> None:
    for cluster in (ROOT, TEAM, SHOP):
        await cluster_here(store, cluster)
    await put(store, workspace(ROOT, "team"), **leading(TEAM, "Unavailable"))
    await put(store, workspace(TEAM, "shop"), **leading(SHOP))
    for _ in range(2):
        assert find(store, index, "root:team") == ResolvedPath(TEAM, unavailable=True)
        assert find(store, index, "root:team:shop") == ResolvedPath(SHOP)
    await put(store, workspace(ROOT, "team"), **leading(TEAM))
    assert find(store, index, "root:team") == ResolvedPath(TEAM)


async def test_what_a_path_hangs_on_is_its_first_missing_workspace_or_the_last(
    store: LmdbStore, index: PathIndex
) -> None:
    def awaited(path: str) -> tuple[str, str] | None:
        with store.snapshot() as snapshot:
            return index.awaited(snapshot, path)

    await cluster_here(store, ROOT)
    assert awaited("root:team:shop") == (ROOT, "team")
    await put(store, workspace(ROOT, "team"), **leading(TEAM))
    assert awaited("root:team:shop") == (TEAM, "shop")
    await published(store, TEAM, replica(workspace(TEAM, "shop"), 7, **leading(SHOP)))
    assert awaited("root:team:shop") == (TEAM, "shop")
    assert awaited(SHOP) is None and awaited("system:admin") is None
