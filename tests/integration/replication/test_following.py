"""Replication of other shards: their published rows are readable, if and as long as they are valid."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from atoll.machinery.meta import wellknown
from atoll.machinery.meta.names import ROOT, ObjectKey
from atoll.machinery.meta.types import API_EXPORTS
from harness.servers.in_process.followers import TYPES, Archipelago, cluster_key, shard_key, workspace_key
from harness.servers.nats import eventually


@pytest.fixture
async def sea(tmp_path: Path) -> AsyncIterator[Archipelago]:
    async with Archipelago(tmp_path, "root", "east", "west") as sea:
        await sea.shard("root").announce("root")
        yield sea


async def test_a_shard_that_appears_is_followed_and_its_clusters_are_found(sea: Archipelago) -> None:
    root, east, reader = sea.shard("root"), sea.shard("east"), await sea.reader()
    cluster = await root.schedule(ROOT, "shop", "east")
    await east.open(cluster, ROOT, "shop")
    await reader.until(lambda view: view.replicas.shard_of(cluster) == "east")
    assert reader.replica(cluster_key(cluster)) is None
    await root.announce("east")
    await reader.until(lambda view: view.replicas.get(cluster_key(cluster)))
    assert reader.replica(workspace_key(ROOT, "shop")) is not None


async def test_rows_that_came_before_their_owner_was_known_count_from_then_on(sea: Archipelago) -> None:
    root, east, west, reader = sea.shard("root"), sea.shard("east"), sea.shard("west"), await sea.reader()
    await root.announce("east")
    await root.announce("west")
    shop = "0123456789abcdef"
    inner = await east.schedule(shop, "inner", "west")
    await west.open(inner, shop, "inner")
    await east.open(shop, ROOT, "shop")
    await reader.until(lambda view: view.replicas.row_of("west", cluster_key(inner)))
    await reader.until(lambda view: view.replicas.row_of("east", cluster_key(shop)))
    assert reader.replica(cluster_key(shop)) is None
    assert reader.replica(cluster_key(inner)) is None
    metadata = {"uid": "u", "annotations": {wellknown.SHARD: "east"}}
    await root.put(workspace_key(ROOT, "shop"), metadata=metadata, spec={"cluster": shop})
    await reader.until(lambda view: view.replicas.get(cluster_key(inner)))
    assert (reader.shard_of(shop), reader.shard_of(inner)) == ("east", "west")
    await eventually(lambda: reader.changes.of(cluster_key(inner)) == ["ADDED"])


async def test_a_shard_that_is_gone_is_dropped_with_its_rows(sea: Archipelago) -> None:
    root, east, reader = sea.shard("root"), sea.shard("east"), await sea.reader()
    await root.announce("east")
    cluster = await root.schedule(ROOT, "shop", "east")
    await east.open(cluster, ROOT, "shop")
    await reader.until(lambda view: view.replicas.get(cluster_key(cluster)))
    await root.delete(shard_key("east"))
    await reader.until(lambda view: not view.replicas.row_of("east", cluster_key(cluster)))
    await eventually(lambda: reader.changes.of(cluster_key(cluster)) == ["ADDED", "DELETED"])
    await root.announce("east")
    await reader.until(lambda view: view.replicas.get(cluster_key(cluster)))


async def test_what_ends_while_nobody_follows_is_gone_after_a_restart(sea: Archipelago) -> None:
    root, east, reader = sea.shard("root"), sea.shard("east"), await sea.reader()
    await root.announce("east")
    cluster, other = await root.schedule(ROOT, "shop", "east"), await root.schedule(ROOT, "other", "east")
    await east.open(cluster, ROOT, "shop")
    await east.open(other, ROOT, "other")
    await reader.until(lambda view: view.replicas.get(cluster_key(cluster)) and view.replicas.get(cluster_key(other)))
    await reader.reopen()
    assert reader.replica(cluster_key(cluster)) is not None, "rows stay without a stream"
    await east.delete(cluster_key(cluster))
    await root.delete(workspace_key(ROOT, "shop"))
    await root.delete(shard_key("east"))
    await reader.follow()
    await reader.until(lambda view: not view.replicas.row_of("east", cluster_key(other)))
    await root.announce("east")
    await reader.until(lambda view: view.replicas.get(cluster_key(other)))
    assert reader.replica(cluster_key(cluster)) is None
    assert reader.shard_of(cluster) == ""


async def test_shards_follow_one_another_and_none_itself(sea: Archipelago) -> None:
    root, east, west = (sea.shard(name) for name in ("root", "east", "west"))
    await root.announce("east")
    await root.announce("west")
    for each in (root, east, west):
        await each.follow()
    here = await root.schedule(ROOT, "shop", "east")
    await east.open(here, ROOT, "shop")
    below = await east.schedule(here, "inner", "west")
    await west.open(below, here, "inner")
    for each, others in ((root, {"east", "west"}), (east, {"root", "west"}), (west, {"root", "east"})):
        follower = each.follower
        assert follower is not None
        await eventually(partial(lambda follower, others: set(follower.consumers) == others, follower, others))
    await west.until(lambda view: view.replicas.get(cluster_key(here)))
    await east.until(lambda view: view.replicas.get(workspace_key(ROOT, "shop")))
    assert not east.sent("east", cluster_key(here))
    with east.store.snapshot() as snapshot:
        assert not snapshot.replicas.types_of("east", here)


async def test_what_is_to_stay_in_a_region_goes_by_the_regions_of_both(sea: Archipelago) -> None:
    root, east, reader = sea.shard("root"), sea.shard("east"), await sea.reader(region="eu")
    await root.announce("east", region="eu")
    cluster = await root.schedule(ROOT, "shop", "east")
    await east.open(cluster, ROOT, "shop", **{"replication.atoll.dev/level": "region"})
    await reader.until(lambda view: view.replicas.get(cluster_key(cluster)))
    await root.announce("east", region="us")
    await reader.until(lambda view: not view.replicas.row_of("east", cluster_key(cluster)))
    await root.announce("east", region="eu")
    await reader.until(lambda view: view.replicas.get(cluster_key(cluster)))


async def test_who_knows_no_identities_learns_them_from_roots_exports(sea: Archipelago) -> None:
    root, east, reader = sea.shard("root"), sea.shard("east"), await sea.reader(types=None)
    cluster = await root.schedule(ROOT, "shop", "east")
    await east.open(cluster, ROOT, "shop")
    await root.announce("east")
    await reader.until(lambda view: view.replicas.get(shard_key("east")))
    assert reader.shard_of(cluster) == "", "what a Workspace is it does not know yet"
    for name, type in (("tenancy.kcp.io", TYPES.workspaces), ("shards.core.kcp.io", TYPES.shards)):
        await root.put(ObjectKey(API_EXPORTS, ROOT, "", name), status={"identityHash": type.identity})
    await reader.until(lambda view: view.replicas.get(cluster_key(cluster)))
    assert reader.shard_of(cluster) == "east"
