"""Objects of Kubernetes' kinds by number, in the types of Kubernetes, with fields that its defaults depend on."""

from __future__ import annotations

from random import Random
from typing import Any

from atoll.machinery.kinds.kubernetes.tables import components, rows
from atoll.machinery.kinds.native_schemas import REF_PREFIX

Object = dict[str, Any]

_DIGESTED = "a@sha256:" + "0" * 64
#: Values of fields that defaults depend on, by component and field, or by field.
_CHOICES: dict[str, list[Any]] = {
    "ServiceSpec.type": ["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"],
    "ServiceSpec.sessionAffinity": ["None", "ClientIP"],
    "DeploymentStrategy.type": ["RollingUpdate", "Recreate"],
    "DaemonSetUpdateStrategy.type": ["RollingUpdate", "OnDelete"],
    "StatefulSetUpdateStrategy.type": ["RollingUpdate", "OnDelete"],
    "LimitRangeItem.type": ["Container", "Pod"],
    "ExactDeviceRequest.allocationMode": ["ExactCount", "All"],
    "DeviceSubRequest.allocationMode": ["ExactCount", "All"],
    "image": [
        "nginx",
        "nginx:latest",
        "nginx:1",
        "host.example:5000/a/b",
        "Bad",
        _DIGESTED,
        "a/b:v1@sha256:" + "1" * 64,
    ],
    "reference": ["nginx", "nginx:1"],
}
_TYPES: dict[str, list[Any]] = {
    "Quantity": ["100m", "1Gi", "2", "1500M"],
    "IntOrString": [1, 7, "25%", "http"],
    "Time": ["2026-01-02T03:04:05Z"],
    "MicroTime": ["2026-01-02T03:04:05.000006Z"],
    "RawExtension": [{"apiVersion": "v1", "kind": "X", "a": 1}],
}
#: Left out: sums of quantities, the time of the write, what a later version changed, and what protobuf does not carry.
_LEFT_OUT = frozenset(
    {
        "PodSpec.resources",
        "DeviceTaint.timeAdded",
        "Device.taints",
        "ObjectMeta.managedFields",
        "PodStatus.nodeAllocatableResourceClaimStatuses",
        "PersistentVolumeClaim.apiVersion",
        "PersistentVolumeClaim.kind",
    }
)
_RARE, _OFTEN, _DEPTH = 0.12, 0.5, 4


def drawn(number: int) -> tuple[str, Object]:
    """Return the component and an object; the same ones for the same number."""
    rng = Random(number)
    versions = [(row, version) for row in rows().values() for version in row.versions]
    row, version = versions[number % len(versions)]
    obj = _component(rng, version.component, 0)
    api_version = f"{row.group}/{version.name}" if row.group else version.name
    obj |= {"apiVersion": api_version, "kind": row.kind}
    obj["metadata"] = {"name": "drawn"} | ({"labels": {"app": "x"}} if rng.random() < _OFTEN else {})
    return version.component, obj


def _component(rng: Random, name: str, depth: int) -> Any:
    short = name.rpartition(".")[2]
    if short in _TYPES:
        return rng.choice(_TYPES[short])
    source = components()[name]
    found: Object = {}
    for field, schema in source.get("properties", {}).items():
        mark = f"{short}.{field}"
        is_shown = schema.get("default") == {} and field not in ("metadata", "status")
        is_certain = field in source.get("required", ()) or is_shown or (depth == 0 and field != "status")
        chance = 1.0 if is_certain else _OFTEN if mark in _CHOICES or depth < 2 else _RARE
        if depth > _DEPTH and not is_certain:
            chance = 0.02
        if mark not in _LEFT_OUT and rng.random() < chance:
            choices = _CHOICES.get(mark) or _CHOICES.get(field)
            found[field] = rng.choice(choices) if choices and "$ref" not in schema else _value(rng, schema, depth + 1)
    return found


def _value(rng: Random, schema: Object, depth: int) -> Any:
    reference = schema.get("$ref") or next((each["$ref"] for each in schema.get("allOf", ())), None)
    if reference:
        return _component(rng, reference.removeprefix(REF_PREFIX), depth)
    match schema.get("type"):
        case "array":
            return [_value(rng, schema["items"], depth) for _ in range(rng.choice((1, 1, 2)))]
        case "object":
            values = schema.get("additionalProperties")
            return {"key": _value(rng, values, depth)} if values else {}
        case "integer":
            return rng.randint(1, 90)
        case "number":
            return 1.5
        case "boolean":
            return True
    return "YWJj" if schema.get("format") == "byte" else rng.choice(("abc", "x1"))
