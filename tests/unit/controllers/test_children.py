"""Workspaces whose clusters another shard creates, whatever happens to calls and responses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from atoll.controllers import shard_calls
from atoll.controllers.shard_calls import ShardCaller, ShardUnavailable
from atoll.controllers.workspaces import remote_workspaces, workspaces
from atoll.machinery.apiserver.call.options import DeleteOptions
from atoll.machinery.client.client import Client
from atoll.machinery.meta import hashes, wellknown
from atoll.machinery.meta.names import ROOT, ObjectKey
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import AlreadyExists, Forbidden, InsufficientStorage
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.storage.contract import LogEntry, Operation, Replica
from harness.servers.in_process.shard import InsideShard, shard_inside
from harness.servers.stand_ins.fake_shard import FarShard, ReceivedRequest, comes, far_shard, made, published, refusal

EITHER = {"matchExpressions": [{"key": "name", "operator": "In", "values": ["far", "root"]}]}
FAR = {"matchLabels": {"name": "far"}}


@pytest.fixture
async def far() -> AsyncIterator[FarShard]:
    async with far_shard() as running:
        yield running


@pytest.fixture
async def shard(tmp_path: Path, far: FarShard) -> AsyncIterator[InsideShard]:
    async with shard_inside(tmp_path, far.peers) as inside:
        await far.announce(inside)
        yield inside


async def request_children(shard: InsideShard, name: str, selector: Object) -> None:
    spec = {"type": {"name": "universal", "path": "root"}, "location": {"selector": selector}}
    body = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name}, "spec": spec}
    await shard.loopback.create(shard.target(shard.app.identities.workspaces, ROOT, "", name), body)


def workspace(shard: InsideShard, name: str) -> Object:
    found = shard.loopback.get(shard.app.identities.workspaces, ROOT, "", name)
    assert found is not None
    return found


async def until(shard: InsideShard, name: str, **wanted: Any) -> Object:
    """Return the Workspace once its status has these fields."""

    def holds() -> bool:
        status = workspace(shard, name).get("status") or {}
        return all(status.get(field) == value for field, value in wanted.items())

    await comes(holds)
    return workspace(shard, name)


def scheduled(obj: Object) -> Object:
    conditions = (obj.get("status") or {}).get("conditions") or []
    return next((each for each in conditions if each["type"] == "WorkspaceScheduled"), {})


def key(cluster: str) -> ObjectKey:
    return ObjectKey(LOGICAL_CLUSTERS, cluster, "", "cluster")


async def arrives(shard: InsideShard, row: Replica, operation: Operation = Operation.MODIFIED) -> None:
    """Deliver a row of the far shard by its stream."""
    (count,) = await shard.app.store.submit([row])
    shard.manager.replicas_changed([LogEntry(row.revision, operation, row.key, row.value, False, 0, 0, 0)], count)
    await shard.until_idle()


# --- scheduling ---


async def test_a_cluster_is_ordered_once_and_the_way_to_it_is_known(shard: InsideShard, far: FarShard) -> None:
    far.answers["POST"] = lambda received: (201, made(received))
    await request_children(shard, "w", FAR)
    found = await until(shard, "w", phase="Ready")
    cluster = hashes.cluster_name_of(ROOT, found["metadata"]["uid"], "far")
    assert [(each.method, each.cluster) for each in far.requests] == [("POST", cluster)]
    assert found["spec"]["cluster"] == cluster
    assert found["spec"]["URL"] == f"{far.url}/clusters/root:w"
    with shard.app.store.snapshot() as snapshot:
        assert snapshot.replicas.shard_of(cluster) == "far"


async def test_an_answer_that_was_lost_is_looked_up_on_the_only_shard(shard: InsideShard, far: FarShard) -> None:
    done: list[Object] = []

    def create(received: ReceivedRequest) -> tuple[int, Object] | None:
        if done:
            return refusal(AlreadyExists('logicalclusters "cluster" already exists'))
        done.append(made(received))
        return None

    far.answers["POST"], far.answers["GET"] = create, lambda received: (200, done[0])
    await request_children(shard, "w", FAR)
    await until(shard, "w", phase="Ready")
    assert len({each.cluster for each in far.requests}) == 1
    assert far.methods() == ["POST", "POST", "GET"]


async def test_a_shard_that_does_not_answer_is_given_up_and_another_takes_the_workspace(
    shard: InsideShard, far: FarShard
) -> None:
    far.answers["POST"] = lambda received: None
    for number in range(50):
        await request_children(shard, f"w{number}", EITHER)
        found = await until(shard, f"w{number}", phase="Ready")
        annotations = found["metadata"]["annotations"]
        assert annotations[wellknown.SHARD] == "root"
        assert annotations[wellknown.SCHEDULED_CLUSTER] == found["spec"]["cluster"]
        if far.requests:
            assert far.requests[0].cluster != found["spec"]["cluster"]
            return
    pytest.fail("the far shard was never asked")


async def test_a_type_that_goes_and_comes_between_the_phases_is_tried_again(
    shard: InsideShard, far: FarShard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspaces, "TYPE_RETRY_S", 0.05)
    far.answers["POST"] = lambda received: None
    await request_children(shard, "w", FAR)
    await comes(lambda: bool(far.requests))
    types = shard.app.identities.workspace_types
    kept = shard.loopback.get(types, ROOT, "", "universal")
    assert kept is not None
    await shard.loopback.delete(shard.target(types, ROOT, "", "universal"), DeleteOptions())
    await comes(lambda: scheduled(workspace(shard, "w")).get("reason") == "Unknown")
    controller = next(each for each in shard.manager._controllers if each.name == "workspace")
    assert await controller.reconcile((ROOT, "w")) == workspaces.TYPE_RETRY_S
    far.answers["POST"] = lambda received: (201, made(received))
    meta = {"name": "universal", "annotations": kept["metadata"].get("annotations", {})}
    await shard.loopback.create(shard.target(types, ROOT, "", "universal"), {**kept, "metadata": meta})
    await until(shard, "w", phase="Ready")
    assert len({each.cluster for each in far.requests}) == 1


@pytest.mark.parametrize("error", [InsufficientStorage("full"), Forbidden("not you")], ids=["full", "forbidden"])
async def test_what_a_shard_refuses_another_makes(shard: InsideShard, far: FarShard, error: Exception) -> None:
    far.answers["POST"] = lambda received: refusal(error)  # type: ignore[arg-type]
    for number in range(50):
        await request_children(shard, f"w{number}", EITHER)
        found = await until(shard, f"w{number}", phase="Ready")
        assert found["metadata"]["annotations"][wellknown.SHARD] == "root"
        if far.requests:
            return
    pytest.fail("the far shard was never asked")


async def test_a_name_that_is_somebody_elses_is_given_up(shard: InsideShard, far: FarShard) -> None:
    far.answers["POST"] = lambda received: refusal(AlreadyExists("taken"))
    strange = {"metadata": {"name": "cluster", "resourceVersion": "1"}, "spec": {"owner": {"uid": "another"}}}
    far.answers["GET"] = lambda received: (200, strange)
    await request_children(shard, "w", FAR)

    def given_up() -> bool:
        found = workspace(shard, "w")
        chosen = wellknown.SCHEDULED_CLUSTER in found["metadata"]["annotations"] or found["metadata"].get("finalizers")
        return "is another's" in scheduled(found).get("message", "") and not chosen and "cluster" not in found["spec"]

    await comes(given_up)


async def test_a_choice_that_may_have_made_something_is_not_given_up(shard: InsideShard, far: FarShard) -> None:
    far.answers["POST"] = lambda received: None
    await request_children(shard, "w", FAR)
    await comes(lambda: len(far.requests) >= 2)
    await far.stop()
    found = workspace(shard, "w")
    assert found["metadata"]["annotations"][wellknown.SHARD] == "far"
    assert scheduled(found)["reason"] == "ShardUnavailable"
    far.answers["POST"] = lambda received: (201, made(received))
    await far.start()
    await until(shard, "w", phase="Ready")
    assert len({each.cluster for each in far.requests}) == 1


async def test_a_refusal_behind_a_lost_answer_gives_nothing_up(shard: InsideShard, far: FarShard) -> None:
    far.answers["POST"] = lambda received: refusal(Forbidden("not any more")) if len(far.requests) > 1 else None
    await request_children(shard, "w", FAR)
    await comes(lambda: "refuses" in scheduled(workspace(shard, "w")).get("message", ""))
    found = workspace(shard, "w")
    assert found["metadata"]["annotations"][wellknown.SHARD] == "far"
    assert scheduled(found)["reason"] == "ShardUnavailable"


# --- afterwards ---


async def initializing(shard: InsideShard, far: FarShard) -> tuple[Object, Object]:
    """A Workspace whose cluster initializes on the far shard at revision 5, and that cluster."""
    answered: list[Object] = []

    def create(received: ReceivedRequest) -> tuple[int, Object]:
        answered.append(made(received, phase="Initializing", initializers=["root:mine"]))
        return 201, answered[0]

    far.answers["POST"] = create
    await request_children(shard, "w", FAR)
    found = await until(shard, "w", phase="Initializing")
    await shard.until_idle()
    far.requests.clear()
    return found, answered[0]


def in_phase(cluster: Object, phase: str, *initializers: str) -> Object:
    return {**cluster, "status": {"phase": phase, "conditions": [], "initializers": list(initializers)}}


async def test_what_the_stream_brings_is_shown_without_a_call(shard: InsideShard, far: FarShard) -> None:
    found, cluster = await initializing(shard, far)
    await arrives(shard, published(key(found["spec"]["cluster"]), in_phase(cluster, "Ready"), 9))
    found = workspace(shard, "w")
    assert found["status"]["phase"] == found["metadata"]["labels"][wellknown.PHASE] == "Ready"
    assert far.requests == []


async def test_what_the_stream_brings_of_another_workspaces_cluster_is_not_shown(
    shard: InsideShard, far: FarShard
) -> None:
    found, cluster = await initializing(shard, far)
    row, ready = key(found["spec"]["cluster"]), in_phase(cluster, "Ready")
    another = {**ready, "spec": {**ready["spec"], "owner": {**ready["spec"]["owner"], "uid": "another"}}}
    await arrives(shard, published(row, another, 9))
    assert workspace(shard, "w") == found
    await arrives(shard, published(row, ready, 10))
    assert workspace(shard, "w")["status"]["phase"] == "Ready"


async def test_a_word_that_there_is_news_is_followed_by_a_look_where_the_stream_is_behind(
    shard: InsideShard, far: FarShard
) -> None:
    found, cluster = await initializing(shard, far)
    row = key(found["spec"]["cluster"])
    await arrives(shard, published(row, in_phase(cluster, "Initializing", "root:mine"), 6))
    ready = in_phase(cluster, "Ready")
    ready = {**ready, "metadata": {**ready["metadata"], "resourceVersion": f"{9:016}"}}
    far.answers["GET"] = lambda received: (200, ready)
    await notify(shard, "9")
    assert (await until(shard, "w", phase="Ready"))["status"].get("initializers") is None
    await shard.until_idle()
    calls = len(far.requests)
    assert set(far.methods()) == {"GET"}
    # A late row of the stream is ignored; a later one is applied.
    await arrives(shard, published(row, in_phase(cluster, "Initializing", "root:mine"), 7))
    assert workspace(shard, "w")["status"]["phase"] == "Ready"
    await arrives(shard, published(row, in_phase(cluster, "Terminating"), 12))
    assert workspace(shard, "w")["status"]["phase"] == "Terminating"
    assert len(far.requests) <= calls + 1


async def notify(shard: InsideShard, revision: str) -> None:
    """Announce a newer revision on the far shard."""
    obj = workspace(shard, "w")
    annotations = {**obj["metadata"]["annotations"], wellknown.CLUSTER_REVISION: revision}
    changed = {**obj, "metadata": {**obj["metadata"], "annotations": annotations}}
    await shard.loopback.update(shard.target(shard.app.identities.workspaces, ROOT, "", "w"), changed, whole=True)


async def test_a_replica_that_is_not_there_says_nothing(shard: InsideShard, far: FarShard) -> None:
    found, cluster = await initializing(shard, far)
    row = key(found["spec"]["cluster"])
    await arrives(shard, published(row, in_phase(cluster, "Ready"), 9))
    await shard.app.store.submit([Replica("far", row, b"", 10, 1)])
    obj = workspace(shard, "w")
    labels = {**obj["metadata"]["labels"], "looked": "at"}
    target = shard.target(shard.app.identities.workspaces, ROOT, "", "w")
    await shard.loopback.update(target, {**obj, "metadata": {**obj["metadata"], "labels": labels}}, whole=True)
    await shard.until_idle()
    assert workspace(shard, "w")["status"]["phase"] == "Ready"
    assert far.requests == []


async def test_a_cluster_that_its_own_shard_does_not_have_makes_the_workspace_unavailable_and_no_more(
    shard: InsideShard, far: FarShard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_workspaces, "DISAPPEARED_S", 0.0)
    found, cluster = await initializing(shard, far)
    row = key(found["spec"]["cluster"])
    await arrives(shard, published(row, in_phase(cluster, "Ready"), 9))
    before = published(row, in_phase(cluster, "Ready"), 9).value
    count = (await shard.app.store.submit([Replica("far", row, b"", 10, 1)]))[0]
    gone = LogEntry(10, Operation.DELETED, row, before, False, 0, 0, 0)
    far.answers["GET"] = lambda received: None
    shard.manager.replicas_changed([gone], count)
    await comes(lambda: len(far.requests) >= 2)
    assert workspace(shard, "w")["status"]["phase"] == "Ready"
    del far.answers["GET"]
    found = await until(shard, "w", phase="Unavailable")
    reasons = {each["type"]: each.get("reason") for each in found["status"]["conditions"]}
    assert reasons["WorkspaceInitialized"] == "WorkspaceDisappeared"
    assert not found["metadata"].get("deletionTimestamp")
    await shard.until_idle()
    # The row was missing only for a while.
    await arrives(shard, published(row, in_phase(cluster, "Ready"), 20), Operation.ADDED)
    assert workspace(shard, "w")["status"]["phase"] == "Ready"


async def test_a_cluster_that_its_own_shard_does_not_have_for_a_moment_is_waited_for(
    shard: InsideShard, far: FarShard
) -> None:
    found, cluster = await initializing(shard, far)
    row = key(found["spec"]["cluster"])
    await arrives(shard, published(row, in_phase(cluster, "Ready"), 9))
    before = published(row, in_phase(cluster, "Ready"), 9).value
    count = (await shard.app.store.submit([Replica("far", row, b"", 10, 1)]))[0]
    for looks in (1, 2, 3):
        shard.manager.replicas_changed([LogEntry(10, Operation.DELETED, row, before, False, 0, 0, 0)], count)
        await comes(lambda: len(far.requests) >= looks)  # noqa: B023 - awaited here
    assert workspace(shard, "w")["status"]["phase"] == "Ready"


async def test_a_workspace_goes_when_its_shard_says_that_the_cluster_is_gone(shard: InsideShard, far: FarShard) -> None:
    found, cluster = await initializing(shard, far)
    states = [cluster, {**cluster, "metadata": {**cluster["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}]
    far.answers["GET"] = lambda received: (200, states[0])

    def delete(received: ReceivedRequest) -> tuple[int, Object]:
        states.pop(0)
        return 200, states[0]

    far.answers["DELETE"] = delete
    target = shard.target(shard.app.identities.workspaces, ROOT, "", "w")
    await shard.loopback.delete(target, DeleteOptions())
    await shard.until_idle()
    assert far.methods() == ["GET", "DELETE", "GET"]
    assert workspace(shard, "w")["metadata"]["deletionTimestamp"]
    del far.answers["GET"]
    await notify(shard, "11")
    await shard.until_idle()
    assert shard.loopback.get(shard.app.identities.workspaces, ROOT, "", "w") is None
    with shard.app.store.snapshot() as snapshot:
        assert snapshot.replicas.shard_of(found["spec"]["cluster"]) == ""


async def test_a_shard_without_credentials_leaves_what_others_made_alone(tmp_path: Path, far: FarShard) -> None:
    far.answers["POST"] = lambda received: (201, made(received))
    async with shard_inside(tmp_path, far.peers) as inside:
        await far.announce(inside)
        await request_children(inside, "w", FAR)
        await until(inside, "w", phase="Ready")
    async with shard_inside(tmp_path) as inside:
        obj = workspace(inside, "w")
        labels = {**obj["metadata"]["labels"], "looked": "at"}
        target = inside.target(inside.app.identities.workspaces, ROOT, "", "w")
        await inside.loopback.update(target, {**obj, "metadata": {**obj["metadata"], "labels": labels}}, whole=True)
        await inside.until_idle()
        assert workspace(inside, "w")["status"]["phase"] == "Ready"


# --- calls ---


async def test_a_shard_that_failed_is_left_alone_and_then_asked_by_one_first(far: FarShard) -> None:
    now = [0.0]
    calls = ShardCaller(far.peers, lambda: now[0])

    async def ask(client: Client) -> Object:
        return await client.cluster("c").request("GET", "/x")

    async def failed() -> bool:
        """Fail once; return whether the call was made."""
        count = len(far.requests)
        with pytest.raises(ShardUnavailable) as error:
            await calls.call("far", ask)
        assert error.value.unsent == (len(far.requests) == count)
        return not error.value.unsent

    far.answers["GET"] = lambda received: None
    assert await failed()
    pauses = []
    for _ in range(4):
        begun = now[0]
        while not await failed():
            now[0] += 0.05
        pauses.append(now[0] - begun)
    assert pauses == sorted(pauses)
    assert pauses[-1] > pauses[0]

    far.answers["GET"] = lambda received: (200, {"metadata": {}})
    now[0] += 100.0
    assert await calls.call("far", ask)
    far.answers["GET"] = lambda received: None
    assert await failed()
    now[0] += 0.3
    far.answers["GET"] = lambda received: (200, {"metadata": {}})
    assert await calls.call("far", ask)


async def test_all_requests_of_a_call_have_one_deadline(far: FarShard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answers well before the deadline of a single request; together they would take for ever."""
    monkeypatch.setattr(shard_calls, "TIMEOUT_S", 0.2)
    far.answers["GET"] = lambda received: (200, {"metadata": {}})

    async def ask(client: Client) -> Object:
        while True:
            await client.cluster("c").request("GET", "/x")

    with pytest.raises(ShardUnavailable) as failed:
        await ShardCaller(far.peers).call("far", ask)
    assert not failed.value.unsent


async def test_a_cluster_that_exists_is_looked_up_in_the_call_that_met_it(shard: InsideShard, far: FarShard) -> None:
    """A shard that refuses the second request of an attempt is not given up: the cluster is there."""
    calls: list[str] = []
    plain = ShardCaller.call

    async def call(self: ShardCaller, name: str, *rest: Any) -> Any:
        calls.append(name)
        return await plain(self, name, *rest)

    far.answers["POST"] = lambda received: refusal(AlreadyExists('logicalclusters "cluster" already exists'))
    far.answers["GET"] = lambda received: refusal(Forbidden("not now"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ShardCaller, "call", call)
        await request_children(shard, "w", FAR)
        await comes(lambda: scheduled(workspace(shard, "w")).get("reason") == "ShardUnavailable")
        await comes(lambda: len(calls) == far.methods().count("POST"))
    assert far.methods()[:2] == ["POST", "GET"]
    assert wellknown.SHARD in workspace(shard, "w")["metadata"]["annotations"]


async def test_nobody_is_asked_where_a_shard_is_not_known(far: FarShard) -> None:
    async def ask(client: Client) -> Object:
        return await client.cluster("c").request("GET", "/x")

    with pytest.raises(ShardUnavailable) as failed:
        await ShardCaller(far.peers).call("nowhere", ask)
    assert failed.value.unsent
