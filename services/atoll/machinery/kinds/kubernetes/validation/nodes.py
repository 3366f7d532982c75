"""Nodes: taints, resources, ranges of addresses of pods, and what stays once it is set."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from atoll.machinery.kinds.checks import items, mapping, objects, strings, text
from atoll.machinery.kinds.kubernetes.validation.addresses import network_errors, parse_network
from atoll.machinery.kinds.kubernetes.validation.resources import amount_errors
from atoll.machinery.kinds.kubernetes.validation.rules import (
    Errors,
    annotations_of,
    label_key,
    one_of_required,
    positive,
)
from atoll.machinery.kinds.kubernetes.validation.scheduling import EFFECTS
from atoll.machinery.meta.labels import SUBDOMAIN_SIZE, label_value_errors
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import duplicate, forbidden, invalid, required

_PREFIX = "scheduler.alpha.kubernetes.io/"
_TAINTS, _AVOIDED = _PREFIX + "taints", _PREFIX + "preferAvoidPods"
_FEATURE = re.compile(r"[A-Z][a-zA-Z0-9]*(/[a-zA-Z][a-zA-Z0-9]*)*\Z")
_FEATURE_TEXT = "must start with an UpperCamelCase segment, with subsequent segments separated by '/'"
_ONE_OF_A_FAMILY = "may specify no more than one CIDR for each IP family"


def validate(obj: Object) -> list[FieldError]:
    """Check a new Node."""
    swap = mapping(obj, "status", "nodeInfo", "swap")
    # Kubernetes' errors have these names for taints and for swap.
    return [*_always(obj), *positive(swap, "metadata.nodeSwapStatus", "capacity"), *_ranges(pod_ranges(obj))]


def validate_update(obj: Object, old: Object) -> list[FieldError]:
    """Check a Node that replaces another."""
    return [*validate(obj), *validate_status(obj, old)]


def validate_status(obj: Object, old: Object) -> list[FieldError]:
    """Check what the kubelet writes, and what stays."""
    errors, seen = list(_always(obj)), set[tuple[str, str]]()
    for index, address in objects(obj, "status", "addresses"):
        key = text(address, "type"), text(address, "address")
        if key in seen:
            errors.append(duplicate(f"status.addresses[{index}]", address))
        seen.add(key)
    before = pod_ranges(old)
    if before and pod_ranges(obj) != before:
        errors.append(forbidden("spec.podCIDRs", 'node updates may not change podCIDR except from "" to valid'))
    if text(old, "spec", "providerID") not in ("", text(obj, "spec", "providerID")):
        errors.append(forbidden("spec.providerID", 'node updates may not change providerID except from "" to valid'))
    if text(obj, "spec", "externalID") != text(old, "spec", "externalID"):
        errors.append(forbidden("spec.externalID", "may not be updated"))
    return errors


def pod_ranges(obj: Object) -> list[str]:
    """Return the ranges of a Node, where the older field counts if both are set and differ."""
    single, ranges = text(obj, "spec", "podCIDR"), strings(obj, "spec", "podCIDRs")
    return [single] if single and single != (ranges or [""])[0] else ranges


def _always(obj: Object) -> Errors:
    yield from _annotations(annotations_of(obj))
    yield from _taints(objects(obj, "spec", "taints"), "metadata.taints")
    for part in ("capacity", "allocatable"):
        for name, value in mapping(obj, "status", part).items():
            yield from amount_errors(name, value, f"status.{part}.{name}")
    yield from _features(items(obj, "status", "declaredFeatures"))


def _taints(taints: list[tuple[int, Object]], field: str) -> Errors:
    seen = set[tuple[str, str]]()
    for index, taint in taints:
        at, key = f"{field}[{index}]", (text(taint, "key"), text(taint, "effect"))
        yield from label_key(f"{at}.key", text(taint, "key"))
        if problems := label_value_errors(text(taint, "value")):
            yield invalid(f"{at}.value", taint["value"], ";".join(problems))
        yield from one_of_required({"effect": key[1]}, at, "effect", EFFECTS)
        if key in seen:
            yield duplicate(at, taint)
        seen.add(key)


def _features(features: list[Any]) -> Errors:
    before = None
    for index, name in enumerate(features):
        field = f"status.declaredFeatures[{index}]"
        if not isinstance(name, str):
            continue
        if len(name.encode()) > SUBDOMAIN_SIZE or not _FEATURE.match(name):
            yield invalid(field, name, f"invalid feature name: {_FEATURE_TEXT}")
        if name == before:
            yield duplicate(field, name)
        elif before is not None and before > name:
            yield invalid(field, name, "list must be sorted alphabetically")
        before = name


def _ranges(ranges: list[str]) -> Errors:
    for index, value in enumerate(ranges):
        yield from network_errors(value, f"spec.podCIDRs[{index}]")
    if len(ranges) > 1:
        found = [parse_network(value) for value in ranges]
        if None in found:
            detail = "Internal error: invalid PodCIDRs. failed to check with dual stack"
            yield FieldError("InternalError", "spec.podCIDRs", detail)
        if len(ranges) > 2 or {each.version for each in found if each is not None} != {4, 6}:
            yield invalid("spec.podCIDRs", ranges, _ONE_OF_A_FAMILY)


def _annotations(annotations: Object) -> Errors:
    """Check the annotations that stood for fields."""
    if source := text(annotations, _TAINTS):
        taints = _read(source)
        if not isinstance(taints, list):
            yield invalid("metadata.annotations", _TAINTS, "not a list of taints in JSON")
        else:
            yield from _taints(objects({"": taints}, ""), f"metadata.annotations.{_TAINTS}")
    if source := text(annotations, _AVOIDED):
        avoided = _read(source)
        if not isinstance(avoided, dict):
            yield invalid("metadata.annotations.AvoidPods", _AVOIDED, "not an object in JSON")
        for index, entry in objects(avoided, "preferAvoidPods"):
            at, owner = f"metadata.annotations.{_AVOIDED}[{index}].PodSignature", mapping(entry, "podSignature")
            if not isinstance(owner.get("podController"), dict):
                yield required(at)
            elif owner["podController"].get("controller") is not True:
                yield invalid(f"{at}.PodController.Controller", False, "must point to a controller")


def _read(source: str) -> Any:
    try:
        return msgspec.json.decode(source)
    except (msgspec.DecodeError, RecursionError):
        return None
