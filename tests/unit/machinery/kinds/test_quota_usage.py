"""What objects of Kubernetes' kinds use of quotas: Pods, Services, claims of volumes and of devices."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from atoll.machinery.kinds.kubernetes.usage.charge import Amount, Charge, Scope
from atoll.machinery.kinds.kubernetes.usage.evaluators import EVALUATORS, PODS, SERVICES, evaluated_kind

Object = dict[str, Any]
CLAIMS, DEVICES = ("", "persistentvolumeclaims"), ("resource.k8s.io", "resourceclaims")


def charge(kind: tuple[str, str], obj: object) -> Charge:
    return EVALUATORS[kind](json.dumps(obj).encode())


def container(name: str = "a", requests: Object | None = None, limits: Object | None = None, **more: Any) -> Object:
    return {"name": name, "resources": {"requests": requests or {}, "limits": limits or {}}, **more}


def pod(*containers: Object, status: Object | None = None, **spec: Any) -> Charge:
    return charge(PODS, {"spec": {"containers": list(containers), **spec}, "status": status or {}})


def cpu(found: Charge, name: str = "requests.cpu") -> Amount:
    return found.amounts.get(name, 0)


def test_containers_add_up_in_every_name_of_a_resource() -> None:
    found = pod(
        container("a", {"cpu": "100m", "memory": "1Gi", "example.com/gpu": "2"}, {"cpu": 1, "hugepages-2Mi": "4Mi"}),
        container("b", {"cpu": 0.2, "ephemeral-storage": "1k", "hugepages-2Mi": "4Mi"}, {"memory": "1Gi"}),
    )
    assert found.amounts == {
        "count/pods": 1,
        "pods": 1,
        **dict.fromkeys(("cpu", "requests.cpu"), Decimal("0.3")),
        **dict.fromkeys(("memory", "requests.memory"), Decimal(1 << 30)),
        **dict.fromkeys(("ephemeral-storage", "requests.ephemeral-storage"), Decimal(1000)),
        **dict.fromkeys(("hugepages-2Mi", "requests.hugepages-2Mi"), Decimal(4 << 20)),
        "requests.example.com/gpu": Decimal(2),
        "limits.cpu": Decimal(1),
        "limits.memory": Decimal(1 << 30),
    }


def test_what_starts_a_pod_counts_where_it_is_more_than_what_runs() -> None:
    starting = [container("i", {"cpu": "3"}), container("j", {"cpu": "1"})]
    assert cpu(pod(container(requests={"cpu": "2"}), initContainers=starting)) == 3
    assert cpu(pod(container(requests={"cpu": "4"}), initContainers=starting)) == 4


def test_a_sidecar_runs_beside_what_starts_after_it_and_beside_the_containers() -> None:
    sidecar = container("s", {"cpu": "1"}, restartPolicy="Always")
    before, after = container("i", {"cpu": "3"}), container("j", {"cpu": "3"})
    running = container(requests={"cpu": "2"})
    assert cpu(pod(running, initContainers=[before, sidecar])) == 3
    assert cpu(pod(running, initContainers=[sidecar, after])) == 4
    assert cpu(pod(running, initContainers=[sidecar])) == 3


def test_overhead_is_added_to_requests_and_to_limits_that_there_are() -> None:
    found = pod(container(requests={"cpu": "1"}, limits={"memory": "1"}), overhead={"cpu": "250m", "memory": "7"})
    assert cpu(found) == Decimal("1.25")
    assert cpu(found, "limits.cpu") == 0
    assert (cpu(found, "requests.memory"), cpu(found, "limits.memory")) == (7, 8)


def test_what_the_pod_as_a_whole_asks_for_replaces_the_sums() -> None:
    own = {"requests": {"cpu": "5", "ephemeral-storage": "1"}, "limits": {"memory": "9"}}
    found = pod(container(requests={"cpu": "1", "memory": "2"}), resources=own)
    assert (cpu(found), cpu(found, "requests.memory"), cpu(found, "limits.memory")) == (5, 2, 9)
    assert cpu(found, "requests.ephemeral-storage") == 0
    assert found.missing == {}


def test_a_resize_counts_the_most_until_it_cannot_be_done() -> None:
    status: Object = {
        "containerStatuses": [
            {"name": "a", "resources": {"requests": {"cpu": "2"}, "limits": {}}, "allocatedResources": {"cpu": "3"}}
        ]
    }
    assert cpu(pod(container(requests={"cpu": "4"}), status=status)) == 4
    assert cpu(pod(container(requests={"cpu": "1"}), status=status)) == 3
    status["conditions"] = [{"type": "PodResizePending", "reason": "Infeasible"}]
    assert cpu(pod(container(requests={"cpu": "4"}), status=status)) == 3


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_is_an_object_and_nothing_more(phase: str) -> None:
    assert pod(container(requests={"cpu": "1"}), status={"phase": phase}).amounts == {"count/pods": 1}


def test_containers_that_do_not_say_what_a_quota_may_require_are_named() -> None:
    found = pod(container("b", {"cpu": "1"}, {"memory": "1"}), container("a"), initContainers=[container("c")])
    assert found.missing["limits.cpu"] == ("a", "b", "c")
    assert found.missing["requests.cpu"] == found.missing["cpu"] == ("a", "c")
    assert found.missing["limits.memory"] == ("a", "c")
    assert found.missing["memory"] == ("a", "b", "c")


def in_scope(found: Charge, name: str, operator: str = "Exists", *values: str) -> bool:
    return found.is_in([Scope(name, operator, values)])


def test_scopes_tell_pods_apart() -> None:
    plain = pod(container())
    ended = pod(container(requests={"cpu": "1"}), activeDeadlineSeconds=0)
    assert in_scope(plain, "NotTerminating") and not in_scope(plain, "Terminating")
    assert in_scope(ended, "Terminating") and not in_scope(ended, "NotTerminating")
    assert in_scope(plain, "BestEffort") and in_scope(ended, "NotBestEffort")
    assert not in_scope(plain, "NotBestEffort") and not in_scope(ended, "BestEffort")
    assert in_scope(pod(container(requests={"cpu": "0"}), initContainers=[container()]), "BestEffort")
    assert in_scope(pod(container(), status={"qosClass": "Burstable"}), "NotBestEffort")
    assert not in_scope(plain, "VolumeAttributesClass") and not in_scope(plain, "VolumeAttributesClass", "DoesNotExist")
    assert ended.is_in([Scope("Terminating"), Scope("NotBestEffort")])
    assert not ended.is_in([Scope("Terminating"), Scope("BestEffort")])


def test_a_priority_class_is_selected_by_its_name() -> None:
    high, none = pod(container(), priorityClassName="high"), pod(container())
    for found, expected in ((high, (True, True, False, False)), (none, (False, False, True, True))):
        assert in_scope(found, "PriorityClass") == expected[0]
        assert in_scope(found, "PriorityClass", "In", "low", "high") == expected[1]
        assert in_scope(found, "PriorityClass", "NotIn", "high") == expected[2]
        assert in_scope(found, "PriorityClass", "DoesNotExist") == expected[3]


@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
def test_affinity_to_pods_of_other_namespaces_is_a_scope(kind: str) -> None:
    required, preferred = (f"{each}DuringSchedulingIgnoredDuringExecution" for each in ("required", "preferred"))
    terms: list[tuple[Object, bool]] = [({"namespaces": ["x"]}, True), ({"namespaceSelector": {}}, True), ({}, False)]
    for term, expected in terms:
        assert in_scope(pod(affinity={kind: {required: [term]}}), "CrossNamespacePodAffinity") == expected
        weighted = [{"weight": 1, "podAffinityTerm": term}]
        assert in_scope(pod(affinity={kind: {preferred: weighted}}), "CrossNamespacePodAffinity") == expected


@pytest.mark.parametrize(
    ("spec", "nodeports", "loadbalancers"),
    [
        ({}, 0, 0),
        ({"type": "NodePort"}, 2, 0),
        ({"type": "LoadBalancer"}, 2, 1),
        ({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False}, 1, 1),
    ],
)
def test_a_service_uses_ports_of_nodes_and_load_balancers(spec: Object, nodeports: int, loadbalancers: int) -> None:
    found = charge(SERVICES, {"spec": {"ports": [{"port": 1, "nodePort": 30000}, {"port": 2}], **spec}})
    assert found.amounts["services"] == found.amounts["count/services"] == 1
    assert found.amounts.get("services.nodeports", 0) == nodeports
    assert found.amounts.get("services.loadbalancers", 0) == loadbalancers


def volume(storage: str = "1500m", status: Object | None = None, metadata: Object | None = None, **spec: Any) -> Charge:
    resources = {"requests": {"storage": storage}}
    return charge(CLAIMS, {"metadata": metadata or {}, "spec": {"resources": resources, **spec}, "status": status})


def test_a_claim_uses_whole_bytes_in_all_and_of_its_class() -> None:
    found = volume(storageClassName="gold")
    gold = "gold.storageclass.storage.k8s.io/"
    assert found.amounts == {
        "count/persistentvolumeclaims": 1,
        "persistentvolumeclaims": 1,
        "requests.storage": 2,
        f"{gold}persistentvolumeclaims": 1,
        f"{gold}requests.storage": 2,
    }
    annotated = volume(metadata={"annotations": {"volume.beta.kubernetes.io/storage-class": "iron"}})
    assert annotated.amounts["iron.storageclass.storage.k8s.io/requests.storage"] == 2
    assert volume("1Gi", {"allocatedResources": {"storage": "2Gi"}}).amounts["requests.storage"] == 2 << 30


def test_classes_of_attributes_are_those_wanted_in_use_and_on_the_way() -> None:
    status = {
        "currentVolumeAttributesClassName": "slow",
        "modifyVolumeStatus": {"targetVolumeAttributesClassName": "x"},
    }
    found = volume(status=status, volumeAttributesClassName="fast")
    assert all(in_scope(found, "VolumeAttributesClass", "In", name) for name in ("slow", "fast", "x"))
    assert in_scope(found, "VolumeAttributesClass") and not in_scope(volume(), "VolumeAttributesClass")
    assert in_scope(volume(), "VolumeAttributesClass", "NotIn", "fast")
    assert not in_scope(found, "Terminating")


def test_a_claim_of_devices_uses_as_many_as_it_may_be_given() -> None:
    exact = {"deviceClassName": "gpu", "allocationMode": "ExactCount"}
    alternatives = [{**exact, "count": 2}, {**exact, "count": 5}, {"deviceClassName": "nic", "allocationMode": "All"}]
    requests = [{"exactly": {**exact, "count": 3}}, {"firstAvailable": alternatives}, {}]
    found = charge(DEVICES, {"spec": {"devices": {"requests": requests}}})
    assert found.amounts["gpu.deviceclass.resource.k8s.io/devices"] == 8
    assert found.amounts["nic.deviceclass.resource.k8s.io/devices"] == 32


def test_names_belong_to_the_kind_that_uses_them() -> None:
    assert {name: evaluated_kind(name) for name in ("cpu", "limits.memory", "requests.example.com/x")} == {
        "cpu": PODS,
        "limits.memory": PODS,
        "requests.example.com/x": PODS,
    }
    assert evaluated_kind("hugepages-1Gi") == evaluated_kind("requests.hugepages-1Gi") == PODS
    assert evaluated_kind("services.nodeports") == SERVICES
    assert evaluated_kind("gold.storageclass.storage.k8s.io/requests.storage") == CLAIMS
    assert evaluated_kind("gpu.deviceclass.resource.k8s.io/devices") == DEVICES
    assert evaluated_kind("example.com/x") is evaluated_kind("requests.kubernetes.io/x") is None


@pytest.mark.parametrize("kind", EVALUATORS)
@pytest.mark.parametrize("value", [None, 7, [], "x", {"spec": 7}, {"spec": {"containers": [{"resources": "x"}]}}])
def test_what_is_malformed_is_an_object_all_the_same(kind: tuple[str, str], value: object) -> None:
    group, resource = kind
    name = f"count/{resource}.{group}" if group else f"count/{resource}"
    assert charge(kind, value).amounts[name] == 1


def test_quantities_that_are_none_use_nothing_and_sums_are_exact() -> None:
    found = pod(container("a", {"cpu": "1n", "memory": "x"}), container("b", {"cpu": "9223372036854775807"}))
    assert cpu(found) == Decimal("9223372036854775807.000000001")
    assert cpu(found, "requests.memory") == 0
    assert cpu(pod(container(requests={"cpu": "1e30"}))) == 2**63 - 1
    assert cpu(pod(container(requests={"cpu": "0.1n"}))) == Decimal("0.000000001")
