"""HorizontalPodAutoscalers of version 2 by number, with metrics of all types, and annotations that clients write."""

from __future__ import annotations

from random import Random
from typing import Any

Object = dict[str, Any]

PREFIX = "autoscaling.alpha.kubernetes.io/"
_SOURCES = {
    "Object": "object",
    "Pods": "pods",
    "Resource": "resource",
    "ContainerResource": "containerResource",
    "External": "external",
}
_OF_RESOURCES = ("Resource", "ContainerResource")
_FIELDS = {"Utilization": "averageUtilization", "AverageValue": "averageValue", "Value": "value"}
_QUANTITIES = ("1", "100m", "2Gi", "0", "1500M")
_TEXTS = (
    *("", "x", "null", "{}", "[]", "[{}]", "[7]", '[{"type":7}]', '{"scaleUp":7}', "[" * 20_000),
    '[{"type":"Resource"}]',
    '[{"type":"Resource","resource":{"name":"memory"},"zip":1}]',
    '[{"type":"Resource","resource":{"name":"memory","targetAverageUtilization":5,"currentAverageValue":"1"}}]',
    '[{"type":"Object","object":{"target":{"kind":"S","name":"n"},"metricName":"m","targetValue":"0","averageValue":"5"}}]',
    '{"ScaleUp":{"StabilizationWindowSeconds":5}}',
    '[{"type":"A","status":"True"}]',
)


def autoscaler(number: int) -> Object:
    """Return an autoscaler of version 2; the same one for the same number."""
    rng = Random(number)
    spec: Object = {"maxReplicas": rng.randint(1, 9), "scaleTargetRef": {"kind": "Deployment", "name": "web"}}
    if rng.random() < 0.9:
        spec["metrics"] = [_metric(rng, "target") for _ in range(rng.randint(0, 4))]
    if rng.random() < 0.5:
        spec["behavior"] = {name: _rules(rng) for name in ("scaleUp", "scaleDown") if rng.random() < 0.6}
    found = {**_named("v2"), "spec": spec}
    if rng.random() < 0.3:
        found["metadata"]["annotations"] = {"a": "b", PREFIX + "metrics": "[]"}
    if rng.random() < 0.6:
        conditions = [{"type": "AbleToScale", "status": "True", "message": "<b>"} for _ in range(rng.randint(0, 2))]
        current = [_metric(rng, "current") for _ in range(rng.randint(0, 3))]
        counts = {"currentReplicas": rng.randint(0, 1), "desiredReplicas": 2}
        found["status"] = {**counts, "currentMetrics": current, "conditions": conditions}
    return found


def annotated(number: int) -> Object:
    """Return an autoscaler of version 1 with annotations in which a client wrote anything."""
    rng = Random(number)
    found = {**_named("v1"), "spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "web"}}}
    if rng.random() < 0.5:
        found["spec"]["targetCPUUtilizationPercentage"] = rng.randint(1, 90)
    if rng.random() < 0.5:
        found["status"] = {"currentReplicas": 1, "desiredReplicas": 1, "currentCPUUtilizationPercentage": 5}
    names = ("metrics", "current-metrics", "behavior", "conditions")
    found["metadata"]["annotations"] = {PREFIX + name: rng.choice(_TEXTS) for name in names if rng.random() < 0.5}
    return found


def _named(version: str) -> Object:
    return {"apiVersion": f"autoscaling/{version}", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"}}


def _metric(rng: Random, field: str) -> Object:
    type_ = rng.choice(list(_SOURCES))
    amount = rng.choice(_QUANTITIES)
    if field == "target":
        types = {"Pods": ("AverageValue",), **dict.fromkeys(_OF_RESOURCES, ("Utilization", "AverageValue"))}
        chosen = rng.choice(types.get(type_, ("AverageValue", "Value")))
        held: Object = {"type": chosen, _FIELDS[chosen]: rng.randint(1, 90) if chosen == "Utilization" else amount}
    else:
        held = {"averageValue" if type_ in (*_OF_RESOURCES, "Pods") else "value": amount}
        if type_ in _OF_RESOURCES and rng.random() < 0.6:
            held["averageUtilization"] = rng.randint(0, 90)
    source: Object = {"metric": {"name": "m"}}
    if type_ in _OF_RESOURCES:
        source = {"name": rng.choice(("cpu", "cpu", "memory"))} | ({"container": "c"} if type_ != "Resource" else {})
    elif rng.random() < 0.4:
        source["metric"]["selector"] = {"matchLabels": {"a": "b"}}
    if type_ == "Object":
        source["describedObject"] = {"kind": "Service", "name": "s"}
    return {"type": type_, _SOURCES[type_]: {**source, field: held}}


def _rules(rng: Random) -> Object:
    policies = [{"type": "Pods", "value": 4, "periodSeconds": 15}]
    choices = {"stabilizationWindowSeconds": 5, "selectPolicy": "Min", "policies": policies, "tolerance": "100m"}
    return {name: value for name, value in choices.items() if rng.random() < 0.5}
