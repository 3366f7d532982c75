"""Homes on another shard, whatever happens to calls and responses: one home, and none that is there is given up."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from pathlib import Path
from typing import Any

import pytest

from atoll.machinery.apiserver.writing.batch import Batch
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.kcp.sharding.forgotten_stores import FORGOTTEN
from atoll.machinery.kcp.sharding.scheduling import Candidate
from atoll.machinery.kcp.sharding.shards import STORE
from atoll.machinery.kcp.workspaces import homes
from atoll.machinery.kcp.workspaces.homes import HomeUser, Seat
from atoll.machinery.meta import hashes
from atoll.machinery.meta.names import ROOT, ObjectKey
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import AlreadyExists, Conflict, NotFound, TooManyRequests
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.storage.contract import LogEntry, Operation, Replica
from atoll.shard.handlers.home_claims import HomeClaims
from atoll.shard.handlers.home_placement import HomePlacement, Seats
from atoll.tenancy.placement import ShardPlacement
from harness.servers.in_process.shard import InsideShard, shard_inside
from harness.servers.stand_ins.fake_shard import FarShard, ReceivedRequest, comes, far_shard, published, refusal

USER = HomeUser("alice", hashes.home_cluster_name("alice"), "user:alice", '{"username":"alice"}')
STORE_UID = "11111111-1111-1111-1111-111111111111"


class FarFirst(ShardPlacement):
    """Chooses the shard `far`, and this one if that is not possible."""

    def choose_home(self, view: Any, path: str, region: str, without: Collection[str] = ()) -> Candidate:
        name = self.own if "far" in without else "far"
        return next((each for each in self.shards(view) if each.name == name), Candidate(self.own, is_own=True))


@pytest.fixture
async def far() -> AsyncIterator[FarShard]:
    async with far_shard() as running:
        yield running


@pytest.fixture
async def shard(tmp_path: Path, far: FarShard) -> AsyncIterator[InsideShard]:
    async with shard_inside(tmp_path, far.peers) as inside:
        await far.announce(inside)
        yield inside


def placing(shard: InsideShard, far: FarShard) -> HomePlacement:
    def build(user: HomeUser, seat: Seat) -> Batch:
        raise AssertionError("nobody chose this shard first")

    placement = FarFirst(shard.app.facts, "root", reaches=True)
    claims = HomeClaims(shard.app.store, placement, shard.app.seek)
    return HomePlacement(shard.loopback, Seats(placement, claims, far.peers), build)


def here(shard: InsideShard) -> Object | None:
    """The home on this shard, or its marker."""
    return shard.loopback.get(LOGICAL_CLUSTERS, USER.cluster, "", "cluster")


def marked(shard: InsideShard) -> Seat:
    found = here(shard)
    seat = homes.seat_of(found) if found is not None else None
    assert seat is not None
    return seat


def created(received: ReceivedRequest) -> tuple[int, Object]:
    """The answer to an order of a home."""
    metadata = {"name": "cluster", "uid": "u", "resourceVersion": f"{5:016}"}
    annotations = {**received.body["metadata"]["annotations"], "kcp.io/cluster": received.cluster}
    return 201, {**received.body, "metadata": {**metadata, "annotations": annotations}, "status": {"phase": "Ready"}}


async def made(shard: InsideShard, far: FarShard) -> HomePlacement:
    """A placement of a home that is on the shard `far`."""
    far.answers["POST"] = created
    running = placing(shard, far)
    found = await running.create(USER, "")
    assert homes.generation_of(found) == marked(shard).generation
    assert marked(shard).is_created
    return running


async def test_a_shard_that_does_not_answer_is_given_up_for_this_one(shard: InsideShard, far: FarShard) -> None:
    far.answers["POST"] = lambda received: None
    running = placing(shard, far)
    await running.create(USER, "")
    await comes(lambda: ((here(shard) or {}).get("status") or {}).get("phase") == "Ready")
    home = here(shard)
    assert home is not None and homes.seat_of(home) is None
    ordered = far.requests[0].body
    assert homes.is_outdated(ordered, homes.generation_of(home)), "what far makes of it late goes"
    assert (await running.create(USER, ""))["metadata"]["uid"] == home["metadata"]["uid"]


async def test_a_home_that_is_there_is_not_given_up_for_a_silence(shard: InsideShard, far: FarShard) -> None:
    running = await made(shard, far)
    before = marked(shard)
    far.answers["GET"] = lambda received: None
    with pytest.raises(TooManyRequests):
        await running.create(USER, "")
    assert marked(shard) == before


async def test_an_order_whose_answer_was_lost_is_looked_up(shard: InsideShard, far: FarShard) -> None:
    orders: list[ReceivedRequest] = []

    def create(received: ReceivedRequest) -> tuple[int, Object] | None:
        orders.append(received)
        return refusal(AlreadyExists('logicalclusters "cluster" already exists'))

    far.answers["POST"], far.answers["GET"] = create, lambda received: created(orders[0])
    found = await placing(shard, far).create(USER, "")
    assert homes.generation_of(found) == marked(shard).generation
    assert far.methods() == ["POST", "GET"]


async def test_a_home_that_is_gone_is_placed_with_a_higher_generation(shard: InsideShard, far: FarShard) -> None:
    running = await made(shard, far)
    before = marked(shard)
    far.answers["GET"] = lambda received: refusal(NotFound("it is gone"))
    await running.create(USER, "")
    assert marked(shard).generation > before.generation
    assert far.methods().count("POST") == 2 and far.methods()[1] == "GET"


async def test_a_marker_that_another_writer_changes_meanwhile_is_no_error_of_the_request(
    shard: InsideShard, far: FarShard, monkeypatch: pytest.MonkeyPatch
) -> None:
    update, overtaken = Batch.update, iter([True, False, True])

    def updated(batch: Batch, target: Target, obj: Object, *, whole: bool = False) -> None:
        if target.cluster == USER.cluster and next(overtaken, False):
            raise Conflict("it was changed")
        update(batch, target, obj, whole=whole)

    monkeypatch.setattr(Batch, "update", updated)
    running = await made(shard, far)
    before = marked(shard)
    far.answers["GET"] = lambda received: refusal(NotFound("it is gone"))
    await running.create(USER, "")
    assert marked(shard).generation > before.generation


async def test_a_home_of_an_earlier_choice_does_not_count(shard: InsideShard, far: FarShard) -> None:
    running = await made(shard, far)
    old = created(far.requests[0])[1]
    far.answers["GET"] = lambda received: refusal(NotFound("it is gone"))
    await running.create(USER, "")
    await arrives(shard, old)
    (*_, last) = (each for each in far.requests if each.method == "POST")
    far.answers["GET"] = lambda received: (200, created(last)[1])
    found = await running.create(USER, "")
    assert homes.generation_of(found) == marked(shard).generation > homes.generation_of(old)


async def arrives(shard: InsideShard, obj: Object, operation: Operation = Operation.ADDED) -> None:
    """Deliver a home by the stream of the shard `far`."""
    key = ObjectKey(LOGICAL_CLUSTERS, USER.cluster, "", "cluster")
    row: Replica = published(key, obj, 9 if operation is Operation.ADDED else 10)
    written = row if operation is Operation.ADDED else Replica(row.origin, key, b"", row.revision, row.generation)
    (count,) = await shard.app.store.submit([written])
    shard.manager.replicas_changed([LogEntry(row.revision, operation, key, row.value, False, 0, 0, 0)], count)


async def test_the_marker_goes_once_the_homes_shard_says_that_it_is_gone(shard: InsideShard, far: FarShard) -> None:
    await made(shard, far)
    home, generation = created(far.requests[0])[1], marked(shard).generation
    await arrives(shard, home)
    far.answers["GET"] = lambda received: None
    await arrives(shard, home, Operation.DELETED)
    await comes(lambda: "GET" in far.methods())
    assert marked(shard).is_created, "a silence says nothing"
    far.answers["GET"] = lambda received: refusal(NotFound("it is gone"))
    await comes(lambda: here(shard) is None)
    with shard.app.store.snapshot() as snapshot:
        assert snapshot.replicas.route_of(USER.cluster) is None
    await placing(shard, far).create(USER, "")
    assert marked(shard).generation >= generation


async def test_a_home_on_a_forgotten_store_is_placed_again(shard: InsideShard, far: FarShard) -> None:
    type = shard.app.identities.shard_objects
    target = shard.target(type, ROOT, "", "far")
    found = shard.loopback.get(type, ROOT, "", "far")
    assert found is not None
    await shard.loopback.update(target, annotated(found, STORE, STORE_UID))
    running = await made(shard, far)
    before = marked(shard)
    assert before.store == STORE_UID
    record = f'[{{"shard":"far","store":"{STORE_UID}","at":"2026-01-01T00:00:00Z"}}]'
    root = shard.loopback.get(type, ROOT, "", "root")
    assert root is not None
    await shard.loopback.update(shard.target(type, ROOT, "", "root"), annotated(root, FORGOTTEN, record))
    far.answers["POST"] = lambda received: None
    await running.create(USER, "")
    home = here(shard)
    assert home is not None and homes.generation_of(home) > before.generation
    assert homes.seat_of(home) is None, "the other shard does not answer"


def annotated(obj: Object, key: str, value: str) -> Object:
    metadata = obj["metadata"]
    return {**obj, "metadata": {**metadata, "annotations": {**(metadata.get("annotations") or {}), key: value}}}
