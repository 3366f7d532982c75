"""PodDisruptionBudgets, PriorityClasses, RuntimeClasses and LimitRanges: what bounds and ranks pods."""

from __future__ import annotations

from decimal import Decimal

from atoll.machinery.kinds.checks import mapping, objects, text
from atoll.machinery.kinds.kubernetes.validation.resources import (
    container_resource_name,
    may_overcommit,
    requirements,
    resource_name,
)
from atoll.machinery.kinds.kubernetes.validation.rules import (
    Errors,
    amount_of,
    at_most_all,
    integer,
    label_map,
    not_negative,
    number_or_percent,
    one_of,
    quantity_text,
    unchanged,
)
from atoll.machinery.kinds.kubernetes.validation.scheduling import selector, tolerations
from atoll.machinery.meta.labels import dns_label_errors, label_key_errors
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import duplicate, forbidden, invalid, required

_HIGHEST_PRIORITY = 1_000_000_000
_SYSTEM_PRIORITIES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
_LIMIT_TYPES = ("Container", "PersistentVolumeClaim", "Pod")
_PREEMPTION = ("PreemptLowerPriority", "Never")


def validate_budget(obj: Object) -> list[FieldError]:
    """Check a new PodDisruptionBudget."""
    return list(_budget(mapping(obj, "spec")))


def validate_budget_update(obj: Object, old: Object) -> list[FieldError]:
    """Check one that replaces another."""
    any_values = bool(selector(mapping(old, "spec").get("selector"), ""))
    return list(_budget(mapping(obj, "spec"), any_values=any_values))


def validate_budget_status(obj: Object, old: Object) -> list[FieldError]:
    """Check the counts in a status."""
    names = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
    return list(not_negative(mapping(obj, "status"), "status", *names))


def _budget(spec: Object, *, any_values: bool = False) -> Errors:
    names = ("minAvailable", "maxUnavailable")
    if all(spec.get(name) is not None for name in names):
        yield invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set")
    for name in names:
        yield from number_or_percent(spec.get(name), f"spec.{name}")
        yield from at_most_all(spec.get(name), f"spec.{name}")
    yield from selector(spec.get("selector"), "spec.selector", any_values=any_values)
    yield from one_of(spec, "spec", "unhealthyPodEvictionPolicy", ("AlwaysAllow", "IfHealthyBudget"))


def validate_priority(obj: Object) -> list[FieldError]:
    """Check a new PriorityClass."""
    name, value, errors = text(obj, "metadata", "name"), integer(obj.get("value")) or 0, list[FieldError]()
    if name.startswith("system-"):
        if problem := _system_problem(name, value, is_default=obj.get("globalDefault") is True):
            detail = f"priority class names with 'system-' prefix are reserved for system use only. error: {problem}"
            errors.append(forbidden("metadata.name", detail))
    elif value > _HIGHEST_PRIORITY:
        detail = f"maximum allowed value of a user defined priority is {_HIGHEST_PRIORITY}"
        errors.append(forbidden("value", detail))
    policy = obj.get("preemptionPolicy")
    if policy == "":
        errors.append(required("preemptionPolicy"))
    elif isinstance(policy, str):
        found = one_of(obj, "", "preemptionPolicy", _PREEMPTION)
        errors += [FieldError(each.type, "preemptionPolicy", each.detail) for each in found]
    return errors


def _system_problem(name: str, value: int, *, is_default: bool) -> str:
    expected = _SYSTEM_PRIORITIES.get(name)
    if expected is None:
        return f"{name} is not a known system priority class"
    if value != expected:
        return f"value of {name} PriorityClass must be {expected}"
    return f"globalDefault of {name} PriorityClass must be false" if is_default else ""


def validate_priority_update(obj: Object, old: Object) -> list[FieldError]:
    """Check that the rank of a PriorityClass stays."""
    errors = list(unchanged(obj, old, "", "preemptionPolicy"))
    if (integer(obj.get("value")) or 0) != (integer(old.get("value")) or 0):
        errors.insert(0, forbidden("value", "may not be changed in an update."))
    return errors


def validate_runtime(obj: Object) -> list[FieldError]:
    """Check a new RuntimeClass."""
    handler, errors = obj.get("handler"), list[FieldError]()
    if handler == "":
        errors.append(required("handler"))
    elif isinstance(handler, str):
        errors += [invalid("handler", handler, problem) for problem in dns_label_errors(handler)]
    overhead = mapping(obj, "overhead", "podFixed")
    errors += requirements({"limits": overhead} if overhead else {}, "overhead", ())
    scheduling = mapping(obj, "scheduling")
    errors += label_map(mapping(scheduling, "nodeSelector"), "scheduling.nodeSelector")
    found, seen = objects(scheduling, "tolerations"), set[tuple[str, ...]]()
    errors += tolerations(found, "scheduling.tolerations")
    for index, toleration in found:
        key = tuple(text(toleration, name) for name in ("key", "operator", "value", "effect"))
        if key in seen:
            errors.append(duplicate(f"scheduling.tolerations[{index}]", toleration))
        seen.add(key)
    return errors


def validate_runtime_update(obj: Object, old: Object) -> list[FieldError]:
    """Check that the handler of a RuntimeClass stays."""
    return list(unchanged(obj, old, "", "handler"))


def validate_limits(obj: Object) -> list[FieldError]:
    """Check a LimitRange."""
    errors, types = list[FieldError](), set[str]()
    for index, item in objects(obj, "spec", "limits"):
        field, kind = f"spec.limits[{index}]", text(item, "type")
        if "type" in item:
            errors += _limit_type(kind, f"{field}.type")
        if kind in types:
            errors.append(duplicate(f"{field}.type", kind))
        types.add(kind)
        errors += _limits(item, field, kind)
    return errors


def _limit_type(kind: str, field: str) -> Errors:
    problems = label_key_errors(kind)
    for problem in problems:
        yield invalid(field, kind, problem)
    if not problems and "/" not in kind and kind not in _LIMIT_TYPES:
        yield invalid(field, kind, "must be a standard limit type or fully qualified")


def _limits(item: Object, at: str, kind: str) -> Errors:
    names = ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"]
    if kind == "Pod":
        for name in ("default", "defaultRequest"):
            if mapping(item, name):
                yield forbidden(f"{at}.{name}", "may not be specified when `type` is 'Pod'")
            names.remove(name)
    check = container_resource_name if kind in ("Pod", "Container") else resource_name
    for name in names:
        for resource in mapping(item, name):
            yield from check(resource, f"{at}.{name}[{resource}]")
    if kind == "PersistentVolumeClaim" and not {"storage"} & {*mapping(item, "min"), *mapping(item, "max")}:
        detail = "either minimum or maximum storage value is required, but neither was provided"
        yield required(f"{at}.limits", detail)
    for resource in dict.fromkeys(resource for name in names for resource in mapping(item, name)):
        amounts = {name: amount_of(mapping(item, name).get(resource)) for name in names}
        yield from _limit_order(amounts, at, resource)
        yield from _limit_ratio(amounts, f"{at}.maxLimitRequestRatio[{resource}]")
        limit, request = amounts.get("default"), amounts.get("defaultRequest")
        if not may_overcommit(resource) and None not in (limit, request) and limit != request:
            detail = f"default value {limit} must equal to defaultRequest value {request} in {resource}"
            yield invalid(f"{at}.defaultRequest[{resource}]", quantity_text(str(request)), detail)


#: Amounts that may not be above others: the smaller and the larger one, the field of the error, and its text.
_ORDER = (
    ("min", "max", "min", "min value {} is greater than max value {}"),
    ("min", "defaultRequest", "defaultRequest", "min value {} is greater than default request value {}"),
    ("defaultRequest", "max", "defaultRequest", "default request value {} is greater than max value {}"),
    ("defaultRequest", "default", "defaultRequest", "default request value {} is greater than default limit value {}"),
    ("min", "default", "default", "min value {} is greater than default value {}"),
    ("default", "max", "default", "default value {} is greater than max value {}"),
)


def _limit_order(amounts: dict[str, Decimal | None], at: str, resource: str) -> Errors:
    for low, high, name, detail in _ORDER:
        smaller, larger = amounts.get(low), amounts.get(high)
        if smaller is not None and larger is not None and smaller > larger:
            texts = [quantity_text(str(each)) for each in (smaller, larger)]
            yield invalid(f"{at}.{name}[{resource}]", texts[0], detail.format(*texts))


def _limit_ratio(amounts: dict[str, Decimal | None], field: str) -> Errors:
    ratio, low, high = (amounts.get(name) for name in ("maxLimitRequestRatio", "min", "max"))
    if ratio is None:
        return
    if ratio < 1:
        yield invalid(field, quantity_text(str(ratio)), f"ratio {quantity_text(str(ratio))} is less than 1")
    if low and high is not None and ratio > high / low:
        detail = f"ratio {quantity_text(str(ratio))} is greater than max/min = {high / low:f}"
        yield invalid(field, quantity_text(str(ratio)), detail)
