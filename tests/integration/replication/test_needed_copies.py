"""Copies of cached resources are followed as sets, by the shards that need them, and by no other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from atoll.machinery.kcp.apis.copies import MARKER, CopySet
from atoll.machinery.meta.names import ROOT, ObjectKey
from atoll.machinery.meta.types import API_EXPORTS, is_copy
from atoll.machinery.storage.contract import Scope
from atoll.machinery.stream.consumer import selection
from harness.servers.in_process.followers import TIMEOUT_S, Archipelago, Member
from harness.servers.nats import eventually

SITE = ("root", "east", "west")
#: Of the Workspaces of others the shards follow all, or those that they need.
MODES = pytest.mark.parametrize("mode", [False, True], ids=["all", "needed"])


@pytest.fixture
async def sea(tmp_path: Path) -> AsyncIterator[Archipelago]:
    async with Archipelago(tmp_path, *SITE) as sea:
        for name in SITE:
            await sea.shard("root").announce(name)
        yield sea


async def provider(sea: Archipelago, name: str = "shop") -> str:
    """The cluster of a workspace on east with an export, so that every shard knows whose it is."""
    cluster = await sea.shard("root").schedule(ROOT, name, "east")
    east = sea.shard("east")
    await east.open(cluster, ROOT, name)
    await east.put(ObjectKey(API_EXPORTS, cluster, "", "e"))
    return cluster


async def offer(sea: Archipelago, each: CopySet, *names: str) -> None:
    for name in (*names, MARKER):
        await sea.shard("east").put(each.key(name), spec={"object": name})


def kept(member: Member, each: CopySet) -> set[str]:
    """The names of the copies of a set that a shard holds, valid or not."""
    with member.store.snapshot() as snapshot:
        return {row.key.name for row in snapshot.replicas.rows_of("east", Scope(each.type, each.cluster))}


def holds(member: Member, each: CopySet, *names: str) -> bool:
    return kept(member, each) == set(names)


def kept_types(member: Member, cluster: str) -> list[str]:
    with member.store.snapshot() as snapshot:
        return [type.resource for type in snapshot.replicas.types_of("east", cluster) if is_copy(type)]


async def knows(member: Member, cluster: str) -> None:
    await member.until(lambda view: view.replicas.get(ObjectKey(API_EXPORTS, cluster, "", "e")))


async def need(member: Member, each: CopySet) -> None:
    assert member.follower is not None and member.follower.copies is not None
    await member.follower.copies.need(each)


@MODES
async def test_a_set_is_kept_where_it_is_needed_and_nowhere_else(sea: Archipelago, mode: bool) -> None:
    root, east, west = (sea.shard(name) for name in SITE)
    shop = await provider(sea)
    plans, prices = CopySet(shop, "plans"), CopySet(shop, "prices")
    await offer(sea, plans, "a", "b")
    await offer(sea, prices, "c")
    for member in (root, west):
        await member.follow(needed_only=mode)
        await knows(member, shop)
    await need(west, plans)
    await west.until(lambda view: view.replicas.get(plans.key(MARKER)))
    assert kept(west, plans) == {"a", "b", MARKER}
    await east.put(plans.key("d"), spec={"object": "d"})
    await east.put(prices.key("e"), spec={"object": "e"})
    await east.delete(plans.key("a"))
    await eventually(lambda: kept(west, plans) == {"b", "d", MARKER}, TIMEOUT_S)
    # What comes behind these in the same stream shows that they were not merely late.
    await east.put(ObjectKey(API_EXPORTS, shop, "", "later"))
    for member in (root, west):
        await member.until(lambda view: view.replicas.get(ObjectKey(API_EXPORTS, shop, "", "later")))
    assert (kept_types(west, shop), kept_types(root, shop)) == (["plans"], [])
    assert west.follower is not None and west.follower.copies is not None
    await west.follower.copies.release(plans)
    await eventually(lambda: not kept(west, plans), TIMEOUT_S)
    assert "DELETED" not in west.changes.of(plans.key("b")), "it exists on: nobody hears of a deletion"
    await east.put(plans.key("f"), spec={"object": "f"})
    await need(west, plans)
    await eventually(lambda: kept(west, plans) == {"b", "d", "f", MARKER}, TIMEOUT_S)


@pytest.mark.long
@MODES
async def test_a_set_that_is_needed_again_before_it_is_dropped_has_missed_nothing(
    sea: Archipelago, mode: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    east, west = sea.shard("east"), sea.shard("west")
    shop = await provider(sea)
    plans = CopySet(shop, "plans")
    await offer(sea, plans, "a", "b")
    await west.follow(needed_only=mode)
    await knows(west, shop)
    await need(west, plans)
    await eventually(partial(holds, west, plans, "a", "b", MARKER), TIMEOUT_S)
    assert west.follower is not None and west.follower.copies is not None
    with monkeypatch.context() as unnoticed:
        unnoticed.setattr(west.follower.copies, "_note_change", lambda: None)
        await west.follower.copies.release(plans)
        await east.put(plans.key("c"), spec={"object": "c"})
        await east.delete(plans.key("a"))
        await east.put(ObjectKey(API_EXPORTS, shop, "", "later"))
        await west.until(lambda view: view.replicas.get(ObjectKey(API_EXPORTS, shop, "", "later")))
    await need(west, plans)
    await eventually(partial(holds, west, plans, "b", "c", MARKER), TIMEOUT_S)


async def test_a_process_that_is_no_shard_keeps_no_copies(sea: Archipelago) -> None:
    shop = await provider(sea)
    await offer(sea, CopySet(shop, "plans"), "a")
    await sea.shard("east").put(ObjectKey(API_EXPORTS, shop, "", "later"))
    proxy = await sea.reader()
    await proxy.until(lambda view: view.replicas.get(ObjectKey(API_EXPORTS, shop, "", "later")))
    assert not kept_types(proxy, shop)
    assert proxy.follower is not None and proxy.follower.copies is None


@pytest.mark.long
@MODES
async def test_a_set_is_current_after_a_restart_that_missed_changes(sea: Archipelago, mode: bool) -> None:
    east, west = sea.shard("east"), sea.shard("west")
    shop = await provider(sea)
    plans, prices = CopySet(shop, "plans"), CopySet(shop, "prices")
    for each in (plans, prices):
        await offer(sea, each, "a", "b")
    await west.follow(needed_only=mode)
    for each in (plans, prices):
        await need(west, each)
        await eventually(partial(holds, west, each, "a", "b", MARKER), TIMEOUT_S)
    await west.follow_no_more()
    assert west.follower is not None and west.follower.copies is not None
    await west.follower.copies.release(prices)
    await west.reopen()
    assert kept(west, plans) == {"a", "b", MARKER}, "it serves without NATS"
    await east.delete(plans.key("a"))
    await east.put(plans.key("c"), spec={"object": "c"})
    await west.follow(needed_only=mode)
    await eventually(lambda: kept(west, plans) == {"b", "c", MARKER}, TIMEOUT_S)
    assert not kept(west, prices), "released before the start"


@pytest.mark.long
@MODES
async def test_a_set_is_swept_when_everything_is_read_again(sea: Archipelago, mode: bool) -> None:
    east, west = sea.shard("east"), sea.shard("west")
    shop = await provider(sea)
    plans = CopySet(shop, "plans")
    await offer(sea, plans, "a", "b")
    await west.follow(needed_only=mode)
    await need(west, plans)
    await eventually(lambda: kept(west, plans) == {"a", "b", MARKER}, TIMEOUT_S)
    await sea.nats.stop()
    sea.nats.delete_store()
    await east.delete(plans.key("a"))
    await east.put(plans.key("c"), spec={"object": "c"})
    assert kept(west, plans) == {"a", "b", MARKER}
    await sea.nats.start()
    await eventually(lambda: kept(west, plans) == {"b", "c", MARKER}, TIMEOUT_S)
    await eventually(lambda: west.changes.of(plans.key("a"))[-1] == "DELETED", TIMEOUT_S)


async def test_many_selected_objects_do_not_end_the_following_of_copies(
    sea: Archipelago, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "MAX_SELECTED", 1)
    root, east, west = (sea.shard(name) for name in SITE)
    first, second = await provider(sea, "first"), await provider(sea, "second")
    plans, others = CopySet(first, "plans"), CopySet(second, "plans")
    for each in (plans, others):
        await offer(sea, each, "a")
    await west.follow(needed_only=True)
    await need(west, plans)
    await eventually(lambda: kept(west, plans) == {"a", MARKER}, TIMEOUT_S)
    await east.put(others.key("b"), spec={"object": "b"})
    await east.put(plans.key("b"), spec={"object": "b"})
    await eventually(lambda: kept(west, plans) == {"a", "b", MARKER}, TIMEOUT_S)
    assert not kept(west, others), "it is received, and not kept"
    assert root.follower is None
