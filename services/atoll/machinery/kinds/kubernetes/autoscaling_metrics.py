"""Metrics of HorizontalPodAutoscalers: version 1 has names and values side by side, in annotations.

`autoscaling` converts autoscalers with them. Invariant: what version 2 says comes back as it was; of what clients wrote
into an annotation, values of other types stay, for the schema to refuse.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from atoll.machinery.kinds.checks import mapping, text
from atoll.machinery.meta.objects import Object

#: By type of metric: path in version 2 -> field in version 1. Below a source and below a status.
Fields = Mapping[str, Mapping[tuple[str, ...], str]]
_METRIC: Mapping[tuple[str, ...], str] = {("metric", "name"): "metricName"}
SOURCES: Fields = {
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
STATUSES: Fields = {
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
#: Quantities that Go shows as zero where they are absent.
_NEVER_LEFT_OUT = frozenset(
    {
        ("object", "targetValue"),
        ("object", "currentValue"),
        ("pods", "targetAverageValue"),
        ("pods", "currentAverageValue"),
        ("resource", "currentAverageValue"),
        ("containerResource", "currentAverageValue"),
        ("external", "currentValue"),
    }
)


def old_metric(metric: Object, fields: Fields) -> Object:
    """Return a metric of version 2 as version 1 has it."""
    found: Object = {"type": text(metric, "type")}
    for source, names in fields.items():
        if isinstance(metric.get(source), dict):
            found[source] = {}
            for path, name in names.items():
                *parents, leaf = path
                if (value := _written(source, name, mapping(metric[source], *parents).get(leaf))) is not None:
                    found[source][name] = value
    return found


def new_metrics(metrics: Any, fields: Fields) -> Any:
    """Return the metrics of an annotation as version 2 has them."""
    if not isinstance(metrics, list):
        return [] if metrics is None else metrics
    return [_new_metric(each, fields) if isinstance(each, dict) else each for each in metrics]


def _new_metric(metric: Object, fields: Fields) -> Object:
    found: Object = {"type": metric.get("type", "")}
    for source, names in fields.items():
        old = metric.get(source)
        if old is not None:
            found[source] = _new_source(source, old, names) if isinstance(old, dict) else old
    return found


def _new_source(source: str, old: Object, names: Mapping[tuple[str, ...], str]) -> Object:
    made: Object = {}
    for path, name in names.items():
        value = _written(source, name, old.get(name))
        # Go wrote a zero quantity where only the average counts.
        if value is None or (path == ("target", "value") and _is_average(old)):
            continue
        holder = made
        for parent in path[:-1]:
            holder = holder.setdefault(parent, {})
        holder[path[-1]] = value
    if names is not STATUSES[source]:
        target = made.setdefault("target", {})
        absent = "Value" if source == "external" else "AverageValue"
        target["type"] = next((type for field, type in _TYPES.items() if field in target), absent)
    return made


def _written(source: str, name: str, value: Any) -> Any:
    return "0" if value is None and (source, name) in _NEVER_LEFT_OUT else value


def _is_average(old: Object) -> bool:
    return old.get("averageValue") is not None and old.get("targetValue") in (None, "0", 0)
