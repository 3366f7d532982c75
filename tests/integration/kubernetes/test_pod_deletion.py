"""Pods on a node stay after their deletion until who runs them lets go; the server without kubelets deletes none."""

from __future__ import annotations

from typing import Any

from harness.clients.api import MERGE, Api, eventually
from harness.data.kubernetes_objects import PODS, pod

Object = dict[str, Any]
HOLD = "example.com/hold"


def on_node(name: str = "one", *finalizers: str) -> Object:
    body = pod(name, nodeName="berth")
    return {**body, "metadata": {**body["metadata"], "finalizers": [*finalizers]}}


def ends(answer: Object) -> tuple[bool, int, int]:
    metadata = answer["metadata"]
    return bool(metadata["deletionTimestamp"]), metadata["deletionGracePeriodSeconds"], metadata["generation"]


def gone(api: Api, path: str) -> bool:
    return api.get(path, expect=0).code == 404


def test_a_pod_on_a_node_stays_until_it_is_deleted_without_grace(kube: Api) -> None:
    kube.post(PODS, on_node())
    with kube.watch(f"{PODS}?watch=1&resourceVersion=0") as events:
        assert events.next().type == "ADDED"
        first = kube.delete(f"{PODS}/one").json
        assert ends(first) == (True, 30, 2)
        again = kube.delete(f"{PODS}/one", {"gracePeriodSeconds": 60, "orphanDependents": False}, expect=202).json
        assert again == first
        dry = kube.delete(f"{PODS}/one?gracePeriodSeconds=0&dryRun=All").json
        assert (ends(dry), dry["metadata"]["resourceVersion"]) == ((True, 0, 2), first["metadata"]["resourceVersion"])
        shorter = kube.delete(f"{PODS}/one?gracePeriodSeconds=5").json
        assert ends(shorter) == (True, 5, 2)
        assert shorter["metadata"]["deletionTimestamp"] < first["metadata"]["deletionTimestamp"]
        kept = kube.patch(f"{PODS}/one/status", {"status": {"phase": "Running"}}, MERGE).json
        assert ends(kept) == (True, 5, 2)
        last = kube.delete(f"{PODS}/one?gracePeriodSeconds=0").json
        seen = [events.next() for _ in range(5)]
    assert [each.type for each in seen] == ["MODIFIED"] * 4 + ["DELETED"]
    assert [ends(each.object)[1] for each in seen] == [30, 5, 5, 0, 0]
    assert last == {**seen[-1].object}
    assert gone(kube, f"{PODS}/one")


def test_pods_without_a_node_and_ended_ones_go_at_once_and_are_seen_marked(kube: Api) -> None:
    kube.post(PODS, pod("free"))
    kube.post(PODS, on_node("ended"))
    kube.patch(f"{PODS}/ended/status", {"status": {"phase": "Failed"}}, MERGE)
    revision = kube.get(PODS).json["metadata"]["resourceVersion"]
    with kube.watch(f"{PODS}?watch=1&resourceVersion={revision}") as events:
        for name in ("free", "ended"):
            assert ends(kube.delete(f"{PODS}/{name}", {"gracePeriodSeconds": 30}).json) == (True, 0, 2)
            assert [events.next().type for _ in range(2)] == ["MODIFIED", "DELETED"]


def test_a_finalizer_and_a_grace_period_hold_a_pod_each_by_itself(kube: Api) -> None:
    for name in ("finalized", "released"):
        kube.post(PODS, on_node(name, HOLD))
        assert ends(kube.delete(f"{PODS}/{name}").json) == (True, 30, 2)
    kube.patch(f"{PODS}/released", {"metadata": {"finalizers": None}}, MERGE)
    assert kube.delete(f"{PODS}/finalized?gracePeriodSeconds=0").json["metadata"]["finalizers"] == [HOLD]
    assert {each["metadata"]["name"] for each in kube.get(PODS).json["items"]} == {"finalized", "released"}
    kube.patch(f"{PODS}/finalized", {"metadata": {"finalizers": None}}, MERGE)
    kube.delete(f"{PODS}/released?gracePeriodSeconds=0")
    assert kube.get(PODS).json["items"] == []


def test_a_collection_and_a_namespace_wait_for_their_pods_on_nodes(kube: Api) -> None:
    there = "/api/v1/namespaces/harbour"
    kube.post("/api/v1/namespaces", {"kind": "Namespace", "metadata": {"name": "harbour"}})
    for body in (on_node("one"), on_node("two"), pod("free")):
        kube.post(f"{there}/pods", body)
    kube.send("DELETE", f"{there}/pods?fieldSelector=metadata.name!=two", expect=200)
    assert [ends(each)[1] for each in kube.get(f"{there}/pods").json["items"][:1]] == [30]
    kube.delete(there)
    eventually(lambda: "deletionTimestamp" in kube.get(f"{there}/pods/two").json["metadata"], "the other one is told")
    text = "Some resources are remaining: pods. has 2 resource instances"
    eventually(lambda: text in kube.get(there).body.decode(), "the namespace tells what remains")
    kube.send("DELETE", f"{there}/pods?gracePeriodSeconds=0", expect=200)
    eventually(lambda: gone(kube, there), "the namespace goes with its last pod")
