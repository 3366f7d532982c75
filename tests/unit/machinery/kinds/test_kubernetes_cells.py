"""Rows of the tables of Kubernetes' kinds: what `kubectl get` and `-o wide` print."""

from __future__ import annotations

import pytest

from atoll.machinery.kinds.kind import Kind
from atoll.machinery.kinds.kubernetes.schema_names import schema_names
from atoll.machinery.kinds.kubernetes.served_kinds import kinds_of_schema
from atoll.machinery.meta.objects import Object

NOW_S = 1_767_229_200.0  # 2026-01-01T01:00:00Z
BORN = {"name": "x", "creationTimestamp": "2026-01-01T00:00:00Z"}


def kind_of(row: str) -> Kind:
    return kinds_of_schema(schema_names()[row], "f00d")[0]


def row_of(row: str, obj: Object) -> list[object]:
    kind = kind_of(row)
    assert kind.cells is not None
    return kind.cells({"metadata": BORN, **obj}, NOW_S)


def template(*containers: str) -> Object:
    return {"spec": {"containers": [{"name": name, "image": f"{name}:1"} for name in containers]}}


@pytest.mark.parametrize("row", schema_names())
@pytest.mark.parametrize("value", [None, 1, "x", [], [1], {}, [{}], True])
def test_every_row_is_complete_for_parts_of_any_type(row: str, value: object) -> None:
    wrong = dict.fromkeys(("spec", "status", "template", "subsets", "ports", "endpoints", "conditions"), value)
    below = {"spec": dict.fromkeys(_FIELDS, value), "status": dict.fromkeys(_FIELDS, value)}
    for obj in ({}, wrong, below):
        assert len(row_of(row, obj)) == len(kind_of(row).columns)


_FIELDS = ("selector", "template", "ports", "metrics", "conditions", "initContainerStatuses", "containerStatuses")


def test_a_deployment_shows_what_is_ready_of_what_is_wanted() -> None:
    spec = {"replicas": 3, "selector": {"matchLabels": {"a": "b"}}, "template": template("one", "two")}
    status = {"readyReplicas": 1, "updatedReplicas": 2}
    assert row_of("deployments.apps", {"spec": spec, "status": status}) == [
        "x",
        "1/3",
        2,
        0,
        "60m",
        "one,two",
        "one:1,two:1",
        "a=b",
    ]


def service(**spec: object) -> Object:
    return {"spec": {"ports": [{"port": 80, "protocol": "TCP", "nodePort": 30080}], **spec}}


@pytest.mark.parametrize(
    ("spec", "status", "external"),
    [
        ({"type": "ClusterIP"}, {}, "<none>"),
        ({"type": "NodePort", "externalIPs": ["1.2.3.4"]}, {}, "1.2.3.4"),
        ({"type": "LoadBalancer"}, {}, "<pending>"),
        (
            {"type": "LoadBalancer"},
            {"loadBalancer": {"ingress": [{"ip": "9.9.9.9"}, {"hostname": "a.b"}]}},
            "9.9.9.9,a.b",
        ),
        ({"type": "ExternalName", "externalName": "a.b"}, {}, "a.b"),
    ],
)
def test_a_service_shows_its_addresses_and_ports(spec: Object, status: Object, external: str) -> None:
    found = row_of("services.core", {**service(clusterIPs=["10.0.0.1"], **spec), "status": status})
    assert found == ["x", spec["type"], "10.0.0.1", external, "80:30080/TCP", "60m", "<none>"]


RUNNING = {"name": "c", "ready": True, "restartCount": 0, "state": {"running": {}}}
CRASHED = {
    "name": "c",
    "restartCount": 3,
    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
    "lastState": {"terminated": {"finishedAt": "2026-01-01T00:58:00Z"}},
}


@pytest.mark.parametrize(
    ("status", "ready", "reason", "restarts"),
    [
        ({"phase": "Pending"}, "0/1", "Pending", "0"),
        ({"phase": "Running", "containerStatuses": [RUNNING]}, "1/1", "Running", "0"),
        ({"phase": "Running", "containerStatuses": [CRASHED]}, "0/1", "CrashLoopBackOff", "3 (2m ago)"),
        ({"phase": "Failed", "reason": "Evicted"}, "0/1", "Evicted", "0"),
        (
            {"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"running": {}}}]},
            "0/1",
            "Init:0/0",
            "0",
        ),
        (
            {"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"terminated": {"exitCode": 2}}}]},
            "0/1",
            "Init:ExitCode:2",
            "0",
        ),
        (
            {"phase": "Succeeded", "containerStatuses": [{"state": {"terminated": {"signal": 9}}}]},
            "0/1",
            "Signal:9",
            "0",
        ),
        (
            {"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]},
            "0/1",
            "SchedulingGated",
            "0",
        ),
    ],
)
def test_a_pod_shows_its_state(status: Object, ready: str, reason: str, restarts: str) -> None:
    found = row_of("pods.core", {"spec": template("c")["spec"], "status": status})
    assert found == ["x", ready, reason, restarts, "60m", "<none>", "<none>", "<none>", "<none>"]


def test_a_pod_under_deletion_is_terminating() -> None:
    going = {"metadata": {**BORN, "deletionTimestamp": "2026-01-01T00:59:00Z"}, "status": {"phase": "Running"}}
    assert row_of("pods.core", going)[2] == "Terminating"


def test_an_autoscaler_shows_its_metrics_in_both_versions() -> None:
    target = {"type": "Utilization", "averageUtilization": 50}
    metrics = [
        {"type": "Resource", "resource": {"name": "cpu", "target": target}},
        {"type": "Pods", "pods": {"metric": {"name": "m"}, "target": {"averageValue": "1k"}}},
        {"type": "External", "external": {"metric": {"name": "m"}, "target": {"value": "3"}}},
    ]
    reference = {"kind": "Deployment", "name": "d"}
    spec = {"scaleTargetRef": reference, "minReplicas": 1, "maxReplicas": 4, "metrics": metrics}
    expected = ["x", "Deployment/d", "cpu: <unknown>/50%, <unknown>/1k + 1 more...", "1", 4, 0, "60m"]
    found = row_of("horizontalpodautoscalers.autoscaling", {"apiVersion": "autoscaling/v2", "spec": spec})
    assert found == expected
    old = {"scaleTargetRef": reference, "minReplicas": 1, "maxReplicas": 4, "targetCPUUtilizationPercentage": 50}
    found = row_of("horizontalpodautoscalers.autoscaling", {"apiVersion": "autoscaling/v1", "spec": old})
    assert found == [*expected[:2], "cpu: <unknown>/50%", *expected[3:]]


@pytest.mark.parametrize(
    ("row", "obj", "expected"),
    [
        ("cronjobs.batch", {"spec": {"schedule": "* * * * *", "suspend": True}}, {1: "* * * * *", 3: "True", 4: 0}),
        ("poddisruptionbudgets.policy", {"spec": {"minAvailable": 2}}, {1: "2", 2: "N/A", 3: 0}),
        ("jobs.batch", {"spec": {"completions": 2}, "status": {"succeeded": 1}}, {1: "Running", 2: "1/2"}),
        ("persistentvolumes.core", {"spec": {"capacity": {"storage": "1Gi"}}}, {1: "1Gi"}),
        ("persistentvolumes.core", {}, {1: "0"}),
        ("storageclasses.storage.k8s.io", {"provisioner": "p"}, {1: "p", 2: "Delete", 4: False}),
        ("nodes.core", {"spec": {"unschedulable": True}}, {1: "Unknown,SchedulingDisabled", 2: "<none>"}),
        ("ingresses.networking.k8s.io", {"spec": {"rules": [{"host": h} for h in "abcd"]}}, {2: "a,b,c + 1 more..."}),
        ("endpoints.core", {"subsets": [{"addresses": [{"ip": "::1"}], "ports": [{"port": 1}]}]}, {1: "[::1]:1"}),
        ("endpointslices.discovery.k8s.io", {"ports": [{}], "endpoints": [{"addresses": ["1"]}]}, {2: "*", 3: "1"}),
        ("ipaddresses.networking.k8s.io", {"spec": {"parentRef": {"resource": "a", "name": "s"}}}, {1: "a/s"}),
        ("apiservices.apiregistration.k8s.io", {"spec": {"service": {"namespace": "n", "name": "s"}}}, {1: "n/s"}),
        ("componentstatuses.core", {"conditions": [{"type": "Healthy", "status": "True"}]}, {1: "Healthy"}),
    ],
)  # fmt: skip
def test_cells_are_those_of_kubernetes(row: str, obj: Object, expected: dict[int, object]) -> None:
    found = row_of(row, obj)
    assert {at: found[at] for at in expected} == expected
