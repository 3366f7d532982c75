"""A shard that keeps only the rows it needs finds where the paths lead that its requests name."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from atoll.machinery.apiserver.federation.pathindex import PathIndex, ResolvedPath
from atoll.machinery.kcp.sharding.shards import ROOTS
from atoll.machinery.meta import hashes, wellknown
from atoll.machinery.meta.names import ROOT, ObjectKey
from atoll.machinery.meta.types import API_EXPORTS
from atoll.replication import sought_paths
from harness.servers.in_process.followers import (
    TIMEOUT_S,
    TYPES,
    Archipelago,
    Member,
    cluster_key,
    shard_key,
    workspace_key,
)
from harness.servers.nats import eventually

SITE = ("root", "east", "west")


@pytest.fixture
async def sea(tmp_path: Path) -> AsyncIterator[Archipelago]:
    async with Archipelago(tmp_path, *SITE) as sea:
        for name in SITE:
            await sea.shard("root").announce(name)
        yield sea


async def workspace(sea: Archipelago, parent: str, name: str, above: str, shard: str) -> str:
    """A Workspace on `above` that is Ready, with its cluster on `shard`."""
    cluster = await sea.shard(above).schedule(parent, name, shard)
    await sea.shard(shard).open(cluster, parent, name)
    return cluster


def found(member: Member, path: str) -> ResolvedPath | None:
    """Where a request to a path is served."""
    with member.store.snapshot() as snapshot:
        return PathIndex(TYPES.workspaces).find(snapshot, path)


async def seek(member: Member, path: str) -> ResolvedPath | None:
    """Seek a path until everything that was published before was read; then return where it leads."""
    follower = member.follower
    assert follower is not None
    async with asyncio.timeout(TIMEOUT_S):
        for publishing in [each.publishing for each in member.sea.members.values() if each.publishing is not None]:
            await publishing.publisher.drain(TIMEOUT_S)
        while await follower.seek(path):
            pass
    return found(member, path)


async def test_a_path_is_followed_name_by_name_over_shards_until_its_end(sea: Archipelago) -> None:
    west = sea.shard("west")
    outer = await workspace(sea, ROOT, "outer", "root", "east")
    inner = await workspace(sea, outer, "inner", "east", "root")
    innermost = await workspace(sea, inner, "innermost", "root", "east")
    await workspace(sea, ROOT, "other", "root", "east")
    await west.follow(needed_only=True)
    path = "root:outer:inner:innermost"
    assert found(west, path) is None
    assert await seek(west, path) == ResolvedPath(innermost, remote=True)
    assert await seek(west, f"{outer}:inner") == ResolvedPath(inner, remote=True)
    assert await seek(west, "root:outer:none:innermost") is None
    assert await seek(west, "user:nobody:place") is None
    assert found(west, "root:other") is None, "what nobody named is not read"
    # It is followed, also to a cluster that is made later.
    assert await seek(west, f"{path}:later") is None
    later = await workspace(sea, innermost, "later", "east", "root")
    await eventually(lambda: found(west, f"{path}:later") == ResolvedPath(later, remote=True), TIMEOUT_S)
    await eventually(lambda: west.replica(cluster_key(later)) is not None, TIMEOUT_S)
    await sea.shard("east").delete(workspace_key(innermost, "later"))
    await eventually(lambda: found(west, f"{path}:later") is None, TIMEOUT_S)


async def test_a_root_is_found_at_the_shard_that_may_hold_it(sea: Archipelago) -> None:
    root, east, west = (sea.shard(name) for name in SITE)
    path = "tenant:acme"
    cluster = hashes.root_cluster_name(path)
    labels = dict([hashes.root_path_label(path)])
    metadata = {"annotations": {wellknown.PATH: path}, "labels": labels}
    await east.put(cluster_key(cluster), metadata=metadata, spec={})
    child = await workspace(sea, cluster, "child", "east", "root")
    await west.follow(needed_only=True)
    assert await seek(west, f"{path}:child") is None
    annotations = {ROOTS: path}
    await root.put(shard_key("east"), metadata={"annotations": annotations}, spec={"baseURL": "https://east"})
    await eventually(lambda: west.follower is not None and cluster in west.follower.writer.root_holders, TIMEOUT_S)
    assert await seek(west, f"{path}:child") == ResolvedPath(child, remote=True)
    assert await seek(west, f"{path}:none") is None


@pytest.mark.long
async def test_paths_sought_earlier_are_followed_no_more_and_leave_nothing(
    sea: Archipelago, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sought_paths, "MAX_PLACES", 4)
    west = sea.shard("west")
    clusters = [await workspace(sea, ROOT, f"shop{number}", "root", "east") for number in range(4)]
    await west.follow(needed_only=True)
    for number in range(4):
        assert await seek(west, f"root:shop{number}") is not None
    kept = clusters[-2:]
    await eventually(lambda: [each for each in clusters if west.shard_of(each)] == kept, TIMEOUT_S)
    await eventually(lambda: [each for each in clusters if west.sent("east", cluster_key(each))] == kept, TIMEOUT_S)
    assert [found(west, f"root:shop{number}") is not None for number in range(4)] == [False, False, True, True]


@pytest.mark.long
async def test_a_path_is_not_said_to_lead_nowhere_while_the_shard_that_knows_was_not_read(sea: Archipelago) -> None:
    root, west = sea.shard("root"), sea.shard("west")
    north = await root.schedule(ROOT, "place", "north")
    await root.announce("north")
    await west.follow(needed_only=True)
    follower = west.follower
    assert follower is not None
    await west.until(lambda _: "north" in follower.consumers)
    # What root alone has to say needs nobody else.
    assert await seek(west, "root:nowhere") is None
    async with asyncio.timeout(TIMEOUT_S):
        while list(await follower.seek("root:place:inner")) != ["north"]:
            pass
    assert found(west, "root:place") == ResolvedPath(north, remote=True)


async def test_what_root_says_of_a_home_here_is_followed_while_somebody_asks(sea: Archipelago) -> None:
    root, west = sea.shard("root"), sea.shard("west")
    home = hashes.home_cluster_name("alice")
    spec = {"createdBy": {"username": "alice"}}
    await west.put(cluster_key(home), spec=spec)
    marker = {"annotations": {wellknown.MOVED_TO: "east", wellknown.MOVED_GENERATION: "7"}}
    await root.put(cluster_key(home), metadata=marker, spec=spec)
    follower = await west.follow(needed_only=True)
    await eventually(lambda: follower.follow_marker(home) and west.sent("root", cluster_key(home)), TIMEOUT_S)
    assert west.shard_of(home) != "east", "it is here"
    follower.release_marker(home)
    await eventually(lambda: not west.sent("root", cluster_key(home)), TIMEOUT_S)


async def test_what_is_asked_for_again_before_it_is_dropped_has_missed_nothing(
    sea: Archipelago, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, west = sea.shard("root"), sea.shard("west")
    home, other = hashes.home_cluster_name("alice"), await root.schedule(ROOT, "other", "root")
    await root.put(cluster_key(home), spec={"createdBy": {"username": "alice"}})
    follower = await west.follow(needed_only=True)
    await eventually(lambda: follower.follow_marker(home) and west.sent("root", cluster_key(home)), TIMEOUT_S)
    assert follower._needed is not None
    with monkeypatch.context() as unnoticed:
        for each in (follower._needed, follower._needed._clusters):
            unnoticed.setattr(each, "_changed", lambda _: None)
        follower.release_marker(home)
        await root.put(cluster_key(home), spec={"createdBy": {"username": "alice"}, "later": True})
        await root.put(ObjectKey(API_EXPORTS, other, "", "later"))
        await eventually(lambda: west.sent("root", ObjectKey(API_EXPORTS, other, "", "later")), TIMEOUT_S)
    follower.follow_marker(home)
    with west.store.snapshot() as snapshot:
        row = snapshot.replicas.row_of("root", cluster_key(home))
    assert row is not None and b"later" in row[0].value


@pytest.mark.long
async def test_a_user_of_an_earlier_configuration_follows_everything_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("atoll.machinery.stream.connection._REQUEST_TIMEOUT_S", 0.5)
    async with Archipelago(tmp_path, *SITE, selects=False) as sea:
        for name in SITE:
            await sea.shard("root").announce(name)
        west = sea.shard("west")
        cluster = await workspace(sea, ROOT, "shop", "root", "east")
        for _ in range(2):
            follower = await west.follow(needed_only=True)
            await west.until(lambda view: view.replicas.get(cluster_key(cluster)))
            await eventually(lambda: "nats-config" in (follower.refusal() or ""), TIMEOUT_S)  # noqa: B023
            assert not await follower.seek("root:nowhere"), "everything is known"
            await eventually(functools.partial(_is_current, west), TIMEOUT_S)
            await west.reopen()
            west.publish()
        assert west.metric("atoll_replication_generations", shard="east") == 0, "nothing was read again"
    async with Archipelago(tmp_path, *SITE) as sea:
        west = sea.shard("west")
        follower = await west.follow(needed_only=True)
        await eventually(lambda: not west.sent("east", cluster_key(cluster)), TIMEOUT_S)
        assert follower.refusal() is None


def _is_current(member: Member) -> bool:
    return member.follower is not None and not member.follower.behind_s()
