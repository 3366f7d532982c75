"""HorizontalPodAutoscalers, in the form of version 2: one of version 1 is checked as what it becomes."""

from __future__ import annotations

from atoll.machinery.kinds.checks import items, mapping, objects, text
from atoll.machinery.kinds.kubernetes.autoscaling import V2, convert
from atoll.machinery.kinds.kubernetes.validation.resources import container_resource_name
from atoll.machinery.kinds.kubernetes.validation.rules import (
    NEGATIVE,
    Errors,
    amount_of,
    integer,
    label,
    matches,
    not_empty,
    not_negative,
    one_of,
    positive,
    quantity_text,
)
from atoll.machinery.meta.labels import path_segment_errors
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import forbidden, invalid, not_supported, required

_LONGEST_WINDOW_S, _LONGEST_PERIOD_S = 3600, 1800
#: The field of each type of metric.
_SOURCES = {
    "Object": "object",
    "External": "external",
    "Pods": "pods",
    "Resource": "resource",
    "ContainerResource": "containerResource",
}
_TARGET_TYPES = ("Utilization", "Value", "AverageValue")


def validate(obj: Object) -> list[FieldError]:
    """Check a new autoscaler."""
    return list(_spec(mapping(convert(obj, V2), "spec")))


def validate_update(obj: Object, old: Object) -> list[FieldError]:
    """Check one that replaces another; one that scaled to zero may."""
    least = 0 if mapping(old, "spec").get("minReplicas") == 0 else 1
    target, before = (mapping(each, "spec", "scaleTargetRef") for each in (obj, old))
    is_same = all(text(target, name) == text(before, name) for name in ("apiVersion", "kind"))
    return list(_spec(mapping(convert(obj, V2), "spec"), least=least, any_target=is_same))


def validate_status(obj: Object, old: Object) -> list[FieldError]:
    """Check the counts in a status."""
    return list(not_negative(mapping(obj, "status"), "status", "currentReplicas", "desiredReplicas"))


def _spec(spec: Object, *, least: int = 1, any_target: bool = False) -> Errors:
    fewest, most = integer(spec.get("minReplicas")), integer(spec.get("maxReplicas"))
    if fewest is not None and fewest < least:
        yield invalid("spec.minReplicas", fewest, f"must be greater than or equal to {least}")
    if most == 0:
        yield required("spec.maxReplicas", "must be set and greater than 0")
    elif most is not None and most < 0:
        yield invalid("spec.maxReplicas", most, "must be greater than or equal to 1")
    if fewest is not None and most is not None and most < fewest:
        yield invalid("spec.maxReplicas", most, "must be greater than or equal to `minReplicas`")
    target = mapping(spec, "scaleTargetRef")
    # Of the kinds that scale one only is in the group without a name.
    of_core = text(target, "kind") == "ReplicationController"
    yield from _reference(target, "spec.scaleTargetRef", any_version=any_target, any_group=of_core)
    yield from _metrics(spec, fewest)
    for name in ("scaleUp", "scaleDown"):
        rules = mapping(spec, "behavior").get(name)
        if isinstance(rules, dict):
            yield from _rules(rules, f"spec.behavior.{name}")


def _reference(reference: Object, at: str, *, any_version: bool = False, any_group: bool = True) -> Errors:
    for name in ("kind", "name"):
        yield from not_empty(reference, at, name)
        yield from matches(reference, at, name, path_segment_errors)
    if not any_version:
        yield from _version(reference, at, any_group=any_group)


def _version(reference: Object, at: str, *, any_group: bool) -> Errors:
    version = text(reference, "apiVersion")
    if version.count("/") > 1:
        yield invalid(f"{at}.apiVersion", version, f"unexpected GroupVersion string: {version}")
    elif not any_group and not version.rpartition("/")[0]:
        yield invalid(f"{at}.apiVersion", version, "apiVersion must specify API group")


def _metrics(spec: Object, fewest: int | None) -> Errors:
    metrics = objects(spec, "metrics")
    for index, metric in metrics:
        yield from _metric(metric, f"spec.metrics[{index}]")
    if fewest == 0 and not any(text(metric, "type") in ("Object", "External") for _, metric in metrics):
        detail = "must specify at least one Object or External metric to support scaling to zero replicas"
        yield forbidden("spec.metrics", detail)


def _metric(metric: Object, at: str) -> Errors:
    kind = text(metric, "type")
    if not kind:
        if "type" in metric:
            yield required(f"{at}.type", "must specify a metric source type")
            yield not_supported(f"{at}.type", kind, sorted(_SOURCES))
    elif kind not in _SOURCES:
        yield not_supported(f"{at}.type", kind, sorted(_SOURCES))
    found = [name for name in _SOURCES.values() if metric.get(name) is not None]
    if found:
        yield from _source(found[0], mapping(metric, found[0]), f"{at}.{found[0]}")
    expected = _SOURCES.get(kind)
    if expected and metric.get(expected) is None:
        yield required(f"{at}.{expected}", "must populate information for the given metric source")
    if len(found) != 1:
        for name in found:
            if name != expected:
                yield forbidden(f"{at}.{name}", "must populate the given metric source only")


def _source(kind: str, source: Object, at: str) -> Errors:
    target = mapping(source, "target")
    if kind == "object":
        yield from _reference(mapping(source, "describedObject"), f"{at}.describedObject")
    if kind in ("object", "external", "pods"):
        metric = mapping(source, "metric")
        if metric.get("name") == "":
            yield required(f"{at}.metric.name", "must specify a metric name")
        yield from matches(metric, f"{at}.metric", "name", path_segment_errors)
    else:
        if source.get("name") == "":
            yield required(f"{at}.name", "must specify a resource name")
        elif kind == "containerResource" and isinstance(source.get("name"), str):
            yield from container_resource_name(source["name"], f"{at}.name")
        if kind == "containerResource":
            if source.get("container") == "":
                yield required(f"{at}.container", "must specify a container")
            yield from label(source, at, "container")
    yield from _target(target, f"{at}.target")
    yield from _target_values(kind, target, f"{at}.target")


def _target_values(kind: str, target: Object, at: str) -> Errors:
    value, average, share = (target.get(name) is not None for name in ("value", "averageValue", "averageUtilization"))
    if kind == "object" and not value and not average:
        yield required(f"{at}.averageValue", "must set either a target value or averageValue")
    elif kind == "external":
        if not value and not average:
            yield required(f"{at}.averageValue", "must set either a target value for metric or a per-pod target")
        if value and average:
            yield forbidden(f"{at}.value", "may not set both a target value for metric and a per-pod target")
    elif kind == "pods" and not average:
        yield required(f"{at}.averageValue", "must specify a positive target averageValue")
    elif kind in ("resource", "containerResource"):
        if not share and not average:
            detail = "must set either a target raw value or a target utilization"
            yield required(f"{at}.averageUtilization", detail)
        if share and average:
            detail = "may not set both a target raw value and a target utilization"
            yield forbidden(f"{at}.averageValue", detail)


def _target(target: Object, at: str) -> Errors:
    kind, share = target.get("type"), integer(target.get("averageUtilization"))
    if kind == "":
        yield required(f"{at}.type", "must specify a metric target type")
    if isinstance(kind, str) and kind not in _TARGET_TYPES:
        yield invalid(f"{at}.type", kind, "must be either Utilization, Value, or AverageValue")
    for name in ("value", "averageValue"):
        number = amount_of(target.get(name))
        if number is not None and number <= 0:
            yield invalid(f"{at}.{name}", quantity_text(target[name]), "must be positive")
    if share is not None and share < 1:
        yield invalid(f"{at}.averageUtilization", share, "must be greater than 0")


def _rules(rules: Object, at: str) -> Errors:
    window, tolerance = integer(rules.get("stabilizationWindowSeconds")), amount_of(rules.get("tolerance"))
    if window is not None and window < 0:
        yield invalid(f"{at}.stabilizationWindowSeconds", window, "must be greater than or equal to zero")
    if window is not None and window > _LONGEST_WINDOW_S:
        detail = f"must be less than or equal to {_LONGEST_WINDOW_S}"
        yield invalid(f"{at}.stabilizationWindowSeconds", window, detail)
    yield from one_of(rules, at, "selectPolicy", ("Disabled", "Max", "Min"))
    if not items(rules, "policies"):
        yield required(f"{at}.policies", "must specify at least one Policy")
    for index, policy in objects(rules, "policies"):
        field, period = f"{at}.policies[{index}]", integer(policy.get("periodSeconds"))
        yield from one_of(policy, field, "type", ("Percent", "Pods"))
        yield from positive(policy, field, "value", "periodSeconds")
        if period is not None and period > _LONGEST_PERIOD_S:
            detail = f"must be less than or equal to {_LONGEST_PERIOD_S}"
            yield invalid(f"{field}.periodSeconds", period, detail)
    if tolerance is not None and tolerance < 0:
        yield invalid(f"{at}.tolerance", quantity_text(rules["tolerance"]), NEGATIVE)
