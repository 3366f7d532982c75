"""Logical clusters whose Workspaces are on another shard: calls to that shard."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from atoll.controllers.shard_calls import ShardCaller
from atoll.controllers.workspaces import owner_notifications
from atoll.machinery.apiserver.call.options import DeleteOptions
from atoll.machinery.meta import wellknown
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import Conflict, Forbidden, NotFound
from atoll.machinery.meta.times import format_time
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.storage.contract import ClusterRoute
from harness.servers.in_process.shard import InsideShard, shard_inside
from harness.servers.stand_ins.fake_shard import Answer, FarShard, ReceivedRequest, comes, far_shard, published, refusal

PARENT, CLUSTER, UID = "faraway", "childhere", "0f0f"
OWNER = {"apiVersion": "tenancy.kcp.io/v1alpha1", "resource": "workspaces", "name": "w", "cluster": PARENT, "uid": UID}
PATH = "apis/tenancy.kcp.io/v1alpha1/workspaces/w"


@pytest.fixture
async def far() -> AsyncIterator[FarShard]:
    async with far_shard() as running:
        yield running


@pytest.fixture
async def shard(tmp_path: Path, far: FarShard) -> AsyncIterator[InsideShard]:
    async with shard_inside(tmp_path, far.peers) as inside:
        await far.announce(inside)
        await inside.app.store.submit([ClusterRoute(PARENT, "far")])
        yield inside


async def cluster(shard: InsideShard, phase: str = "Ready", **status: Any) -> None:
    """A local logical cluster whose Workspace is on another shard."""
    annotations = {wellknown.PATH: "root:far:w", wellknown.SHARD: "root", wellknown.LOCKS: "{}"}
    body: Object = {
        "apiVersion": "core.kcp.io/v1alpha1",
        "kind": "LogicalCluster",
        "metadata": {"name": "cluster", "annotations": annotations, "finalizers": [wellknown.DELETION_FINALIZER]},
        "spec": {"owner": OWNER},
        "status": {"phase": phase, **status},
    }
    await shard.loopback.create(shard.target(LOGICAL_CLUSTERS, CLUSTER, "", "cluster"), body, whole=True)


def found(shard: InsideShard) -> Object | None:
    return shard.loopback.get(LOGICAL_CLUSTERS, CLUSTER, "", "cluster")


def workspace(uid: str = UID, phase: str = "Ready", revision: str = "7", **metadata: Any) -> Object:
    meta = {"name": "w", "uid": uid, "resourceVersion": revision, "finalizers": [wellknown.OWNER_FINALIZER], **metadata}
    return {
        "apiVersion": "tenancy.kcp.io/v1alpha1",
        "kind": "Workspace",
        "metadata": meta,
        "spec": {"cluster": CLUSTER},
        "status": {"phase": phase},
    }


def key(shard: InsideShard) -> ObjectKey:
    return ObjectKey(shard.app.identities.workspaces, PARENT, "", "w")


async def test_news_of_a_cluster_are_told_with_their_revision(shard: InsideShard, far: FarShard) -> None:
    far.answers["PATCH"] = lambda received: (200, workspace())
    await cluster(shard, "Initializing", initializers=["root:mine"])
    await shard.app.store.submit([published(key(shard), workspace(phase="Initializing"), 3)])
    while True:
        obj = found(shard)
        assert obj is not None
        changed = {**obj, "status": {"phase": "Initializing"}}
        try:
            await shard.loopback.update(shard.target(LOGICAL_CLUSTERS, CLUSTER, "", "cluster"), changed, whole=True)
            break
        except Conflict:
            continue  # A controller looked at the Workspace meanwhile.
    await comes(lambda: (found(shard) or {})["status"]["phase"] == "Ready" and far.requests)
    await comes(lambda: far.requests[-1].body["metadata"]["annotations"][wellknown.CLUSTER_REVISION] == revision(shard))
    said = far.requests[-1]
    assert (said.method, said.cluster, said.path, said.body["metadata"]["uid"]) == ("PATCH", PARENT, PATH, UID)


def revision(shard: InsideShard) -> str:
    obj = found(shard)
    assert obj is not None
    return str(obj["metadata"]["resourceVersion"])


async def test_who_shows_it_already_is_not_called(shard: InsideShard, far: FarShard) -> None:
    await shard.app.store.submit([published(key(shard), workspace(), 3)])
    await cluster(shard)
    obj = found(shard)
    assert obj is not None
    annotations = {**obj["metadata"]["annotations"], "a": "b"}
    changed = {**obj, "metadata": {**obj["metadata"], "annotations": annotations}}
    await shard.loopback.update(shard.target(LOGICAL_CLUSTERS, CLUSTER, "", "cluster"), changed, whole=True)
    await shard.until_idle()
    assert far.requests == []


@pytest.mark.parametrize("answer", [refusal(NotFound("no")), (200, workspace(uid="another"))], ids=["gone", "another"])
async def test_a_new_cluster_that_nobody_waits_for_goes_again(
    shard: InsideShard, far: FarShard, monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    monkeypatch.setattr(owner_notifications, "SETTLING_S", 0.01)
    far.answers["GET"] = lambda received: answer
    await cluster(shard)
    await comes(lambda: found(shard) is None)
    assert "DELETE" not in far.methods()


@pytest.mark.parametrize("has", ["", "childelsewhere"], ids=["choosing", "another"])
async def test_a_new_cluster_goes_again_though_an_older_state_of_its_workspace_was_published(
    shard: InsideShard, far: FarShard, monkeypatch: pytest.MonkeyPatch, has: str
) -> None:
    monkeypatch.setattr(owner_notifications, "SETTLING_S", 0.01)
    await shard.app.store.submit([published(key(shard), {**workspace(), "spec": {"cluster": has}}, 3)])
    far.answers["GET"] = lambda received: refusal(NotFound("no"))
    await cluster(shard)
    await comes(lambda: found(shard) is None)
    assert "DELETE" not in far.methods()


async def test_a_new_cluster_goes_again_if_its_workspace_has_another(
    shard: InsideShard, far: FarShard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner_notifications, "SETTLING_S", 0.01)
    far.answers["GET"] = lambda received: (200, {**workspace(), "spec": {"cluster": "childelsewhere"}})
    await cluster(shard)
    await comes(lambda: "GET" in far.methods())
    await comes(lambda: found(shard) is None or bool((found(shard) or {})["metadata"].get("deletionTimestamp")))


@pytest.mark.parametrize("has", ["", "childelsewhere"], ids=["choosing", "another"])
async def test_a_cluster_that_goes_leaves_a_workspace_that_does_not_name_it(
    shard: InsideShard, far: FarShard, has: str
) -> None:
    far.answers["GET"] = lambda received: (200, {**workspace(), "spec": {"cluster": has}})
    await cluster(shard)
    await shard.loopback.delete(shard.target(LOGICAL_CLUSTERS, CLUSTER, "", "cluster"), DeleteOptions())
    await comes(lambda: found(shard) is None)
    assert "DELETE" not in far.methods()
    assert not [each for each in far.requests if "finalizers" in (each.body or {}).get("metadata", {})]


async def test_a_cluster_whose_workspace_was_scheduled_elsewhere_later_goes(shard: InsideShard, far: FarShard) -> None:
    elsewhere = {**workspace(), "spec": {"cluster": "childelsewhere"}}
    far.answers["GET"] = lambda received: (200, elsewhere)
    await shard.app.store.submit([published(key(shard), workspace(), 3)])
    await cluster(shard)
    await shard.until_idle()
    await shard.app.store.submit([published(key(shard), elsewhere, 4)])
    obj = found(shard)
    assert obj is not None
    changed = {**obj, "status": {**obj["status"], "phase": "Unavailable"}}
    await shard.loopback.update(shard.target(LOGICAL_CLUSTERS, CLUSTER, "", "cluster"), changed, whole=True)
    await comes(lambda: found(shard) is None)
    assert "DELETE" not in far.methods()


async def test_a_cluster_that_an_ended_process_did_not_verify_is_verified(
    shard: InsideShard, far: FarShard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner_notifications, "SETTLING_S", 0.01)
    looked: list[Object] = []

    def get(received: ReceivedRequest) -> Answer:
        looked.append(received.body)
        return (200, workspace()) if len(looked) == 1 else refusal(NotFound("no"))

    far.answers |= {"GET": get, "PATCH": lambda received: (200, workspace())}
    await cluster(shard)
    await comes(lambda: looked)
    await shard.until_idle()
    made = found(shard)
    assert made is not None
    await comes(lambda: format_time(int(time.time())) > made["metadata"]["creationTimestamp"])
    controller = owner_notifications.OwnerNotifications(
        shard.loopback,
        shard.target(LOGICAL_CLUSTERS, CLUSTER, "", "cluster").kind,
        shard.app.identities.workspaces,
        owner_notifications.OwnerShards(ShardCaller(far.peers), lambda: ["far"]),
    )
    assert await controller.reconcile((CLUSTER, False)) == owner_notifications.SETTLING_S
    assert await controller.reconcile((CLUSTER, False)) is None
    await comes(lambda: found(shard) is None)


async def test_a_new_cluster_stays_while_its_workspace_is_being_scheduled(
    shard: InsideShard, far: FarShard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner_notifications, "SETTLING_S", 0.01)
    looked: list[str] = []

    def get(received: ReceivedRequest) -> tuple[int, Object]:
        looked.append(received.path)
        return 200, {**workspace(), "spec": {"cluster": "" if len(looked) < 3 else CLUSTER}}

    far.answers["GET"] = get
    await cluster(shard)
    await comes(lambda: len(looked) >= 3)
    await shard.until_idle()
    obj = found(shard)
    assert obj is not None
    assert not obj["metadata"].get("deletionTimestamp")


async def test_a_new_cluster_whose_workspace_is_there_stays(
    shard: InsideShard, far: FarShard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner_notifications, "SETTLING_S", 0.01)
    broken = [True, True]

    def get(received: ReceivedRequest) -> tuple[int, Object] | None:
        return None if broken and broken.pop() else (200, workspace())

    far.answers["GET"] = get
    await cluster(shard)
    far.answers["PATCH"] = lambda received: (200, workspace())
    await comes(lambda: far.methods().count("GET") >= 3)
    await shard.until_idle()
    obj = found(shard)
    assert obj is not None
    assert not obj["metadata"].get("deletionTimestamp")


async def test_an_old_cluster_stays_though_its_workspace_is_said_to_be_gone(shard: InsideShard, far: FarShard) -> None:
    await shard.app.store.submit([published(key(shard), workspace(), 3)])
    await cluster(shard)
    await shard.until_idle()
    await shard.app.store.submit([ClusterRoute(PARENT, ""), ClusterRoute(PARENT, "far")])
    obj = found(shard)
    assert obj is not None
    changed = {**obj, "status": {**obj["status"], "phase": "Unavailable"}}
    await shard.loopback.update(shard.target(LOGICAL_CLUSTERS, CLUSTER, "", "cluster"), changed, whole=True)
    await comes(lambda: "PATCH" in far.methods())
    await shard.until_idle()
    obj = found(shard)
    assert obj is not None
    assert not obj["metadata"].get("deletionTimestamp")


async def test_a_cluster_goes_after_its_workspace_was_let_go(shard: InsideShard, far: FarShard) -> None:
    await shard.app.store.submit([published(key(shard), workspace(), 3)])
    await cluster(shard)
    await shard.until_idle()
    going: dict[str, Any] = {
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "finalizers": ["a", wellknown.OWNER_FINALIZER],
    }
    states = [workspace(), workspace(**going)]
    there: list[bool] = []

    def delete(received: ReceivedRequest) -> tuple[int, Object]:
        there.append(found(shard) is not None)
        return 200, states.pop(0)

    def patch(received: ReceivedRequest) -> tuple[int, Object] | None:
        there.append(found(shard) is not None)
        if "finalizers" in received.body["metadata"]:
            states.pop(0)
        return 200, workspace()

    far.answers |= {
        "GET": lambda received: (200, states[0]) if states else refusal(NotFound("gone")),
        "DELETE": delete,
        "PATCH": patch,
    }
    target = shard.target(LOGICAL_CLUSTERS, CLUSTER, "", "cluster")
    await shard.loopback.delete(target, DeleteOptions())
    await comes(lambda: found(shard) is None)
    assert all(there)
    deleted = next(each for each in far.requests if each.method == "DELETE")
    assert deleted.body["preconditions"] == {"uid": UID}
    let_go = next(each for each in far.requests if each.method == "PATCH" and "finalizers" in each.body["metadata"])
    assert let_go.body["metadata"] == {"resourceVersion": "7", "finalizers": ["a"]}


async def test_a_cluster_waits_for_who_cannot_be_told(shard: InsideShard, far: FarShard) -> None:
    await shard.app.store.submit([published(key(shard), workspace(), 3)])
    await cluster(shard)
    await shard.until_idle()
    await far.stop()
    await shard.loopback.delete(shard.target(LOGICAL_CLUSTERS, CLUSTER, "", "cluster"), DeleteOptions())

    def reported() -> bool:
        conditions = ((found(shard) or {}).get("status") or {}).get("conditions") or []
        return any(each.get("reason") == "OwnerUnavailable" for each in conditions)

    await comes(reported)
    far.answers["GET"] = lambda received: refusal(NotFound("gone"))
    await far.start()
    await comes(lambda: found(shard) is None)


@pytest.mark.parametrize("registered", [True, False], ids=["shard known", "shard forgotten"])
async def test_a_cluster_goes_whose_parent_is_gone_with_all_that_lay_in_it(
    shard: InsideShard, far: FarShard, registered: bool
) -> None:
    await shard.app.store.submit([published(key(shard), workspace(), 3)])
    await cluster(shard)
    await shard.until_idle()
    if not registered:
        await shard.app.store.submit([ClusterRoute(PARENT, "")])
    parent = {"metadata": {"name": "cluster", "resourceVersion": "1"}}
    there = [True]

    def get(received: ReceivedRequest) -> tuple[int, Object] | None:
        if received.path.endswith("/w"):
            return refusal(Forbidden("workspace access not permitted"))
        return (200, parent) if there else refusal(NotFound("no such logical cluster"))

    far.answers |= {"GET": get, "PATCH": lambda received: refusal(Forbidden("workspace access not permitted"))}
    await shard.loopback.delete(shard.target(LOGICAL_CLUSTERS, CLUSTER, "", "cluster"), DeleteOptions())
    await comes(lambda: far.methods().count("GET") >= 3)
    assert found(shard) is not None
    there.clear()
    await comes(lambda: found(shard) is None)
