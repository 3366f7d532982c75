"""HorizontalPodAutoscalers of version 1, stored in the form of version 2, converted both ways without loss.

Version 1 has a target of processor time alone; as in Kubernetes, what else an object holds stands in annotations, the
metrics in an older form, and clients may write them. Invariant: an object of version 2 survives version 1, with its
processor target as the last of its metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from atoll.machinery.kinds.checks import ensure, mapping, objects, text
from atoll.machinery.meta.objects import Object, encode_json

V1, V2 = "autoscaling/v1", "autoscaling/v2"
_PREFIX = "autoscaling.alpha.kubernetes.io/"
_METRICS, _CURRENT = _PREFIX + "metrics", _PREFIX + "current-metrics"
_BEHAVIOR, _CONDITIONS = _PREFIX + "behavior", _PREFIX + "conditions"
_NOTES = (_METRICS, _CURRENT, _BEHAVIOR, _CONDITIONS, _PREFIX + "scale-down-tolerance", _PREFIX + "scale-up-tolerance")
_TARGET, _USED = "targetCPUUtilizationPercentage", "currentCPUUtilizationPercentage"
_DEFAULT_PERCENT = 80


def convert(obj: Object, api_version: str) -> Object:
    """Return an autoscaler in another version; the same object if it has that version."""
    if obj.get("apiVersion") == api_version:
        return obj
    return to_v1(obj) if api_version == V1 else to_v2(obj)


def to_v1(obj: Object) -> Object:
    """Return an autoscaler of version 2 in version 1."""
    spec, status = dict(mapping(obj, "spec")), dict(mapping(obj, "status"))
    metrics, current = _taken(spec, "metrics"), _taken(status, "currentMetrics")
    notes: dict[str, Any] = {}
    first = next((each for each in metrics if _is_processor_percent(each)), None)
    if first is not None:
        spec[_TARGET] = first["resource"]["target"]["averageUtilization"]
    if others := [_old_metric(each, _SOURCES) for each in metrics if not _is_processor_percent(each)]:
        notes[_METRICS] = others
    for each in current:
        used = mapping(each, "resource", "current").get("averageUtilization")
        if text(each, "type") == "Resource" and text(each, "resource", "name") == "cpu" and used is not None:
            status[_USED] = used
    if current:
        notes[_CURRENT] = [_old_metric(each, _STATUSES) for each in current]
    behavior = spec.pop("behavior", None)
    if isinstance(behavior, dict):
        notes[_BEHAVIOR] = _capitalized(behavior)
    if conditions := _taken(status, "conditions"):
        notes[_CONDITIONS] = conditions
    found = _with(obj, V1, spec, status)
    if notes:
        annotations = ensure(found["metadata"], "annotations")
        annotations.update({key: encode_json(value).decode() for key, value in notes.items()})
    return found


def to_v2(obj: Object) -> Object:
    """Return an autoscaler of version 1 in version 2."""
    notes = mapping(obj, "metadata", "annotations")
    spec, status = dict(mapping(obj, "spec")), dict(mapping(obj, "status"))
    percent, used = spec.pop(_TARGET, None), status.pop(_USED, None)
    metrics = [_new_metric(each, _SOURCES) for each in _read(notes, _METRICS, list)]
    if percent is not None or not metrics:
        metrics.append(_processor_percent(_DEFAULT_PERCENT if percent is None else percent))
    if "spec" in obj:
        spec["metrics"] = metrics
    if behavior := _read(notes, _BEHAVIOR, dict):
        spec["behavior"] = _uncapitalized(behavior)
    if current := _read(notes, _CURRENT, list):
        status["currentMetrics"] = [_new_metric(each, _STATUSES) for each in current]
    elif used is not None:
        status["currentMetrics"] = [
            {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": used}}}
        ]
    if conditions := _read(notes, _CONDITIONS, list):
        status["conditions"] = conditions
    return _with(obj, V2, spec, status)


def _with(obj: Object, api_version: str, spec: Object, status: Object) -> Object:
    """Return a copy with spec and status, where it had or now has them, and without the annotations of version 1."""
    metadata = dict(mapping(obj, "metadata"))
    if isinstance(annotations := metadata.get("annotations"), dict):
        metadata["annotations"] = {key: value for key, value in annotations.items() if key not in _NOTES}
        if not metadata["annotations"]:
            del metadata["annotations"]
    found = {**obj, "apiVersion": api_version, "metadata": metadata}
    found.update({name: part for name, part in (("spec", spec), ("status", status)) if part or name in obj})
    return found


def _taken(part: Object, field: str) -> list[Object]:
    found = [each for _, each in objects(part, field)]
    part.pop(field, None)
    return found


def _read(notes: Object, key: str, type: Callable[[], Any]) -> Any:
    """Return the value of an annotation; an empty one if it is not of this type."""
    try:
        value = msgspec.json.decode(text(notes, key))
    except (msgspec.DecodeError, RecursionError):
        return type()
    if type is list:
        return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
    return value if isinstance(value, dict) else {}


def _is_processor_percent(metric: Object) -> bool:
    resource = mapping(metric, "resource")
    percent = mapping(resource, "target").get("averageUtilization")
    return text(metric, "type") == "Resource" and text(resource, "name") == "cpu" and percent is not None


def _processor_percent(percent: object) -> Object:
    target = {"type": "Utilization", "averageUtilization": percent}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


# --- behaviour: Go wrote the names of its own fields -------------------------------------------------------


def _capitalized(value: Any) -> Any:
    return _renamed(value, lambda name: name[:1].upper() + name[1:])


def _uncapitalized(value: Any) -> Any:
    return _renamed(value, lambda name: name[:1].lower() + name[1:])


def _renamed(value: Any, rename: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {rename(name): _renamed(each, rename) for name, each in value.items() if each is not None}
    return [_renamed(each, rename) for each in value] if isinstance(value, list) else value


# --- metrics: version 1 has names and values side by side --------------------------------------------------

#: By type of metric: path in version 2 -> field in version 1. Below a source and below a status.
_Fields = Mapping[str, Mapping[tuple[str, ...], str]]
_METRIC: Mapping[tuple[str, ...], str] = {("metric", "name"): "metricName"}
_SOURCES: _Fields = {
    "object": {
        **_METRIC,
        ("describedObject",): "target",
        ("metric", "selector"): "selector",
        ("target", "value"): "targetValue",
        ("target", "averageValue"): "averageValue",
    },
    "pods": {**_METRIC, ("metric", "selector"): "selector", ("target", "averageValue"): "targetAverageValue"},
    "resource": {
        ("name",): "name",
        ("target", "averageUtilization"): "targetAverageUtilization",
        ("target", "averageValue"): "targetAverageValue",
    },
    "containerResource": {
        ("name",): "name",
        ("container",): "container",
        ("target", "averageUtilization"): "targetAverageUtilization",
        ("target", "averageValue"): "targetAverageValue",
    },
    "external": {
        **_METRIC,
        ("metric", "selector"): "metricSelector",
        ("target", "value"): "targetValue",
        ("target", "averageValue"): "targetAverageValue",
    },
}
_STATUSES: _Fields = {
    "object": {
        **_METRIC,
        ("describedObject",): "target",
        ("metric", "selector"): "selector",
        ("current", "value"): "currentValue",
        ("current", "averageValue"): "averageValue",
    },
    "pods": {**_METRIC, ("metric", "selector"): "selector", ("current", "averageValue"): "currentAverageValue"},
    "resource": {
        ("name",): "name",
        ("current", "averageUtilization"): "currentAverageUtilization",
        ("current", "averageValue"): "currentAverageValue",
    },
    "containerResource": {
        ("name",): "name",
        ("container",): "container",
        ("current", "averageUtilization"): "currentAverageUtilization",
        ("current", "averageValue"): "currentAverageValue",
    },
    "external": {
        **_METRIC,
        ("metric", "selector"): "metricSelector",
        ("current", "value"): "currentValue",
        ("current", "averageValue"): "currentAverageValue",
    },
}
#: Types of targets by the field that is set, the first that applies; version 1 has no type.
_TYPES = {"averageUtilization": "Utilization", "averageValue": "AverageValue", "value": "Value"}


def _old_metric(metric: Object, fields: _Fields) -> Object:
    found: Object = {"type": text(metric, "type")}
    for source, names in fields.items():
        if isinstance(metric.get(source), dict):
            found[source] = {}
            for path, name in names.items():
                *parents, leaf = path
                if (value := mapping(metric[source], *parents).get(leaf)) is not None:
                    found[source][name] = value
    return found


def _new_metric(metric: Object, fields: _Fields) -> Object:
    found: Object = {"type": text(metric, "type")}
    for source, names in fields.items():
        if isinstance(metric.get(source), dict):
            found[source] = _new_source(metric[source], names)
    return found


def _new_source(old: Object, names: Mapping[tuple[str, ...], str]) -> Object:
    made: Object = {}
    for path, name in names.items():
        # Go wrote a zero quantity where only the average counts.
        if (value := old.get(name)) is None or (path == ("target", "value") and _is_average(old)):
            continue
        holder = made
        for parent in path[:-1]:
            holder = holder.setdefault(parent, {})
        holder[path[-1]] = value
    if "target" in made:
        made["target"]["type"] = next(type for field, type in _TYPES.items() if field in made["target"])
    return made


def _is_average(old: Object) -> bool:
    return old.get("averageValue") is not None and old.get("targetValue") in (None, "0", 0)
