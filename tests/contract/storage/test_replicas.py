"""The contract of every store for rows of other shards, wherever its writer runs."""

from __future__ import annotations

import asyncio

import pytest

from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import decode
from atoll.machinery.storage.contract import (
    ClusterRoute,
    Flag,
    Mark,
    Position,
    Replica,
    RevisionConflict,
    Scope,
    Store,
    SweepReplicas,
)
from atoll.machinery.storage.workers.frames import WriterError
from harness.data.stores import CONFIGMAPS, create, gone, key, put, replica

OTHERS = ResourceType("example.dev", "others")
FAR = Scope(CONFIGMAPS, "far")
PATH = "paths.internal.atoll.dev/x"


def remote(name: str, cluster: str = "far") -> ObjectKey:
    return key(name, cluster=cluster)


def names(store: Store, scope: Scope = FAR) -> list[str]:
    """The names of the valid rows of a scope."""
    with store.snapshot() as snapshot:
        found = [record.key.name for record in snapshot.replicas.scan(scope)]
        assert found == [key.name for key, _ in snapshot.replicas.revisions(scope)]
        return found


def last(store: Store, cluster: str = "far", type: ResourceType = CONFIGMAPS) -> int:
    with store.snapshot() as snapshot:
        return snapshot.replicas.last(type, cluster)


async def test_a_replica_is_served_as_its_shard_wrote_it_and_takes_no_revision(store: Store) -> None:
    sent = replica(remote("a"), 7, metadata={"finalizers": ["f"]}, data="x")
    [before] = await create(store, "local")
    assert await store.submit([ClusterRoute("far", "east"), sent]) == [1, 2]
    with store.snapshot() as snapshot:
        record = snapshot.replicas.get(remote("a"))
        assert record is not None
        assert (record.key, record.revision, record.value) == (remote("a"), 7, sent.value)
        assert record.flags & Flag.FINALIZERS
        assert snapshot.replicas.revision_of(remote("a")) == 7
        assert (snapshot.revision, snapshot.get(remote("a")), snapshot.replicas.count) == (before, None, 2)
    assert len(store.tail(0)) == 1


async def test_an_empty_store_knows_of_nothing_elsewhere(store: Store) -> None:
    with store.snapshot() as snapshot:
        assert snapshot.replicas.empty
        assert (snapshot.replicas.count, snapshot.replicas.shard_of("far"), snapshot.replicas.shard_of("")) == (
            0,
            "",
            "",
        )
        assert (snapshot.replicas.get(remote("a")), snapshot.replicas.revision_of(remote("a"))) == (None, 0)
        assert (snapshot.replicas.last(CONFIGMAPS, "far"), snapshot.replicas.last(CONFIGMAPS, "")) == (0, 0)
        assert snapshot.replicas.scan(Scope(CONFIGMAPS)) == []
        assert snapshot.replicas.labelled(PATH, "") == []
        assert snapshot.replicas.outdated("east", 9) == ([], None)


async def test_only_rows_of_the_shard_that_a_cluster_lies_on_count(store: Store) -> None:
    await store.submit([replica(remote("a"), 7), replica(remote("b"), 7, origin="west"), ClusterRoute("far", "west")])
    assert names(store) == names(store, Scope(CONFIGMAPS)) == ["b"]
    with store.snapshot() as snapshot:
        assert snapshot.replicas.get(remote("a")) is None
        assert snapshot.replicas.revision_of(remote("a")) == 0
        assert [record.key.name for record in snapshot.replicas.rows_of("east", Scope(CONFIGMAPS))] == ["a"]


async def test_rows_without_a_route_are_kept_and_count_once_there_is_one(store: Store) -> None:
    await store.submit([replica(remote("a"), 7)])
    assert (names(store), last(store), last(store, "")) == ([], 0, 0)
    await store.submit([ClusterRoute("far", "east")])
    assert (names(store), last(store), last(store, "")) == (["a"], 2, 2)


async def test_a_replica_counts_above_its_row_and_in_a_later_generation_whatever_it_is(store: Store) -> None:
    assert await store.submit([ClusterRoute("far", "east"), replica(remote("a"), 7, data="1")]) == [1, 2]
    assert await store.submit([replica(remote("a"), 7, data="other"), gone(remote("a"), 6)]) == [0, 0]
    assert await store.submit([replica(remote("a"), 8, data="2"), gone(remote("b"), 9)]) == [3, 0]
    assert await store.submit([replica(remote("a"), 5, generation=2, data="3")]) == [4]
    assert await store.submit([replica(remote("a"), 9, data="late")]) == [0]
    with store.snapshot() as snapshot:
        record = snapshot.replicas.get(remote("a"))
        assert record is not None
        assert (record.revision, decode(record.value)["data"]) == (5, "3")
    assert await store.submit([gone(remote("a"), 6, generation=2)]) == [5]
    assert names(store) == []


async def test_reading_all_anew_changes_nothing_where_nothing_changed(store: Store) -> None:
    await store.submit([ClusterRoute("far", "east"), replica(remote("a"), 7), replica(remote("b"), 8)])
    before = last(store)
    assert await store.submit([replica(remote("a"), 7, generation=2)]) == [0]
    assert last(store) == before
    with store.snapshot() as snapshot:
        assert snapshot.replicas.outdated("east", 2) == ([remote("b")], None)
        assert snapshot.replicas.outdated("east", 2, limit=1) == ([], remote("a"))
        assert snapshot.replicas.outdated("east", 2, remote("a"), 1) == ([remote("b")], remote("b"))
    assert await store.submit([SweepReplicas("east", 2), Mark("stream", b"m")]) == [1, 0]
    assert (names(store), last(store)) == (["a"], before + 1)
    assert await store.submit([SweepReplicas("east", 2)]) == [0]


async def test_a_sweep_leaves_other_shards_alone_and_takes_as_much_as_there_is(store: Store) -> None:
    many = [replica(remote(f"n{number:04}"), 7) for number in range(1500)]
    await store.submit(many)
    await store.submit([replica(remote("z"), 7, origin="west"), replica(remote("n0700"), 7, generation=2)])
    assert await store.submit([SweepReplicas("east", 2)]) == [1499]
    with store.snapshot() as snapshot:
        assert len(snapshot.replicas.rows_of("east", Scope(CONFIGMAPS))) == 1
        assert len(snapshot.replicas.rows_of("west", Scope(CONFIGMAPS))) == 1


async def test_a_sweep_that_is_not_first_is_refused(store: Store) -> None:
    with pytest.raises((ValueError, WriterError)):
        await store.submit([replica(remote("a"), 7), SweepReplicas("east", 2)])
    assert names(store) == []


async def test_a_route_moves_all_that_counts_and_stamps_what_comes_and_goes(store: Store) -> None:
    await store.submit(
        [ClusterRoute("far", "east", 3), replica(remote("a"), 7), replica(remote("b"), 7, origin="west")]
    )
    await store.submit([replica(key("c", cluster="near"), 7), ClusterRoute("near", "east")])
    before, near = last(store), last(store, "near")
    other = ObjectKey(OTHERS, "far", "", "o")
    await store.submit([replica(other, 8)])
    assert await store.submit([ClusterRoute("far", "west", 2)]) == [0]
    [count] = await store.submit([ClusterRoute("far", "west", 4)])
    assert count > before
    assert (names(store), last(store), last(store, "")) == (["b"], count, count)
    assert last(store, "near") == near
    # This type had no row, only a deletion.
    assert last(store, type=OTHERS) == count
    with store.snapshot() as snapshot:
        assert snapshot.replicas.route_of("far") == ClusterRoute("far", "west", 4)
        assert snapshot.replicas.shard_of("far") == "west"
        assert snapshot.replicas.get(other) is None


async def test_a_forgotten_cluster_is_nowhere_and_its_rows_stay(store: Store) -> None:
    await store.submit([ClusterRoute("far", "east"), replica(remote("a"), 7)])
    before = last(store, "")
    await store.submit([ClusterRoute("far", "")])
    assert (names(store), last(store)) == ([], 0)
    assert last(store, "") > before
    with store.snapshot() as snapshot:
        assert snapshot.replicas.empty
        assert snapshot.replicas.route_of("far") is None
        assert len(snapshot.replicas.rows_of("east", Scope(CONFIGMAPS))) == 1
    assert await store.submit([ClusterRoute("far", "")]) == [0]
    [count] = await store.submit([ClusterRoute("far", "east")])
    assert (names(store), last(store)) == (["a"], count)


async def test_the_last_row_that_goes_leaves_its_stamp_while_the_cluster_is_known(store: Store) -> None:
    await store.submit([ClusterRoute("far", "east"), replica(remote("a"), 7)])
    before = last(store)
    await store.submit([gone(remote("a"), 8)])
    assert last(store) == before + 1
    await store.submit([ClusterRoute("far", "")])
    assert last(store) == 0


async def test_scans_of_all_clusters_go_through_all_shards_in_key_order(store: Store) -> None:
    await store.submit(
        [ClusterRoute(cluster, shard) for cluster, shard in [("a", "east"), ("b", "west"), ("c", "east")]]
    )
    sent = [("a", "1"), ("a", "2"), ("b", "1"), ("c", "1"), ("nowhere", "1")]
    for shard in ("east", "west"):
        await store.submit([replica(key(name, cluster=cluster), 7, origin=shard) for cluster, name in sent])
    with store.snapshot() as snapshot:
        found = [(r.key.cluster, r.key.name) for r in snapshot.replicas.scan(Scope(CONFIGMAPS))]
        assert found == sent[:4]
        rest = snapshot.replicas.scan(Scope(CONFIGMAPS), Position("a", "default", "2"), 1)
        assert [(r.key.cluster, r.key.name) for r in rest] == [("b", "1")]
        assert snapshot.replicas.scan(Scope(CONFIGMAPS, namespace="other")) == []
        assert len(snapshot.replicas.scan(Scope(CONFIGMAPS, "a", "default"))) == 2


async def test_names_too_long_for_a_key_are_given_in_full(store: Store) -> None:
    long = remote("n" * 300)
    await store.submit([ClusterRoute("far", "east"), replica(long, 7, metadata={"labels": {PATH: "p"}})])
    with store.snapshot() as snapshot:
        assert [record.key for record in snapshot.replicas.scan(Scope(CONFIGMAPS, "far"))] == [long]
        assert snapshot.replicas.labelled(PATH, "p") == [long]
        assert snapshot.replicas.outdated("east", 2) == ([long], None)


async def test_system_labels_of_replicas_are_found_where_they_count(store: Store) -> None:
    labelled = {"labels": {PATH: "p", "app": "x"}}
    noted = {"annotations": {"internal.kcp.io/replicate": "true", "internal.tenancy.kcp.io/type": "t"}}
    await store.submit([ClusterRoute("far", "east"), ClusterRoute("near", "west")])
    await store.submit([replica(remote("a"), 7, metadata=labelled), replica(remote("b"), 7, metadata=noted)])
    await store.submit([replica(key("c", cluster="near"), 7, origin="west", metadata=labelled)])
    await store.submit([replica(remote("strange"), 7, origin="west", metadata=labelled)])
    await store.submit([replica(ObjectKey(OTHERS, "far", "", "o"), 7, metadata=labelled)])
    with store.snapshot() as snapshot:
        elsewhere = snapshot.replicas
        found = elsewhere.labelled(PATH, "p", CONFIGMAPS)
        assert [each.name for each in found] == ["a", "c"]
        assert elsewhere.labelled(PATH, "p", CONFIGMAPS, 1) == found[:1]
        assert elsewhere.labelled(PATH, "p", CONFIGMAPS, 0, found[0]) == found[1:]
        assert {each.name for each in elsewhere.labelled(PATH, "p")} == {"a", "c", "o"}
        assert elsewhere.labelled("app", "x") == []
        assert [each.name for each in elsewhere.labelled("internal.kcp.io/replicate", "")] == ["b"]
        assert [each.name for each in elsewhere.labelled("internal.tenancy.kcp.io/type", "t")] == ["b"]
    await store.submit([replica(remote("a"), 8), gone(remote("b"), 8)])
    with store.snapshot() as snapshot:
        assert [each.name for each in snapshot.replicas.labelled(PATH, "p", CONFIGMAPS)] == ["c"]
        assert snapshot.replicas.labelled("internal.kcp.io/replicate", "") == []


async def test_rows_their_mark_and_a_local_write_are_one_transaction(store: Store) -> None:
    [first] = await create(store, "a")
    with pytest.raises(RevisionConflict):
        await store.submit(
            [replica(remote("a"), 7), ClusterRoute("far", "east"), Mark("s", b"1"), put(key("a"), expected=1)]
        )
    assert names(store) == []
    with store.snapshot() as snapshot:
        assert snapshot.replicas.count == 0
    await store.submit(
        [replica(remote("a"), 7), ClusterRoute("far", "east"), Mark("s", b"1"), put(key("a"), expected=first)]
    )
    assert names(store) == ["a"]


async def test_what_is_no_object_fails_its_submit(store: Store) -> None:
    with pytest.raises((ValueError, WriterError)):
        await store.submit([replica(remote("a"), 7), Replica("east", remote("b"), b"{}", 7, 1)])
    with pytest.raises((ValueError, WriterError)):
        await store.submit([replica(remote("a"), 7), replica(remote("b"), 7, origin="")])
    with pytest.raises((ValueError, WriterError)):
        await store.submit([ClusterRoute("", "east")])
    with store.snapshot() as snapshot:
        assert snapshot.replicas.rows_of("east", Scope(CONFIGMAPS)) == []


async def test_who_waits_for_replicas_is_woken_by_what_changes_and_nothing_else(store: Store) -> None:
    waiting = asyncio.create_task(store.replicated(0))
    await create(store, "local")
    await store.submit([gone(remote("a"), 7), Mark("s", b"1")])
    assert not waiting.done()
    await store.submit([replica(remote("a"), 7)])
    assert await asyncio.wait_for(waiting, 60) == 1
    assert await asyncio.wait_for(store.replicated(0), 60) == 1
    again = asyncio.create_task(store.replicated(1))
    await store.submit([ClusterRoute("far", "east")])
    assert await asyncio.wait_for(again, 60) == 2
