"""HorizontalPodAutoscalers of version 1, stored in the form of version 2, converted both ways without loss.

Version 1 has a target of processor time alone; as in Kubernetes, what else an object holds stands in annotations, the
metrics in an older form, and clients may write them. Invariant: an object of version 2 survives version 1, with its
processor target as the last of its metrics.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import msgspec

from atoll.machinery.kinds.checks import ensure, mapping, objects, text
from atoll.machinery.kinds.kubernetes.autoscaling_metrics import SOURCES, STATUSES, new_metrics, old_metric
from atoll.machinery.kinds.kubernetes.schemas import KubernetesSchema
from atoll.machinery.meta.objects import Object, encode_json

V1, V2 = "autoscaling/v1", "autoscaling/v2"
_PREFIX = "autoscaling.alpha.kubernetes.io/"
_METRICS, _CURRENT = _PREFIX + "metrics", _PREFIX + "current-metrics"
_BEHAVIOR, _CONDITIONS = _PREFIX + "behavior", _PREFIX + "conditions"
_NOTES = (_METRICS, _CURRENT, _BEHAVIOR, _CONDITIONS, _PREFIX + "scale-down-tolerance", _PREFIX + "scale-up-tolerance")
_TARGET, _USED = "targetCPUUtilizationPercentage", "currentCPUUtilizationPercentage"
_DEFAULT_PERCENT = 80
#: Version 1 shows a zero of it.
_REPLICAS = "currentReplicas"


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
    if others := [old_metric(each, SOURCES) for each in metrics if not _is_processor_percent(each)]:
        notes[_METRICS] = others
    for each in current:
        used = mapping(each, "resource", "current").get("averageUtilization")
        if text(each, "type") == "Resource" and text(each, "resource", "name") == "cpu" and used is not None:
            status[_USED] = used
    if current:
        notes[_CURRENT] = [old_metric(each, STATUSES) for each in current]
    behavior = spec.pop("behavior", None)
    if isinstance(behavior, dict):
        notes[_BEHAVIOR] = _capitalized(behavior)
    if conditions := _taken(status, "conditions"):
        notes[_CONDITIONS] = conditions
    if status or "status" in obj:
        status.setdefault(_REPLICAS, 0)
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
    if status.get(_REPLICAS) == 0:
        del status[_REPLICAS]
    metrics = _noted(notes, _METRICS, ("spec", "metrics"), partial(new_metrics, fields=SOURCES)) or []
    if percent is not None or not metrics:
        metrics.append(_processor_percent(_DEFAULT_PERCENT if percent is None else percent))
    if "spec" in obj:
        spec["metrics"] = metrics
    if behavior := _noted(notes, _BEHAVIOR, ("spec", "behavior"), _uncapitalized):
        spec["behavior"] = behavior
    current = _noted(notes, _CURRENT, ("status", "currentMetrics"), partial(new_metrics, fields=STATUSES))
    if current is None and used is not None:
        current = [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": used}}}]
    if current is not None:
        status["currentMetrics"] = current
    if conditions := _noted(notes, _CONDITIONS, ("status", "conditions"), _as_it_is):
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


@cache
def _schema() -> KubernetesSchema:
    return KubernetesSchema("io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler")


def _noted(notes: Object, key: str, place: tuple[str, str], made: Callable[[Any], Any]) -> Any:
    """Return what an annotation holds for a field of version 2, with its defaults; None where a type is another."""
    try:
        value = made(msgspec.json.decode(text(notes, key)))
    except (msgspec.DecodeError, RecursionError):
        return None
    section, field = place
    found: Object = {"apiVersion": V2, "kind": "HorizontalPodAutoscaler", "metadata": {}, section: {field: value}}
    schema = _schema()
    schema.prune(found)
    if schema.validate(found):
        return None
    if value not in ([], {}):
        schema.default(found)
    return found[section].get(field)


def _as_it_is(value: Any) -> Any:
    return value


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
