"""Rows of other shards are written with their routes, in one transaction or in several; a restart completes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from atoll.controllers.workspaces.remote_routes import RemoteRoutes
from atoll.machinery.kcp.sharding.shards import ROOTS
from atoll.machinery.meta import hashes, wellknown
from atoll.machinery.meta.names import ROOT, ObjectKey
from atoll.machinery.meta.objects import encode, encode_json
from atoll.machinery.meta.types import API_EXPORTS
from atoll.machinery.storage.contract import (
    ClusterRoute,
    CorruptRecord,
    Delete,
    LogEntry,
    Mark,
    Operation,
    Position,
    Put,
    Record,
    Scope,
)
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from atoll.replication.metrics import STRANGER, ReplicationMetrics
from atoll.replication.notifications import ReplicaChange
from atoll.replication.readable_pages import readable
from atoll.replication.replica_writer import OWNERS_PENDING, ReplicaWriter
from atoll.replication.stranger_rows import GRACE_S, StrangerRows
from harness.data.stores import store_options
from harness.servers.in_process.followers import TYPES, ChangeRecorder, cluster_key, workspace_key
from harness.servers.nats import eventually


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[LmdbStore]:
    store = open_store(store_options(tmp_path / "store"))
    yield store
    await store.close()


def writer(store: LmdbStore, own: str = "") -> ReplicaWriter:
    made = ReplicaWriter(store, own, ReplicationMetrics(CollectorRegistry()))
    made.types, made.origins = TYPES, ["east", "root", "west"]
    return made


def workspace(parent: str, name: str, shard: str) -> tuple[dict[str, Any], str]:
    """A Workspace, and the cluster that it names."""
    uid = f"uid-{name}"
    cluster = hashes.cluster_name_of(parent, uid, shard)
    metadata = {"name": name, "uid": uid, "annotations": {wellknown.SHARD: shard}}
    return {"metadata": metadata, "spec": {"cluster": cluster}}, cluster


def arrival(key: ObjectKey, obj: dict[str, Any] | None = None, revision: int = 1) -> ReplicaChange:
    return ReplicaChange(key, encode_json(obj or {"metadata": {"name": key.name}}), revision, 1)


def shard_of(store: LmdbStore, cluster: str) -> str:
    with store.snapshot() as snapshot:
        return snapshot.replicas.shard_of(cluster)


async def put(store: LmdbStore, key: ObjectKey, obj: dict[str, Any]) -> int:
    value, hole = encode(obj)
    return (await store.submit([Put(key, value, hole, 0)]))[0]


def entry(key: ObjectKey, value: bytes, operation: Operation = Operation.ADDED) -> LogEntry:
    return LogEntry(1, operation, key, value, False, 0, 0, 0)


async def many(store: LmdbStore, parent: str, count: int) -> list[str]:
    """Write Workspaces that east sent before their cluster had a route to it; return the clusters that they name."""
    made = [workspace(parent, f"w{number:04d}", "west") for number in range(count)]
    rows = [arrival(workspace_key(parent, obj["metadata"]["name"]), obj) for obj, _ in made]
    await writer(store).apply("east", rows)
    return [cluster for _, cluster in made]


async def test_rows_routes_and_mark_are_one_transaction(store: LmdbStore) -> None:
    written = writer(store)
    await written.route_root()
    obj, cluster = workspace(ROOT, "shop", "east")
    with store.snapshot() as snapshot:
        before = snapshot.replicas.count
    await written.apply("root", [arrival(workspace_key(ROOT, "shop"), obj)], [Mark("replication.root", b"here")])
    with store.snapshot() as snapshot:
        assert (snapshot.replicas.count - before, shard_of(store, cluster)) == (2, "east")
    assert store.get_mark("replication.root") == b"here"
    assert not store.get_mark(OWNERS_PENDING)


async def test_a_cluster_that_moved_has_no_owner_once_no_workspace_names_it(store: LmdbStore) -> None:
    obj, cluster = workspace(ROOT, "shop", "east")
    written, key = writer(store), workspace_key(ROOT, "shop")
    await written.route_root()
    await written.apply("root", [arrival(key, obj)])
    moved = {wellknown.MOVED_TO: "west", wellknown.MOVED_GENERATION: "3"}
    left = {"metadata": {"name": "cluster", "annotations": moved}, "spec": {"owner": {"cluster": ROOT, "name": "shop"}}}
    await written.apply("east", [arrival(cluster_key(cluster), left)])
    assert shard_of(store, cluster) == "west"
    await written.apply("root", [ReplicaChange(key, b"", 2, 1)])
    assert shard_of(store, cluster) == ""


async def test_a_tree_that_becomes_known_at_once_is_routed_in_pieces_and_told(store: LmdbStore) -> None:
    obj, parent = workspace(ROOT, "shop", "east")
    clusters = await many(store, parent, 700)
    written, told = writer(store), ChangeRecorder()
    written.set_listener(told)
    await written.route_root()
    await written.apply("root", [arrival(workspace_key(ROOT, "shop"), obj)])
    assert {shard_of(store, cluster) for cluster in clusters} == {"west"}
    assert len([each for each in told.entries if each.key.cluster == parent]) == 700
    with store.snapshot() as snapshot:
        assert told.count == snapshot.replicas.count
    assert not store.get_mark(OWNERS_PENDING)


async def test_a_reckoning_that_was_cut_off_is_done_at_the_next_start(store: LmdbStore) -> None:
    obj, parent = workspace(ROOT, "shop", "east")
    clusters = await many(store, parent, 700)
    written = writer(store)
    await written.route_root()
    taking = asyncio.create_task(written.apply("root", [arrival(workspace_key(ROOT, "shop"), obj)]))
    await eventually(lambda: shard_of(store, parent) == "east")
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)
    assert store.get_mark(OWNERS_PENDING)
    await writer(store).resolve_all()
    assert {shard_of(store, cluster) for cluster in clusters} == {"west"}
    assert not store.get_mark(OWNERS_PENDING)


@pytest.mark.parametrize("steps", range(1, 12))
async def test_what_is_written_is_told_though_whoever_brought_it_is_stopped(store: LmdbStore, steps: int) -> None:
    written, told = writer(store), ChangeRecorder()
    written.set_listener(told)
    export = ObjectKey(API_EXPORTS, "abcdefgh12345678", "", "e")
    await store.submit([ClusterRoute(export.cluster, "east")])
    taking = asyncio.create_task(written.apply("east", [arrival(export)], [Mark("replication.east", b"on")]))
    for _ in range(steps):
        await asyncio.sleep(0)
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)
    # Earlier submissions are committed before this one.
    await store.submit([Mark("behind", b"1")])
    with store.snapshot() as snapshot:
        stands = snapshot.replicas.row_of("east", export) is not None
    assert stands == (store.get_mark("replication.east") is not None)
    assert [each.key for each in told.entries] == ([export] if stands else [])


async def test_what_is_no_object_is_left_out_alone(store: LmdbStore) -> None:
    written = writer(store)
    bad = ReplicaChange(cluster_key("bad"), b"[1]", 1, 1)
    rows = [arrival(cluster_key("abcdefgh12345678")), bad, arrival(cluster_key("zz"))]
    await written.apply("east", rows, [Mark("replication.east", b"on")])
    with store.snapshot() as snapshot:
        found = [snapshot.replicas.row_of("east", row.key) is not None for row in rows]
    assert found == [True, False, True]
    assert store.get_mark("replication.east") == b"on"


async def test_only_what_counts_is_told_and_its_end_with_what_it_was(store: LmdbStore) -> None:
    written, told = writer(store), ChangeRecorder()
    written.set_listener(told)
    export = ObjectKey(API_EXPORTS, "abcdefgh12345678", "", "e")
    await written.apply("east", [arrival(export)])
    assert told.entries == []
    await store.submit([ClusterRoute(export.cluster, "east")])
    await written.apply("east", [arrival(export, {"metadata": {"name": "e"}, "spec": 2}, revision=2)])
    await written.apply("west", [arrival(export, revision=9)])
    await written.apply("east", [ReplicaChange(export, b"", 3, 1)])
    assert [(each.operation.name, b'"spec":2' in each.value) for each in told.entries] == [
        ("MODIFIED", True),
        ("DELETED", True),
    ]
    # A withheld row still exists on its shard: its removal here is no deletion.
    await written.apply("east", [arrival(export, revision=4), ReplicaChange(export, b"", 5, 1, withheld=True)])
    await written.apply("east", [arrival(export, revision=6)])
    await written.apply("east", [ReplicaChange(export, b"", 7, 1, withheld=True)])
    assert [each.operation.name for each in told.entries][2:] == ["ADDED", "MODIFIED"]


async def test_what_goes_with_its_cluster_is_told(store: LmdbStore) -> None:
    home = hashes.home_cluster_name("bob")
    written, told, export = writer(store), ChangeRecorder(), ObjectKey(API_EXPORTS, home, "", "e")
    written.set_listener(told)
    cluster = {"metadata": {"name": "cluster"}, "spec": {"createdBy": {"username": "bob"}}}
    await written.apply("root", [arrival(cluster_key(home), cluster), arrival(export)])
    assert shard_of(store, home) == "root"
    told.entries.clear()
    await written.apply("root", [ReplicaChange(each, b"", 2, 1) for each in (cluster_key(home), export)])
    assert shard_of(store, home) == ""
    assert [told.of(each) for each in (cluster_key(home), export)] == [["DELETED"], ["DELETED"]]


def home(user: str, **annotations: str) -> dict[str, Any]:
    return {"metadata": {"name": "cluster", "annotations": annotations}, "spec": {"createdBy": {"username": user}}}


def moved(to: str, generation: int = 1) -> dict[str, Any]:
    return home("bob", **{wellknown.MOVED_TO: to, wellknown.MOVED_GENERATION: str(generation)})


async def test_an_owner_that_was_forgotten_is_learnt_again_when_the_cluster_is_needed_again(store: LmdbStore) -> None:
    written, cluster = writer(store, own="north"), hashes.home_cluster_name("bob")
    key = cluster_key(cluster)
    await written.apply("root", [arrival(key, home("bob"))])
    await written.apply("west", [arrival(key, home("bob"))])
    # What a stranger sent goes, and the owner's row stays: it is not sent again, and neither is it resolved again.
    await written.release("west", [key], lambda _: False)
    assert shard_of(store, cluster) == "root"
    await written.release("root", [key], lambda _: False)
    assert shard_of(store, cluster) == ""
    await written.apply("root", [arrival(key, moved("east"))])
    await written.apply("east", [arrival(key, home("bob"))])
    await written.release("east", [key], lambda _: False)
    assert shard_of(store, cluster) == ""
    await written.apply("east", [arrival(key, home("bob"))])
    assert shard_of(store, cluster) == "east", "the marker that leads there is held"
    for origin in ("root", "east"):
        await written.release(origin, [key], lambda _: False)
    assert shard_of(store, cluster) == ""


async def test_a_home_that_is_placed_anew_is_followed_though_its_end_was_missed(store: LmdbStore) -> None:
    written, cluster = writer(store), hashes.home_cluster_name("bob")
    await written.apply("root", [arrival(cluster_key(cluster), moved("east", 5))])
    assert shard_of(store, cluster) == "east"
    await written.apply("root", [arrival(cluster_key(cluster), moved("west"), revision=2)])
    assert shard_of(store, cluster) == "west"


async def test_a_root_belongs_to_the_shard_that_may_hold_it_also_after_a_restart(store: LmdbStore) -> None:
    path = "tenant:acme"
    cluster, key = hashes.root_cluster_name(path), ObjectKey(TYPES.shards, ROOT, "", "east")

    def shard(roots: str, revision: int, origin: str = "east") -> ReplicaChange:
        obj = {"metadata": {"name": origin, "annotations": {ROOTS: roots}}}
        return arrival(ObjectKey(TYPES.shards, ROOT, "", origin), obj, revision)

    await writer(store).apply("east", [arrival(cluster_key(cluster))])
    await writer(store).apply("east", [shard(path, 1)])
    assert shard_of(store, cluster) == "", "its own word is none"
    await writer(store).apply("root", [shard(path, 1)])
    assert shard_of(store, cluster) == "east"
    again = writer(store)
    await again.apply("root", [shard(path, 1, "west")])
    await again.apply("west", [arrival(cluster_key(cluster))])
    assert shard_of(store, cluster) == "east", "of two the first by name"
    await writer(store).apply("root", [shard("", 2)])
    assert shard_of(store, cluster) == "west"
    await writer(store).apply("root", [ReplicaChange(key, b"", 3, 1), shard("", 2, "west")])
    assert shard_of(store, cluster) == ""


async def test_a_stranger_is_noticed_once_and_not_before_what_it_follows_from_may_have_come(store: LmdbStore) -> None:
    now, registry = [0.0], CollectorRegistry()
    metrics = ReplicationMetrics(registry)
    rows, cluster = StrangerRows(metrics, lambda: now[0]), hashes.home_cluster_name("bob")
    written = writer(store)
    written.metrics = metrics
    await written.apply("west", [arrival(cluster_key(cluster), home("bob"))])

    def counted() -> float:
        name = "atoll_replication_refused_rows_total"
        return registry.get_sample_value(name, {"shard": "west", "reason": STRANGER}) or 0.0

    for value, origin in ((moved("east"), "west"), (home("bob"), "root"), (home("bob"), "west")):
        rows.note(origin, cluster, encode_json(value), "root")
    for passed_s, expected in ((GRACE_S - 1, 0.0), (GRACE_S + 1, 1.0), (GRACE_S * 3, 1.0)):
        now[0] = passed_s
        with store.snapshot() as snapshot:
            rows.report(snapshot)
        assert counted() == expected
    rows.note("west", cluster, encode_json(home("bob")), "")
    await written.apply("root", [arrival(cluster_key(cluster), moved("west"))])
    now[0] += GRACE_S + 1
    with store.snapshot() as snapshot:
        rows.report(snapshot)
    assert counted() == 1.0


async def test_a_workspace_of_ones_own_routes_what_it_names_and_what_is_below(store: LmdbStore) -> None:
    obj, parent = workspace("here", "shop", "east")
    clusters = await many(store, parent, 3)
    written, told = writer(store, own="root"), ChangeRecorder()
    written.set_listener(told)
    claims, key = RemoteRoutes(written, TYPES.workspaces), workspace_key("here", "shop")
    await put(store, cluster_key("here"), {"metadata": {"name": "cluster"}, "status": {"phase": "Ready"}})
    revision = await put(store, key, obj)
    for asked in claims.keys(entry(key, encode_json(obj))):
        await claims.reconcile(asked)
    assert {shard_of(store, cluster) for cluster in (parent, *clusters)} == {"east", "west"}
    assert list(claims.keys(entry(key, encode_json(obj)))) == [], "nothing new is said"
    told.entries.clear()
    await store.submit([Delete(key, revision)])
    for asked in claims.keys(entry(key, encode_json(obj), Operation.DELETED)):
        await claims.reconcile(asked)
    assert shard_of(store, parent) == ""
    assert {each.operation for each in told.entries} == {Operation.DELETED}


async def test_a_route_that_its_scheduler_wrote_has_what_came_before_it_looked_at(store: LmdbStore) -> None:
    obj, parent = workspace("here", "shop", "east")
    clusters = await many(store, parent, 3)
    written, told = writer(store, own="root"), ChangeRecorder()
    written.set_listener(told)
    claims = RemoteRoutes(written, TYPES.workspaces)
    await put(store, cluster_key("here"), {"metadata": {"name": "cluster"}, "status": {"phase": "Ready"}})
    await put(store, workspace_key("here", "shop"), obj)
    await store.submit([ClusterRoute(parent, "east")])
    assert [shard_of(store, cluster) for cluster in clusters] == [""] * 3
    listed = list(claims.all_keys())
    assert len(listed) == 1
    await claims.reconcile(listed[0])
    assert {shard_of(store, cluster) for cluster in clusters} == {"west"}
    assert len(told.entries) == 3


async def test_own_workspaces_that_stay_here_are_nobodys_affair(store: LmdbStore) -> None:
    claims = RemoteRoutes(writer(store, own="root"), TYPES.workspaces)
    obj, _ = workspace("here", "shop", "root")
    await put(store, workspace_key("here", "shop"), obj)
    assert list(claims.all_keys()) == []
    assert list(claims.keys(entry(workspace_key("here", "shop"), encode_json(obj)))) == []


def test_damaged_records_are_passed_over() -> None:
    keys = [cluster_key(f"c{number}") for number in range(9)]

    def read(scope: Scope, after: Position | None, limit: int) -> list[Record]:
        page = [key for key in keys if after is None or key.cluster > after.cluster][:limit]
        for key in page:
            if key.cluster in {"c0", "c4", "c8"}:
                raise CorruptRecord(key, "a test says so")
        return [Record(key, 1, b"{}") for key in page]

    found = readable(read, Scope(cluster_key("x").type), None, 100)
    assert [record.key.cluster for record in found] == ["c1", "c2", "c3", "c5", "c6", "c7"]
    assert [record.key.cluster for record in readable(read, Scope(cluster_key("x").type), None, 2)] == ["c1", "c2"]
