"""Updates of `ephemeralcontainers` and `resize` of pods."""

from __future__ import annotations

from decimal import Decimal

from atoll.machinery.kinds.checks import items, mapping, objects, text
from atoll.machinery.kinds.kubernetes.validation.annotations import MIRROR
from atoll.machinery.kinds.kubernetes.validation.pods import annotation_changes, passed_of, pod_errors
from atoll.machinery.kinds.kubernetes.validation.rules import NO_PATH, Errors, amount_of, annotations_of, same
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import forbidden, invalid

_COMPUTE = ("cpu", "memory")
_ONLY_COMPUTE = "only cpu and memory resources are mutable"
_KINDS = ("containers", "initContainers")


def validate_ephemeral(obj: Object, old: Object) -> list[FieldError]:
    """Check an update that adds ephemeral containers."""
    if MIRROR in annotations_of(old):
        return [forbidden(NO_PATH, "static pods do not support ephemeral containers")]
    errors = [*pod_errors(obj, passed_of(old)), *annotation_changes(annotations_of(obj), annotations_of(old))]
    now = {text(each, "name"): each for _, each in objects(obj, "spec", "ephemeralContainers")}
    for _, container in objects(old, "spec", "ephemeralContainers"):
        name, field = text(container, "name"), "spec.ephemeralContainers"
        if name not in now:
            errors.append(forbidden(field, f'existing ephemeral containers "{name}" may not be removed\n'))
        elif not same(now[name], container):
            errors.append(forbidden(field, f'existing ephemeral containers "{name}" may not be changed\n'))
    return errors


def validate_resize(obj: Object, old: Object) -> list[FieldError]:
    """Check an update of the cpu and memory of containers."""
    spec, before = mapping(obj, "spec"), mapping(old, "spec")
    if MIRROR in annotations_of(old):
        return [forbidden(NO_PATH, "static pods cannot be resized")]
    if text(before, "os", "name") == "windows":
        return [forbidden(NO_PATH, "windows pods cannot be resized")]
    errors = list(pod_errors(obj, passed_of(old)))
    if (text(old, "status", "qosClass") or qos_class(before)) != qos_class(spec):
        shown = mapping(obj, "status").get("qosClass", "")
        errors.append(invalid("spec", shown, "Pod QOS Class may not change as a result of resizing"))
    statuses = [each for _, each in objects(old, "status", "containerStatuses")]
    running = [each for each in statuses if mapping(each, "state").get("running") is not None]
    if running and running[0].get("resources") is None:
        errors.append(forbidden("spec", "Pod running on node without support for resize"))
    if items(old, "status", "nodeAllocatableResourceClaimStatuses"):
        errors.append(forbidden("spec", "pods with node allocatable resource claims cannot be resized"))
    errors += _pod_level(spec, before)
    if order := list(_order(spec, before)):
        return errors + order
    errors += _removed(spec, before)
    errors += _other_changes(spec, before)
    if not errors and not same(_without_compute(spec, before), before):
        errors.append(forbidden("spec", _ONLY_COMPUTE))
    return errors


def _order(spec: Object, before: Object) -> Errors:
    for kind in _KINDS:
        now, old = items(spec, kind), items(before, kind)
        if len(now) != len(old):
            yield forbidden(f"spec.{kind}", f"{kind} may not be added or removed on resize")
            continue
        for index, (one, other) in enumerate(zip(now, old, strict=True)):
            if text(one, "name") != text(other, "name"):
                detail = f"{kind} may not be renamed or reordered on resize"
                yield forbidden(f"spec.{kind}[{index}].name", detail)


def _lost(resources: Object, before: Object, at: str, what: str) -> Errors:
    for kind, noun in (("requests", "requests"), ("limits", "limits")):
        if mapping(before, kind).keys() - mapping(resources, kind).keys():
            yield forbidden(f"{at}.{kind}", f"{what} {noun} cannot be removed")


def _removed(spec: Object, before: Object) -> Errors:
    for kind in ("initContainers", "containers"):
        for index, (one, other) in enumerate(zip(items(spec, kind), items(before, kind), strict=True)):
            at = f"spec.{kind}[{index}].resources"
            yield from _lost(mapping(one, "resources"), mapping(other, "resources"), at, "resource")


def _pod_level(spec: Object, before: Object) -> Errors:
    if not isinstance(before.get("resources"), dict):
        return
    if spec.get("resources") is None:
        yield forbidden("spec.resources", "pod-level resources cannot be removed")
        return
    resources = mapping(spec, "resources")
    for kind in ("requests", "limits"):
        if mapping(before, "resources", kind).keys() - mapping(resources, kind).keys():
            noun = kind.removesuffix("s")
            yield forbidden(f"spec.resources.{kind}", f"pod-level resource {noun}s cannot be removed")


def _with_old_compute(resources: Object, before: Object) -> Object:
    """Return requests and limits whose cpu and memory are the old ones, without claims, which Kubernetes loses here."""
    found: Object = {}
    for kind in ("requests", "limits"):
        kept = {name: value for name, value in mapping(resources, kind).items() if name not in _COMPUTE}
        old = mapping(before, kind)
        found[kind] = kept | {name: old[name] for name in _COMPUTE if name in old}
    return found


def _restored(container: object, before: object) -> Object:
    resources = _with_old_compute(mapping(container, "resources"), mapping(before, "resources"))
    return {**mapping(container), "resources": resources}


def _other_changes(spec: Object, before: Object) -> Errors:
    for one, other in zip(items(spec, "containers"), items(before, "containers"), strict=True):
        if not same(_restored(one, other), other):
            yield forbidden("spec", _ONLY_COMPUTE)
    pairs = zip(items(spec, "initContainers"), items(before, "initContainers"), strict=True)
    for index, (one, other) in enumerate(pairs):
        field = f"spec.initContainers[{index}]"
        if not same(_restored(one, other), other):
            yield forbidden(field, "only cpu and memory resources for init or sidecar containers are mutable")
        policies = [text(each, "restartPolicy") for _, each in objects(one, "resizePolicy")]
        if text(one, "restartPolicy") != "Always" and "RestartContainer" in policies and not same(one, other):
            detail = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized"
            yield forbidden(field, detail)


def _without_compute(spec: Object, before: Object) -> Object:
    found = dict(spec)
    for kind in _KINDS:
        pairs = zip(items(spec, kind), items(before, kind), strict=True)
        found[kind] = [_restored(one, other) for one, other in pairs]
    if isinstance(spec.get("resources"), dict):
        found["resources"] = _with_old_compute(spec["resources"], mapping(before, "resources")) or None
    return found


def qos_class(spec: Object) -> str:
    """Return how a node treats a pod when resources are scarce."""
    whole = mapping(spec, "resources")
    parts = [each for kind in _KINDS for _, each in objects(spec, kind)]
    resources = (
        [whole] if whole.get("requests") or whole.get("limits") else [mapping(each, "resources") for each in parts]
    )
    totals: dict[str, dict[str, Decimal]] = {"requests": {}, "limits": {}}
    is_bounded = True
    for each in resources:
        for kind, sums in totals.items():
            amounts = {name: amount_of(mapping(each, kind).get(name)) or Decimal(0) for name in _COMPUTE}
            for name, value in amounts.items():
                if value > 0:
                    sums[name] = sums.get(name, Decimal(0)) + value
            is_bounded = is_bounded and (kind == "requests" or all(value > 0 for value in amounts.values()))
    if not any(totals.values()):
        return "BestEffort"
    return "Guaranteed" if is_bounded and totals["requests"] == totals["limits"] else "Burstable"
