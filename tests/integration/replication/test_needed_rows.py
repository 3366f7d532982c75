"""A shard that keeps of others' Workspaces and LogicalClusters only those that it needs."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from atoll.machinery.kcp.sharding.ownership import Owner
from atoll.machinery.kcp.sharding.ownership_resolver import OwnershipResolver
from atoll.machinery.meta import hashes, wellknown
from atoll.machinery.meta.names import ROOT, ObjectKey
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.types import API_EXPORTS, LOGICAL_CLUSTERS
from atoll.machinery.storage.contract import Operation, Scope
from atoll.machinery.stream.connection import Connection
from atoll.machinery.stream.consumer import selection
from atoll.machinery.stream.consumer.pull_consumer import PullConsumer
from atoll.machinery.stream.subjects import state_subject, stream_name
from atoll.replication.shard_replica import ReplicaProgress
from harness.data.stored_headers import parse_headers
from harness.servers.in_process.followers import TIMEOUT_S, TYPES, Archipelago, Member, cluster_key, workspace_key
from harness.servers.nats import eventually

SITE = ("root", "east", "west")


@pytest.fixture
async def sea(tmp_path: Path) -> AsyncIterator[Archipelago]:
    async with Archipelago(tmp_path, *SITE) as sea:
        for name in SITE:
            await sea.shard("root").announce(name)
        yield sea


def export_key(cluster: str, name: str = "e") -> ObjectKey:
    return ObjectKey(API_EXPORTS, cluster, "", name)


def selected(member: Member, origin: str) -> set[ObjectKey]:
    """The Workspaces and LogicalClusters held from a shard, valid or not."""
    with member.store.snapshot() as snapshot:
        rows = snapshot.replicas.rows_of
        found = [*rows(origin, Scope(LOGICAL_CLUSTERS)), *rows(origin, Scope(TYPES.workspaces))]
    return {row.key for row in found}


def is_complete(member: Member, origin: str) -> bool:
    """Whether everything of a shard was read."""
    data = member.store.get_mark(f"replication.{origin}")
    return data is not None and msgspec.json.decode(data, type=ReplicaProgress).mark is not None


async def offered(member: Member, cluster: str) -> None:
    """Return when a valid export of a cluster is held."""
    await member.until(lambda view: view.replicas.get(export_key(cluster)))


async def says(member: Member, key: ObjectKey, word: bytes) -> None:
    """Return when a valid replica has a word in it."""
    await member.until(lambda view: (row := view.replicas.get(key)) is not None and word in row.value)


def refused(member: Member, shard: str) -> float:
    """How many messages of a shard were not believed."""
    reasons = ("unsigned", "forged", "unknown key", "replayed")
    return sum(member.metric("atoll_replication_refused_rows_total", shard=shard, reason=each) for each in reasons)


def sender(member: Member, cluster: str) -> str:
    """Which shard's export counts."""
    export = member.replica(export_key(cluster))
    return str(export["spec"]["from"]) if export is not None else ""


async def workspace(sea: Archipelago, name: str, shard: str, parent: str = ROOT, above: str = "root") -> str:
    """A Workspace on `above` with its cluster on `shard`."""
    cluster = await sea.shard(above).schedule(parent, name, shard)
    await sea.shard(shard).open(cluster, parent, name)
    return cluster


async def test_of_others_workspaces_only_those_with_exports_are_kept(sea: Archipelago) -> None:
    east, west = sea.shard("east"), sea.shard("west")
    clusters = [await workspace(sea, f"shop{number}", "east") for number in range(20)]
    await east.put(export_key(clusters[7]))
    await west.follow(needed_only=True)
    await west.until(lambda view: view.replicas.get(export_key(clusters[7])))
    await eventually(lambda: selected(west, "east") == {cluster_key(clusters[7])})
    await eventually(lambda: selected(west, "root") == {workspace_key(ROOT, "shop7")})
    assert west.replica(cluster_key(clusters[7])) is not None
    await east.put(export_key(clusters[3]))
    await west.until(lambda view: view.replicas.get(export_key(clusters[3])))
    await west.until(lambda view: view.replicas.get(workspace_key(ROOT, "shop3")))
    assert {west.shard_of(cluster) for cluster in clusters} == {"east", ""}
    await east.delete(export_key(clusters[7]))
    await eventually(lambda: selected(west, "east") == {cluster_key(clusters[3])})
    await eventually(lambda: selected(west, "root") == {workspace_key(ROOT, "shop3")})
    await eventually(lambda: west.shard_of(clusters[7]) == "")
    assert west.changes.of(cluster_key(clusters[7])) == ["ADDED"], "it exists on: nobody hears of a deletion"
    await east.put(export_key(clusters[7]))
    await offered(west, clusters[7])
    assert cluster_key(clusters[7]) in selected(west, "east")


async def test_the_parents_of_an_own_cluster_are_kept_as_soon_as_it_is_made(sea: Archipelago) -> None:
    west = sea.shard("west")
    await west.follow(needed_only=True)
    shop = await workspace(sea, "shop", "east")
    inner = await workspace(sea, "inner", "west", shop, "east")
    await west.until(lambda view: view.replicas.get(workspace_key(shop, "inner")))
    await west.until(lambda view: view.replicas.get(cluster_key(shop)))
    await eventually(lambda: selected(west, "root") == {workspace_key(ROOT, "shop")})
    await sea.shard("east").put(workspace_key(shop, "inner"), spec={"cluster": inner}, status={"phase": "Ready"})
    await says(west, workspace_key(shop, "inner"), b"Ready")
    await west.delete(cluster_key(inner))
    await eventually(lambda: not selected(west, "root") | selected(west, "east"))


async def test_a_moved_cluster_is_followed_to_its_new_shard(sea: Archipelago) -> None:
    root, east, west = (sea.shard(name) for name in SITE)
    shop = await workspace(sea, "shop", "east")
    await east.put(export_key(shop))
    await root.follow(needed_only=True)
    await root.until(lambda view: view.replicas.get(export_key(shop)))
    await west.open(shop, ROOT, "shop")
    await west.put(export_key(shop), spec={"from": "west"})
    await root.until(lambda view: view.replicas.row_of("west", export_key(shop)))
    assert root.shard_of(shop) == "east"
    await east.open(shop, ROOT, "shop", **{wellknown.MOVED_TO: "west", wellknown.MOVED_GENERATION: "1"})
    await root.until(lambda view: view.replicas.get(cluster_key(shop)) and view.replicas.shard_of(shop) == "west")
    assert sender(root, shop) == "west"
    assert selected(root, "east") == {cluster_key(shop)}, "what tells where it went"


async def test_what_moved_away_from_here_is_followed_with_what_its_children_need(sea: Archipelago) -> None:
    east, west = sea.shard("east"), sea.shard("west")
    shop = await workspace(sea, "shop", "east")
    inner = await workspace(sea, "inner", "east", shop, "east")
    await east.follow(needed_only=True)
    await east.until(lambda view: view.replicas.get(workspace_key(ROOT, "shop")))
    await west.open(shop, ROOT, "shop")
    await west.schedule(shop, "inner", "east")
    await east.open(shop, ROOT, "shop", **{wellknown.MOVED_TO: "west", wellknown.MOVED_GENERATION: "1"})
    await east.until(lambda view: view.replicas.get(cluster_key(shop)) and view.replicas.shard_of(shop) == "west")
    await east.until(lambda view: view.replicas.get(workspace_key(shop, "inner")))
    assert inner
    alone = await workspace(sea, "alone", "east")
    await west.open(alone, ROOT, "alone")
    await east.open(alone, ROOT, "alone", **{wellknown.MOVED_TO: "west", wellknown.MOVED_GENERATION: "1"})
    await east.until(lambda view: view.replicas.get(cluster_key(alone)))


async def test_a_replayed_object_is_not_taken_when_it_is_selected(sea: Archipelago) -> None:
    """Its message was in the stream before, and is read out of order."""
    east, west = sea.shard("east"), sea.shard("west")
    shop = await workspace(sea, "shop", "east")
    assert east.publishing is not None
    await east.publishing.drained()
    connection = await Connection.open(sea.users["east"].access(sea.nats.server.address), "test")
    stream, key = stream_name("state", "east"), cluster_key(shop)
    stored = await connection.api(f"STREAM.MSG.GET.{stream}", {"last_by_subj": state_subject("east", key)})
    headers = parse_headers(base64.b64decode(stored["message"]["hdrs"]))
    kept = {name: text for name, text in headers.items() if not name.startswith("Nats-")}
    payload = base64.b64decode(stored["message"]["data"])
    await east.publish_no_more()
    await connection.client.publish(state_subject("east", key), payload, headers=kept)
    await connection.client.flush()
    await sea.shard("root").put(export_key(ROOT))
    await west.follow(needed_only=True)
    await west.until(lambda view: view.replicas.get(export_key(ROOT)))
    await eventually(partial(is_complete, west, "east"))
    await west.open("w" * 16, shop, "inner")
    await eventually(lambda: refused(west, "east") > 0)
    assert not west.sent("east", key)
    await connection.close()


async def test_a_stranger_gains_nothing_by_rows_of_a_cluster_that_is_not_its_own(sea: Archipelago) -> None:
    root, east, west = (sea.shard(name) for name in SITE)
    shop = await workspace(sea, "shop", "east")
    await west.open(shop, ROOT, "shop")
    await west.put(export_key(shop), spec={"from": "west"})
    await root.follow(needed_only=True)
    await root.until(lambda view: view.replicas.row_of("west", export_key(shop)))
    await root.until(lambda view: view.replicas.shard_of(shop) == "east")
    assert root.replica(export_key(shop)) is None
    await east.put(export_key(shop), spec={"from": "east"})
    await root.until(lambda view: view.replicas.get(export_key(shop)))
    assert sender(root, shop) == "east"


@pytest.mark.long
async def test_a_store_that_held_everything_is_narrowed_at_the_start(sea: Archipelago) -> None:
    east, west = sea.shard("east"), sea.shard("west")
    clusters = [await workspace(sea, f"shop{number}", "east") for number in range(30)]
    await east.put(export_key(clusters[7]))
    await west.follow()
    await west.until(lambda view: all(view.replicas.get(cluster_key(cluster)) for cluster in clusters))
    await west.until(lambda view: view.replicas.get(export_key(clusters[7])))
    for name in ("root", "east"):
        await eventually(partial(is_complete, west, name))
    await west.reopen()
    await sea.nats.stop()
    await west.follow(needed_only=True)
    await eventually(lambda: selected(west, "east") == {cluster_key(clusters[7])})
    await eventually(lambda: selected(west, "root") == {workspace_key(ROOT, "shop7")})
    assert west.replica(export_key(clusters[7])) is not None
    assert {west.shard_of(cluster) for cluster in clusters if cluster != clusters[7]} == {""}
    await sea.nats.start()
    await east.put(export_key(clusters[8]))
    await west.until(lambda view: view.replicas.get(export_key(clusters[8])))
    assert west.metric("atoll_replication_generations", shard="east") == 0, "nothing was read again"
    await west.reopen()
    await west.follow()
    await west.until(lambda view: all(view.replicas.get(cluster_key(cluster)) for cluster in clusters))


@pytest.mark.long
async def test_what_is_needed_is_current_after_an_absence(sea: Archipelago) -> None:
    east, west = sea.shard("east"), sea.shard("west")
    first, second = [await workspace(sea, name, "east") for name in ("first", "second")]
    await east.put(export_key(first))
    await west.follow(needed_only=True)
    await west.until(lambda view: view.replicas.get(export_key(first)))
    await west.reopen()
    await east.open(first, ROOT, "first", changed="meanwhile")
    await east.put(export_key(second))
    inner = await workspace(sea, "inner", "west", second, "east")
    await west.follow(needed_only=True)
    await says(west, cluster_key(first), b"meanwhile")
    await west.until(lambda view: view.replicas.get(export_key(second)))
    await west.until(lambda view: view.replicas.get(workspace_key(second, "inner")))
    assert inner


async def test_when_a_stream_is_filled_again_what_is_needed_stays(sea: Archipelago) -> None:
    east, west = sea.shard("east"), sea.shard("west")
    first, second = [await workspace(sea, name, "east") for name in ("first", "second")]
    for cluster in (first, second):
        await east.put(export_key(cluster))
    await west.follow(needed_only=True)
    for cluster in (first, second):
        await offered(west, cluster)
    changes = len(west.changes.entries)
    await east.publish_no_more()
    connection = await Connection.open(sea.users["east"].access(sea.nats.server.address), "test")
    await connection.api(f"STREAM.PURGE.{stream_name('state', 'east')}")
    await connection.close()
    await east.delete(export_key(second))
    east.publish()
    await west.until(lambda view: not view.replicas.row_of("east", export_key(second)))
    await eventually(lambda: selected(west, "east") == {cluster_key(first)})
    assert west.replica(export_key(first)) is not None
    gone = [entry.key for entry in west.changes.entries[changes:] if entry.operation is Operation.DELETED]
    assert set(gone) == {export_key(second)}


@pytest.mark.long
async def test_more_objects_than_filters_are_followed_by_their_resource(
    sea: Archipelago, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "MAX_SELECTED", 2)
    east, west = sea.shard("east"), sea.shard("west")
    clusters = [await workspace(sea, f"shop{number}", "east") for number in range(8)]
    await west.follow(needed_only=True)
    for cluster in clusters[:5]:
        await east.put(export_key(cluster))
        await offered(west, cluster)
    assert selected(west, "east") == {cluster_key(cluster) for cluster in clusters[:5]}
    await east.open(clusters[7], ROOT, "shop7", changed="now")
    await east.open(clusters[4], ROOT, "shop4", changed="now")
    await says(west, cluster_key(clusters[4]), b"now")
    assert cluster_key(clusters[7]) not in selected(west, "east")
    for cluster in clusters[:4]:
        await east.delete(export_key(cluster))
    await eventually(lambda: selected(west, "east") == {cluster_key(clusters[4])})
    await east.open(clusters[4], ROOT, "shop4", changed="later")
    await says(west, cluster_key(clusters[4]), b"later")


async def test_what_is_selected_right_behind_its_event_needs_no_consumer(
    sea: Archipelago, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once whole resources are followed: nats-server counts what all its subjects hold for each consumer."""
    monkeypatch.setattr(selection, "MAX_SELECTED", 2)
    east, west = sea.shard("east"), sea.shard("west")
    await west.follow(needed_only=True)
    for number in range(4):
        cluster = await workspace(sea, f"shop{number}", "east")
        await east.put(export_key(cluster))
        await offered(west, cluster)
    made, opens = PullConsumer.open, list[PullConsumer]()

    async def open_counted(reader: PullConsumer, config: Object) -> Object:
        opens.append(reader)
        return await made(reader, config)

    monkeypatch.setattr(PullConsumer, "open", open_counted)
    for number in range(5):
        cluster = await workspace(sea, f"late{number}", "east")
        await east.put(export_key(cluster))
        await offered(west, cluster)
        await says(west, cluster_key(cluster), b"")
    assert [each for each in opens if each._stream == stream_name("state", "east")] == []


async def test_what_was_not_followed_meanwhile_is_read_again(sea: Archipelago, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "MAX_SELECTED", 2)
    east, west = sea.shard("east"), sea.shard("west")
    await west.follow(needed_only=True)
    first, *others = [await workspace(sea, f"shop{number}", "east") for number in range(3)]
    for cluster in (first, *others):
        await east.put(export_key(cluster))
        await offered(west, cluster)
    # Now by its resource, so that it is among the events that came last.
    await east.open(others[1], ROOT, "shop2", changed="now")
    await says(west, cluster_key(others[1]), b"now")
    for cluster in others:
        await east.delete(export_key(cluster))
    await eventually(lambda: selected(west, "east") == {cluster_key(first)})
    await east.open(others[1], ROOT, "shop2", changed="later")
    await east.open(first, ROOT, "shop0", changed="later")
    await says(west, cluster_key(first), b"later")
    for cluster in others:
        await east.put(export_key(cluster))
        await offered(west, cluster)
    await says(west, cluster_key(others[1]), b"later")


async def sought(member: Member, cluster: str) -> str:
    """The shard of a cluster that a request names, once everything that was published before was read."""
    async with asyncio.timeout(TIMEOUT_S):
        for publishing in [each.publishing for each in member.sea.members.values() if each.publishing is not None]:
            await publishing.publisher.drain(TIMEOUT_S)
        assert member.follower is not None
        while await member.follower.seek(cluster):
            pass
    return member.shard_of(cluster)


@pytest.mark.long
async def test_the_owner_of_a_cluster_that_a_request_names_is_found_and_followed(sea: Archipelago) -> None:
    east, west = sea.shard("east"), sea.shard("west")
    await west.follow(needed_only=True)
    shop = await workspace(sea, "shop", "east")
    inner = await workspace(sea, "inner", "root", shop, "east")
    innermost = await workspace(sea, "innermost", "east", inner, "root")
    assert await sought(west, innermost) == "east"
    assert await sought(west, shop) == "east"
    assert await sought(west, hashes.home_cluster_name("nobody")) == ""
    assert west.replica(cluster_key(innermost)) is not None
    assert selected(west, "root") == {
        workspace_key(ROOT, "shop"),
        cluster_key(inner),
        workspace_key(inner, "innermost"),
    }
    # It is followed: its move is heard of, and its end.
    await sea.shard("root").open(innermost, inner, "innermost")
    await east.open(innermost, inner, "innermost", **{wellknown.MOVED_TO: "root", wellknown.MOVED_GENERATION: "1"})
    await eventually(lambda: west.shard_of(innermost) == "root", TIMEOUT_S)
    await east.delete(cluster_key(innermost))
    await sea.shard("root").delete(cluster_key(innermost))
    await sea.shard("root").delete(workspace_key(inner, "innermost"))
    await eventually(lambda: west.shard_of(innermost) == "", TIMEOUT_S)
    assert await sought(west, innermost) == ""


@pytest.mark.long
async def test_a_shard_that_claims_a_sought_cluster_is_not_believed(
    sea: Archipelago, monkeypatch: pytest.MonkeyPatch
) -> None:
    east, west = sea.shard("east"), sea.shard("west")
    shop = await workspace(sea, "shop", "root")
    taken, home = await sea.shard("root").schedule(ROOT, "taken", "root"), hashes.home_cluster_name("victim")
    await east.open(taken, ROOT, "taken")
    await east.open(shop, ROOT, "taken")
    await east.put(cluster_key(home), spec={"createdBy": {"username": "victim"}})
    await west.follow(needed_only=True)
    assert [await sought(west, each) for each in (shop, taken, home)] == ["root", "root", ""]
    assert west.sent("east", cluster_key(home)), "it was read, and does not count"
    await west.reopen()
    monkeypatch.setattr(OwnershipResolver, "_resolve_cluster", first_row_counts)
    await west.follow(needed_only=True)
    # The rules of ownership are all that keeps it from the home; a follower that begins may know no shard to ask yet.
    async with asyncio.timeout(TIMEOUT_S):
        while await sought(west, home) != "east":  # noqa: ASYNC110 - what it waits for has no event
            await asyncio.sleep(0.01)


def first_row_counts(resolver: OwnershipResolver, origin: str, cluster: str) -> Iterator[str]:
    if resolver.owner(cluster) == "":
        yield from resolver._decide(cluster, Owner(origin, 0))


@pytest.mark.long
async def test_no_cluster_is_said_to_have_no_owner_while_a_shard_was_not_read(sea: Archipelago) -> None:
    root, _, west = (sea.shard(name) for name in SITE)
    await root.announce("north")
    await west.follow(needed_only=True)
    await west.until(lambda _: west.follower is not None and "north" in west.follower.consumers)
    assert west.follower is not None
    cluster = hashes.home_cluster_name("nobody")

    async def unread() -> bool:
        return west.follower is not None and list(await west.follower.seek(cluster)) == ["north"]

    async with asyncio.timeout(TIMEOUT_S):
        while not await unread():
            pass
    shop = await workspace(sea, "shop", "east")
    async with asyncio.timeout(TIMEOUT_S):
        while west.shard_of(shop) != "east":
            await west.follower.seek(shop)
