"""What Kubernetes' conformance specs of garbage collection and of namespaces assert on workloads and Pods.

The specs wait for controllers that make ReplicaSets and Pods; here the test makes them, with the owners that those
controllers would set.
"""

from __future__ import annotations

from typing import Any

import pytest

from harness.clients.api import Api, eventually
from harness.data.kubernetes_objects import DEPLOYMENTS, PODS, deployment, pod

Object = dict[str, Any]
SETS = "/apis/apps/v1/namespaces/default/replicasets"
CONTROLLERS = "/api/v1/namespaces/default/replicationcontrollers"
HOLD = "example.com/hold"


def owned(body: Object, *owners: Object, **metadata: Any) -> Object:
    """A body with owners that wait for it when they are deleted in the foreground."""
    references = [
        {
            "apiVersion": each["apiVersion"],
            "kind": each["kind"],
            "name": each["metadata"]["name"],
            "uid": each["metadata"]["uid"],
            "blockOwnerDeletion": True,
        }
        for each in owners
    ]
    return {**body, "metadata": {**body["metadata"], "ownerReferences": references, **metadata}}


def replica_set(name: str) -> Object:
    return {**deployment(name), "kind": "ReplicaSet"}


def replication_controller(name: str) -> Object:
    spec = {"selector": {"app": name}, "template": deployment(name)["spec"]["template"]}
    return {"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": name}, "spec": spec}


def remove(api: Api, path: str, policy: str) -> None:
    api.delete(path, {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy})


def gone(api: Api, path: str) -> None:
    eventually(lambda: api.get(path, expect=0).code == 404, f"{path} gone")


def owners(api: Api, path: str) -> list[str]:
    return [each["name"] for each in api.get(path).json["metadata"].get("ownerReferences") or []]


@pytest.fixture
def family(kube: Api) -> Api:
    """A workspace with a Deployment, its ReplicaSet and that one's Pod, and a ReplicationController with a Pod."""
    top = kube.post(DEPLOYMENTS, deployment()).json
    middle = kube.post(SETS, owned(replica_set("web"), top)).json
    kube.post(PODS, owned(pod("web"), middle))
    controller = kube.post(CONTROLLERS, replication_controller("old")).json
    kube.post(PODS, owned(pod("old"), controller))
    return kube


def test_replica_sets_and_pods_go_with_what_owns_them(family: Api) -> None:
    remove(family, f"{DEPLOYMENTS}/web", "Background")
    remove(family, f"{CONTROLLERS}/old", "Background")
    for path in (f"{SETS}/web", f"{PODS}/web", f"{PODS}/old"):
        gone(family, path)


def test_replica_sets_and_pods_are_orphaned_where_the_deletion_says_so(family: Api) -> None:
    remove(family, f"{DEPLOYMENTS}/web", "Orphan")
    remove(family, f"{CONTROLLERS}/old", "Orphan")
    gone(family, f"{DEPLOYMENTS}/web")
    gone(family, f"{CONTROLLERS}/old")
    assert (owners(family, f"{SETS}/web"), owners(family, f"{PODS}/old")) == ([], [])
    assert owners(family, f"{PODS}/web") == ["web"]


def test_a_controller_stays_until_its_pods_are_gone_where_the_deletion_says_so(kube: Api) -> None:
    controller = kube.post(CONTROLLERS, replication_controller("old")).json
    kube.post(PODS, owned(pod("held"), controller, finalizers=[HOLD]))
    kube.post(PODS, owned(pod("free"), controller))
    remove(kube, f"{CONTROLLERS}/old", "Foreground")
    gone(kube, f"{PODS}/free")
    found = kube.get(f"{CONTROLLERS}/old").json["metadata"]
    assert found["deletionTimestamp"] and found["finalizers"] == ["foregroundDeletion"]
    kube.patch(f"{PODS}/held", {"metadata": {"finalizers": None}})
    gone(kube, f"{CONTROLLERS}/old")


def test_pods_with_another_controller_stay_when_one_waits_for_them(kube: Api) -> None:
    going, staying = (kube.post(CONTROLLERS, replication_controller(name)).json for name in ("going", "staying"))
    kube.post(PODS, owned(pod("shared"), going, staying))
    kube.post(PODS, owned(pod("own"), going))
    remove(kube, f"{CONTROLLERS}/going", "Foreground")
    gone(kube, f"{CONTROLLERS}/going")
    gone(kube, f"{PODS}/own")
    assert owners(kube, f"{PODS}/shared") == ["staying"]


def test_a_circle_of_pods_goes(kube: Api) -> None:
    first = kube.post(PODS, pod("first")).json
    second = kube.post(PODS, owned(pod("second"), first)).json
    third = kube.post(PODS, owned(pod("third"), second)).json
    kube.patch(f"{PODS}/first", {"metadata": {"ownerReferences": owned(first, third)["metadata"]["ownerReferences"]}})
    remove(kube, f"{PODS}/first", "Foreground")
    for name in ("first", "second", "third"):
        gone(kube, f"{PODS}/{name}")


def test_pods_of_a_namespace_go_before_what_they_may_use(kube: Api) -> None:
    there = "/api/v1/namespaces/harbour"
    kube.post("/api/v1/namespaces", {"kind": "Namespace", "metadata": {"name": "harbour"}})
    kube.post(f"{there}/pods", owned(pod("held"), finalizers=[HOLD]))
    kube.post(f"{there}/configmaps", {"kind": "ConfigMap", "metadata": {"name": "settings", "finalizers": [HOLD]}})
    kube.delete(there)

    def messages() -> dict[str, str]:
        status = kube.get(there).json["status"]
        return {each["type"]: each["message"] for each in status.get("conditions") or []}

    eventually(messages, "the namespace tells what remains")
    assert kube.get(f"{there}/pods/held").json["metadata"]["deletionTimestamp"]
    assert "deletionTimestamp" not in kube.get(f"{there}/configmaps/settings").json["metadata"]
    assert messages()["NamespaceContentRemaining"] == "Some resources are remaining: pods. has 1 resource instances"
    kube.patch(f"{there}/pods/held", {"metadata": {"finalizers": None}})
    gone(kube, f"{there}/pods/held")
    eventually(
        lambda: "deletionTimestamp" in kube.get(f"{there}/configmaps/settings").json["metadata"], "what is left goes"
    )
    kube.patch(f"{there}/configmaps/settings", {"metadata": {"finalizers": None}})
    gone(kube, there)
