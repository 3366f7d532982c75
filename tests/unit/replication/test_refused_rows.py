"""Rows that are refused from another shard, whatever its stream contains."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.types import API_EXPORTS, SECRETS, SHARED_SUBSCRIPTIONS
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from atoll.machinery.stream.consumer.gaps import Gap
from atoll.machinery.stream.consumer.state_consumer import StateMark
from atoll.machinery.stream.events import Event, Operation
from atoll.machinery.stream.publisher.log_events import from_entry
from atoll.replication.metrics import ReplicationMetrics
from atoll.replication.replica_writer import ReplicaWriter
from atoll.replication.shard_replica import ReplicaProgress, ShardReplica, SourceShard
from harness.data.stores import store_options
from harness.models.shard_log import ShardLog, Source
from harness.servers.in_process.followers import TYPES

CLUSTER = "abcdefgh12345678"
MARK = StateMark("then", "a1", 5, 9, 1.0)


class Followed:
    """East's accepted rows, and the reasons for refusals."""

    def __init__(self, store: LmdbStore, **origin: Any) -> None:
        self.store, self.registry = store, CollectorRegistry()
        writer = ReplicaWriter(store, "", ReplicationMetrics(self.registry))
        writer.types = TYPES
        self.replicas = ShardReplica(writer, SourceShard("east", **origin))

    async def take(self, event: Event) -> bool:
        """Apply an event; return whether its object is held afterwards."""
        await self.replicas.apply([event], None)
        assert event.key is not None
        with self.store.snapshot() as snapshot:
            return snapshot.replicas.row_of("east", event.key) is not None

    def refused(self, reason: str) -> float:
        labels = {"shard": "east", "reason": reason}
        return self.registry.get_sample_value("atoll_replication_refused_rows_total", labels) or 0.0

    @property
    def kept(self) -> ReplicaProgress:
        return msgspec.json.decode(self.store.get_mark("replication.east") or b"{}", type=ReplicaProgress)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[LmdbStore]:
    store = open_store(store_options(tmp_path / "store"))
    yield store
    await store.close()


def event(
    cluster: str = CLUSTER,
    shard: str = "east",
    *,
    sealed: bool = False,
    name: str = "e",
    namespace: str = "",
    type: ResourceType = API_EXPORTS,
    **members: object,
) -> Event:
    key = ObjectKey(SECRETS if sealed else type, cluster, namespace, name)
    return from_entry("state", Source(shard), ShardLog().put(key, sealed=sealed, **members))


def tombstone(given: Event) -> Event:
    """The deletion of an event's object."""
    return msgspec.structs.replace(given, operation=Operation.DELETED, payload=b"")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (event(sealed=True), "sealed"),
        (event("system:admin"), "system"),
        (event("system:shard"), "system"),
        (event("system:admin", type=SHARED_SUBSCRIPTIONS), "system"),
        (event(shard="west"), "foreign"),
        (event("Not a name"), "malformed"),
        (event(annotations={"replication.atoll.dev/level": "region"}), "level"),
        (event(name="x" * 300, metadata={"name": "a"}), "malformed"),
        (event(name="x\0y"), "malformed"),
        (tombstone(event(namespace="x\0y")), "malformed"),
    ],
    ids=[
        "sealed",
        "system",
        "of-a-shard",
        "another-system",
        "foreign",
        "cluster",
        "level",
        "another-name",
        "nul",
        "nul-in-deleted",
    ],
)
async def test_it_is_counted_and_not_held(store: LmdbStore, given: Event, reason: str) -> None:
    followed = Followed(store)
    assert await followed.take(event(name="good"))
    assert not await followed.take(given)
    assert followed.refused(reason) == 1


async def test_what_a_shard_says_of_itself_is_held_and_counts_for_no_cluster(store: LmdbStore) -> None:
    given = event("system:shard", type=SHARED_SUBSCRIPTIONS)
    assert given.key is not None and await Followed(store).take(given)
    with store.snapshot() as snapshot:
        assert snapshot.replicas.get(given.key) is None


async def test_what_may_no_longer_be_held_goes(store: LmdbStore) -> None:
    followed = Followed(store, region="eu", own_region="eu")
    narrow = {"replication.atoll.dev/level": "region"}
    assert await followed.take(event(annotations=narrow))
    elsewhere = Followed(store, region="us", own_region="eu")
    await elsewhere.replicas.begin(Gap.NEW)
    assert not await elsewhere.take(event(annotations=narrow))


async def test_a_generation_has_a_number_of_its_own_before_anything_is_read(store: LmdbStore) -> None:
    for generation in (1, 2, 3):
        followed = Followed(store)
        await followed.replicas.begin(Gap.NEW)
        assert (followed.kept.generation, followed.kept.mark) == (generation, None)


async def test_what_an_earlier_generation_brought_goes_with_its_sweep_and_no_sooner(store: LmdbStore) -> None:
    followed = Followed(store)
    await followed.replicas.begin(Gap.NEW)
    old = event(name="old")
    assert await followed.take(old)
    await followed.replicas.sweep(MARK)
    assert followed.kept.mark == MARK
    await followed.replicas.begin(Gap.STREAM)
    assert await followed.take(event(name="new"))
    assert await followed.take(old)
    await followed.replicas.begin(Gap.STREAM)
    assert await followed.take(event(name="new"))
    with store.snapshot() as snapshot:
        assert old.key is not None
        assert snapshot.replicas.row_of("east", old.key) is not None
    await followed.replicas.sweep(MARK)
    with store.snapshot() as snapshot:
        assert snapshot.replicas.row_of("east", old.key) is None
    assert not await followed.take(tombstone(event(name="new")))


async def test_nothing_of_a_forgotten_store_is_taken_and_another_store_of_that_name_counts(store: LmdbStore) -> None:
    said = event()
    followed = Followed(store, forgotten=lambda uid: uid == said.shard_uid)
    assert not await followed.take(said)
    assert followed.refused("forgotten") == 1
    assert await followed.take(msgspec.structs.replace(said, shard_uid="another"))
