"""Replicas and the store's other tasks: damage, old files, a full disk, restarts, sweeps beside writers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import lmdb
import pytest

from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.storage.contract import ClusterRoute, CorruptRecord, Mark, Replica, Scope, StoreFull, SweepReplicas
from atoll.machinery.storage.environment.opening import open_for_reading
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from atoll.machinery.storage.maintenance.fsck import fsck
from atoll.machinery.storage.reading.records import Records
from atoll.machinery.storage.reading.replica_view import NO_REPLICAS
from atoll.machinery.storage.reading.snapshot import LmdbSnapshot
from atoll.machinery.storage.sealing import ensure_key_file
from atoll.machinery.storage.watching.hub import Hub
from atoll.machinery.storage.writing.replica_sweep import SWEEP_ROWS
from harness.data.store_damage import Damage, add, drop_first, flip_last
from harness.data.stores import CONFIGMAPS, HandClock, create, delete, gone, key, replica, store_options

DATABASES = ("replicas", "routes", "replica_counters", "replica_labels")
LABELLED = {"labels": {"paths.internal.atoll.dev/x": "p"}}
SECRETS = ResourceType("", "secrets")


def remote(name: str, cluster: str = "far") -> ObjectKey:
    return key(name, cluster=cluster)


def held(store: LmdbStore, origin: str = "east") -> list[str]:
    with store.snapshot() as snapshot:
        return [record.key.name for record in snapshot.replicas.rows_of(origin, Scope(CONFIGMAPS), limit=10_000)]


def change_file(directory: Path, change: Damage) -> None:
    """Change the rows of a closed store directly in its file."""
    env = lmdb.open(str(directory), map_size=1 << 40, max_dbs=32)
    dbs: dict[str, object] = {name: env.open_db(name.encode()) for name in DATABASES}
    with env.begin(write=True) as txn:
        change(txn, dbs)
    env.close()


@pytest.mark.parametrize(
    ("damage", "where"),
    [
        (drop_first("replicas"), "replica_counters"),
        (drop_first("replica_counters"), "replica_counters"),
        (drop_first("replica_labels"), "replica_labels"),
        (flip_last("replicas", -3), "replicas"),
        (flip_last("replica_counters", 7), "replica_counters"),
        (flip_last("replica_counters", 16), "replica_counters"),
        (add("replica_labels", b"x" * 40, b""), "replica_labels"),
        (add("replica_counters", b"north\0far\0" + b"\0\0\0\1", b"\0" * 24), "replica_counters"),
        (add("replicas", b"north\0torn", b"torn"), "replicas"),
        (add("routes", b"torn", b"torn"), "replicas"),
    ],
)
async def test_fsck_finds_each_kind_of_damage_of_replicas(tmp_path: Path, damage: Damage, where: str) -> None:
    store = open_store(store_options(tmp_path))
    await store.submit(
        [ClusterRoute("far", "east"), ClusterRoute("nobody", "west"), replica(remote("a"), 7, metadata=LABELLED)]
    )
    await store.submit([replica(remote("z"), 7, origin="north")])
    await store.close()
    assert fsck(store.options) == []
    change_file(tmp_path, damage)
    assert where in {problem.where for problem in fsck(store.options)}


async def test_a_damaged_replica_is_an_error_until_its_shard_sends_it_anew(tmp_path: Path) -> None:
    alarms: list[str] = []
    store = open_store(store_options(tmp_path))
    await store.submit(
        [ClusterRoute("far", "east"), replica(remote("a"), 7, metadata=LABELLED), replica(remote("b"), 7)]
    )
    await store.close()

    def damage(txn: lmdb.Transaction, dbs: dict[str, object]) -> None:
        with txn.cursor(dbs["replicas"]) as cursor:  # type: ignore[arg-type]
            assert cursor.first()
            cursor.put(cursor.key(), bytes(cursor.value())[:-9] + b"~" * 9)

    change_file(tmp_path, damage)
    store = open_store(store.options, alarm=lambda event, **_facts: alarms.append(event))
    with store.snapshot() as snapshot:
        with pytest.raises(CorruptRecord):
            snapshot.replicas.get(remote("a"))
        with pytest.raises(CorruptRecord):
            snapshot.replicas.scan(Scope(CONFIGMAPS, "far"))
        assert snapshot.replicas.get(remote("b")) is not None
    assert alarms == ["record corrupt"] * 2
    await store.submit([replica(remote("a"), 7, generation=2, metadata=LABELLED)])
    with store.snapshot() as snapshot:
        assert snapshot.replicas.get(remote("a")) is not None
    await store.close()
    assert fsck(store.options) == []


async def test_the_scrubber_goes_round_replicas_too(tmp_path: Path) -> None:
    alarms: list[str] = []
    store = open_store(store_options(tmp_path))
    await create(store, "a")
    await store.submit([replica(remote("a"), 7), replica(remote("b"), 7)])
    await store.close()
    change_file(tmp_path, flip_last("replicas", -3))
    store = open_store(store.options, alarm=lambda event, **_facts: alarms.append(event))
    assert [store.scrubber.step(), store.scrubber.step()] == [1, 2]
    assert (store.scrubber.damaged, store.scrubber.passes, alarms) == (1, 1, ["record corrupt"])
    assert [store.scrubber.step(), store.scrubber.step()] == [1, 2]
    assert (store.scrubber.damaged, store.scrubber.passes) == (2, 2)
    await store.close()


async def test_a_damaged_replica_can_be_removed(tmp_path: Path) -> None:
    store = open_store(store_options(tmp_path))
    await store.submit([ClusterRoute("far", "east"), replica(remote("a"), 7, metadata=LABELLED)])
    await store.close()
    change_file(tmp_path, flip_last("replicas", -3))
    store = open_store(store.options)
    await store.submit([gone(remote("a"), 8)])
    await store.close()
    assert fsck(store.options) == []


def older(directory: Path) -> None:
    """Make the file one of a version without replicas."""
    env = lmdb.open(str(directory), map_size=1 << 40, max_dbs=32)
    for name in DATABASES:
        db = env.open_db(name.encode())
        with env.begin(write=True) as txn:
            txn.drop(db)
    env.close()


async def test_a_file_without_replicas_is_read_as_it_is_and_gets_them_from_its_writer(tmp_path: Path) -> None:
    store = open_store(store_options(tmp_path))
    [revision] = await create(store, "a")
    await store.close()
    older(tmp_path)
    assert fsck(store.options) == []
    environment = open_for_reading(store.options)
    with LmdbSnapshot(Records(environment, None, print, frozenset()), environment) as snapshot:
        assert snapshot.replicas is NO_REPLICAS
        assert snapshot.revision_of(key("a")) == revision
    environment.close()
    store = open_store(store.options)
    assert await store.submit([ClusterRoute("far", "east"), replica(remote("b"), 7)]) == [1, 2]
    assert held(store) == ["b"]
    await store.close()
    assert fsck(store.options) == []


async def test_a_full_store_takes_no_replicas_but_what_makes_room_and_goes_on_by_itself(tmp_path: Path) -> None:
    time = HandClock()
    store = open_store(store_options(tmp_path), clock=time.clock())
    await store.submit([replica(remote("a"), 7), replica(remote("b"), 7), replica(remote("c"), 7)])
    store.space._options = store_options(tmp_path, reserve_bytes=1 << 60)
    time.pass_time(2)
    for refused in (replica(remote("new"), 8), replica(remote("a"), 8)):
        with pytest.raises(StoreFull):
            await store.submit([gone(remote("b"), 8), refused, Mark("s", b"1")])
    assert (held(store), store.get_mark("s")) == (["a", "b", "c"], None)
    await store.submit([gone(remote("b"), 8), replica(remote("a"), 7, generation=2), ClusterRoute("far", "east")])
    await store.submit([SweepReplicas("east", 2), Mark("s", b"2")])
    assert (held(store), store.get_mark("s")) == (["a"], b"2")
    store.space._options = store_options(tmp_path)
    time.pass_time(2)
    await store.submit([replica(remote("new"), 8)])
    assert held(store) == ["a", "new"]
    await store.close()
    assert fsck(store.options) == []


async def test_deletes_still_find_room_after_replicas_filled_the_store(tmp_path: Path) -> None:
    time = HandClock()
    store = open_store(store_options(tmp_path, quota_bytes=1 << 20), clock=time.clock())
    [revision] = await create(store, "a")
    with pytest.raises(StoreFull):
        for number in range(1000):
            time.pass_time(2)
            await store.submit([replica(remote(f"n{number}"), 7, data="x" * 10_000)])
    await store.submit([delete(key("a"), revision)])
    await store.submit([SweepReplicas("east", 2)])
    time.pass_time(2)
    await create(store, "again")
    await store.close()
    assert fsck(store.options) == []


async def test_rows_routes_and_the_apply_count_survive_a_restart(tmp_path: Path) -> None:
    store = open_store(store_options(tmp_path))
    await store.submit([ClusterRoute("far", "east", 4), replica(remote("a"), 7), Mark("s", b"m")])
    await store.close()
    store = open_store(store.options)
    with store.snapshot() as snapshot:
        assert snapshot.replicas.count == store.hub.applied == 2
        assert snapshot.replicas.route_of("far") == ClusterRoute("far", "east", 4)
    assert (held(store), store.get_mark("s")) == (["a"], b"m")
    assert await store.submit([replica(remote("a"), 8)]) == [3]
    await store.close()


async def test_compaction_leaves_replicas_alone(tmp_path: Path) -> None:
    time = HandClock()
    store = open_store(store_options(tmp_path, log_retention_s=60), clock=time.clock())
    await store.submit([ClusterRoute("far", "east"), replica(remote("a"), 7)])
    await create(store, "a")
    time.pass_time(120)
    assert await store.compact() == 1
    assert held(store) == ["a"]
    with store.snapshot() as snapshot:
        assert snapshot.replicas.last(CONFIGMAPS, "far") == 2
    await store.close()
    assert fsck(store.options) == []


async def test_a_sweep_lets_others_in_between_its_pieces_and_spares_what_they_bring(tmp_path: Path) -> None:
    store = open_store(store_options(tmp_path))
    names = [f"n{number:05}" for number in range(3 * SWEEP_ROWS)]
    for begin in range(0, len(names), 500):
        await store.submit([replica(remote(name), 7) for name in names[begin : begin + 500]])
    sweeping = asyncio.create_task(store.submit([SweepReplicas("east", 2), Mark("s", b"done")]))
    saved = remote(names[-1])
    while held(store) == names:  # noqa: ASYNC110 - pieces announce nothing
        await asyncio.sleep(0)
    assert not sweeping.done()
    assert store.get_mark("s") is None
    await store.submit([replica(saved, 7, generation=2)])
    assert await sweeping == [len(names) - 1, 0]
    assert (held(store), store.get_mark("s")) == ([saved.name], b"done")
    await store.close()
    assert fsck(store.options) == []


async def test_a_sweep_spares_what_was_brought_between_its_look_and_its_transaction(tmp_path: Path) -> None:
    store = open_store(store_options(tmp_path))
    await store.submit([replica(remote("a"), 7), replica(remote("b"), 7)])
    # Both reach the queue in one iteration of the loop: the sweep has read the rows, and the new row precedes it.
    _, swept = await asyncio.gather(
        store.submit([replica(remote("a"), 7, generation=2)]), store.submit([SweepReplicas("east", 2)])
    )
    assert (swept, held(store)) == ([1], ["a"])
    await store.close()


async def test_news_that_are_overtaken_take_nothing_back() -> None:
    hub = Hub(0, 1000)
    hub.publish_applied(5)
    hub.publish_applied(3)
    assert await hub.wait_applied_above(4) == 5


async def test_a_replica_of_a_sealed_type_is_not_kept(tmp_path: Path) -> None:
    ensure_key_file(tmp_path / "keys.json")
    options = store_options(tmp_path / "store", sealed_types=(SECRETS,), key_file=str(tmp_path / "keys.json"))
    store = open_store(options)
    secret = ObjectKey(SECRETS, "far", "default", "s")
    assert await store.submit([ClusterRoute("far", "east"), replica(secret, 7, data="canary-of-this-test")]) == [1, 0]
    await store.close()
    assert b"canary-of-this-test" not in (tmp_path / "store" / "data.mdb").read_bytes()


async def test_replicas_count_among_the_bytes_that_a_transaction_may_hold(tmp_path: Path) -> None:
    store = open_store(store_options(tmp_path))
    large = "x" * (3 << 20)
    submits = [store.submit([replica(remote(f"n{number}"), 7, data=large)]) for number in range(8)]
    await asyncio.gather(*submits)
    assert store.stats.largest_batch < len(submits)
    assert len(held(store)) == len(submits)
    await store.close()


async def test_an_origin_never_reaches_into_another_whose_name_it_begins_with(tmp_path: Path) -> None:
    store = open_store(store_options(tmp_path))
    for origin in ("a", "ab", "a-b"):
        await store.submit([replica(remote(origin), 7, origin=origin), ClusterRoute(origin, origin)])
    assert (held(store, "a"), held(store, "ab"), held(store, "a-b")) == (["a"], ["ab"], ["a-b"])
    await store.submit([SweepReplicas("a", 9)])
    assert (held(store, "a"), held(store, "ab"), held(store, "a-b")) == ([], ["ab"], ["a-b"])
    await store.close()
    assert fsck(store.options) == []


async def test_nowhere_answers_what_an_empty_store_answers(tmp_path: Path) -> None:
    store = open_store(store_options(tmp_path))
    with store.snapshot() as snapshot:
        for elsewhere in (NO_REPLICAS, snapshot.replicas):
            assert elsewhere.empty
            assert (elsewhere.count, elsewhere.shard_of("x"), elsewhere.route_of("x")) == (0, "", None)
            assert (elsewhere.get(remote("a")), elsewhere.revision_of(remote("a"))) == (None, 0)
            assert (elsewhere.last(CONFIGMAPS, "x"), elsewhere.outdated("x", 1)) == (0, ([], None))
            assert (elsewhere.scan(Scope(CONFIGMAPS)), elsewhere.revisions(Scope(CONFIGMAPS))) == ([], [])
            assert (elsewhere.rows_of("x", Scope(CONFIGMAPS)), elsewhere.labelled("x", "y")) == ([], [])
    await store.close()


async def test_a_value_of_another_revision_in_a_new_generation_replaces_even_an_equal_revision(tmp_path: Path) -> None:
    store = open_store(store_options(tmp_path))
    first, second = replica(remote("a"), 7, data="1"), replica(remote("a"), 7, generation=2, data="2")
    assert await store.submit([first, second]) == [1, 2]
    assert await store.submit([Replica("east", remote("a"), b"", 6, 3)]) == [3]
    assert held(store) == []
    await store.close()


async def test_the_longest_names_there_are_fit_into_keys(tmp_path: Path) -> None:
    store = open_store(store_options(tmp_path))
    long = ObjectKey(CONFIGMAPS, "c" * 300, "s" * 300, "n" * 300)
    await store.submit([ClusterRoute(long.cluster, "o" * 63), replica(long, 7, origin="o" * 63, metadata=LABELLED)])
    with store.snapshot() as snapshot:
        assert snapshot.replicas.get(long) is not None
        assert len(snapshot.replicas.labelled("paths.internal.atoll.dev/x", "p")) == 1
        assert snapshot.replicas.last(CONFIGMAPS, long.cluster) == 2
    await store.close()
    assert fsck(store.options) == []
