"""Kubernetes' kinds as values: traits, subresources, selectors, defaults and the form of both autoscaling versions."""

from __future__ import annotations

import copy

import pytest

from atoll.machinery.kinds.kind import Kind
from atoll.machinery.kinds.kubernetes.autoscaling import to_v1, to_v2
from atoll.machinery.kinds.kubernetes.schema_names import row_of_schema, schema_names
from atoll.machinery.kinds.kubernetes.served_kinds import kinds_of_schema
from atoll.machinery.kinds.kubernetes.tables import rows
from atoll.machinery.kinds.kubernetes.traits import TRAITS
from atoll.machinery.kinds.scales import scale_form
from atoll.machinery.meta.objects import Object

IDENTITY = "f00d"


def kind_of(row: str, version: str = "v1") -> Kind:
    return next(kind for kind in kinds_of_schema(schema_names()[row], IDENTITY) if kind.version == version)


def test_every_shipped_schema_has_kinds_and_another_name_none() -> None:
    for name in schema_names().values():
        found = kinds_of_schema(name, IDENTITY)
        assert found
        assert kinds_of_schema(name, IDENTITY) is found
        assert all(kind.builtin and kind.identity == IDENTITY and kind.type.identity == IDENTITY for kind in found)
    assert kinds_of_schema("v1-36-000000000.pods.core", IDENTITY) == ()
    assert row_of_schema("pods.core") is None


def test_every_kind_with_traits_is_a_shipped_kind() -> None:
    assert TRAITS.keys() <= {row.kind for row in rows().values()}


def test_a_deployment_has_its_defaults_also_those_that_depend_on_other_fields() -> None:
    pod: Object = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}}
    spec: Object = {"selector": {"matchLabels": {"a": "b"}}, "template": pod, "paused": None}
    obj: Object = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}, "spec": spec}
    schema = kind_of("deployments.apps").schema
    assert schema is not None
    schema.normalize(obj)
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}}
    assert pod["spec"]["containers"][0]["imagePullPolicy"] == "Always"
    assert "paused" not in spec
    assert schema.validate(obj) == []


@pytest.mark.parametrize(
    ("row", "selector", "text"),
    [
        ("deployments.apps", {"matchLabels": {"b": "1", "a": "2"}}, "a=2,b=1"),
        (
            "deployments.apps",
            {"matchExpressions": [{"key": "a", "operator": "In", "values": ["y", "x"]}]},
            "a in (x,y)",
        ),
        ("replicationcontrollers.core", {"a": "1"}, "a=1"),
    ],
)
def test_the_selector_of_a_scale_is_computed(row: str, selector: Object, text: str) -> None:
    obj = {"metadata": {"name": "x"}, "spec": {"replicas": 3, "selector": selector}, "status": {"replicas": 2}}
    scale = scale_form(kind_of(row), obj)
    assert (scale["spec"], scale["status"]) == ({"replicas": 3}, {"replicas": 2, "selector": text})


def test_resize_changes_resources_and_nothing_else_of_the_containers() -> None:
    old: Object = {"metadata": {}, "spec": {"nodeName": "n", "containers": [{"name": "a", "image": "i"}]}}
    new: Object = {"metadata": {}, "spec": {"containers": [{"name": "a", "image": "j", "resources": {"limits": {}}}]}}
    merged = kind_of("pods.core").merges["resize"](new, old)
    assert merged["spec"] == {"nodeName": "n", "containers": [{"name": "a", "image": "i", "resources": {"limits": {}}}]}
    renamed: Object = {"metadata": {}, "spec": {"containers": [{"name": "b"}]}}
    assert kind_of("pods.core").merges["resize"](renamed, old)["spec"] == renamed["spec"]


def test_ephemeral_containers_are_taken_alone() -> None:
    old: Object = {"metadata": {}, "spec": {"nodeName": "n"}}
    new: Object = {"metadata": {}, "spec": {"ephemeralContainers": [{"name": "e"}], "nodeName": "other"}}
    merged = kind_of("pods.core").merges["ephemeralcontainers"](new, old)
    assert merged["spec"] == {"nodeName": "n", "ephemeralContainers": [{"name": "e"}]}


def autoscaler(**spec: object) -> Object:
    reference = {"kind": "Deployment", "name": "x"}
    spec = {"scaleTargetRef": reference, "maxReplicas": 3, **spec}
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "x"}, "spec": spec}


CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}
MEMORY = {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}}
QUEUE = {
    "type": "External",
    "external": {
        "metric": {"name": "queue", "selector": {"matchLabels": {"q": "1"}}},
        "target": {"type": "Value", "value": "30"},
    },
}
INGRESS = {
    "type": "Object",
    "object": {
        "describedObject": {"kind": "Ingress", "name": "main"},
        "metric": {"name": "rate"},
        "target": {"type": "AverageValue", "averageValue": "2k"},
    },
}
PODS = {"type": "Pods", "pods": {"metric": {"name": "rate"}, "target": {"type": "AverageValue", "averageValue": "1k"}}}
CONTAINER = {
    "type": "ContainerResource",
    "containerResource": {"name": "cpu", "container": "c", "target": {"type": "Utilization", "averageUtilization": 9}},
}


def test_an_autoscaler_survives_version_1_without_loss() -> None:
    policies = [{"type": "Pods", "value": 4, "periodSeconds": 15}]
    rules = {"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": policies}
    behavior = {"scaleUp": rules, "scaleDown": {**rules, "tolerance": "100m"}}
    obj = autoscaler(metrics=[MEMORY, QUEUE, INGRESS, PODS, CONTAINER, CPU], behavior=behavior)
    obj["metadata"]["annotations"] = {"mine": "1"}
    current = {"averageUtilization": 7, "averageValue": "70m"}
    obj["status"] = {
        "currentReplicas": 1,
        "conditions": [{"type": "AbleToScale", "status": "True"}],
        "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu", "current": current}}],
    }
    before = copy.deepcopy(obj)
    old = to_v1(obj)
    assert obj == before
    assert old["spec"] == {
        "scaleTargetRef": obj["spec"]["scaleTargetRef"],
        "maxReplicas": 3,
        "targetCPUUtilizationPercentage": 50,
    }
    assert old["status"] == {"currentReplicas": 1, "currentCPUUtilizationPercentage": 7}
    assert to_v2(old) == obj


def test_an_autoscaler_of_version_1_is_one_of_version_2() -> None:
    old = {**autoscaler(targetCPUUtilizationPercentage=50), "apiVersion": "autoscaling/v1"}
    assert to_v2(old) == autoscaler(metrics=[CPU])
    assert to_v1(to_v2(old)) == old
    without = {**autoscaler(), "apiVersion": "autoscaling/v1"}
    assert to_v2(without)["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] == 80


def test_an_autoscaler_of_version_1_is_checked_as_what_it_becomes() -> None:
    kind = kind_of("horizontalpodautoscalers.autoscaling")
    obj = {**autoscaler(targetCPUUtilizationPercentage=0), "apiVersion": "autoscaling/v1"}
    obj["spec"]["scaleTargetRef"]["apiVersion"] = "apps/v1"
    target = "resource.target.averageUtilization"
    assert [error.field for error in kind.validate(obj)] == [f"spec.metrics[0].{target}"]
    noted = '[{"type":"Resource","resource":{"name":"memory","targetAverageUtilization":0}}]'
    obj["metadata"]["annotations"] = {"autoscaling.alpha.kubernetes.io/metrics": noted}
    obj["spec"]["targetCPUUtilizationPercentage"] = 50
    assert [error.field for error in kind.validate_update(obj, obj)] == [f"spec.metrics[0].{target}"]


@pytest.mark.parametrize("text", ["", "[", "{}", "[1]", "null", '[{"type":"Resource","resource":7}]', "[" * 100000])
def test_an_annotation_that_is_no_list_of_metrics_is_ignored(text: str) -> None:
    old = {**autoscaler(targetCPUUtilizationPercentage=50), "apiVersion": "autoscaling/v1"}
    old["metadata"]["annotations"] = {"autoscaling.alpha.kubernetes.io/metrics": text}
    assert to_v2(old) == autoscaler(metrics=[CPU])
