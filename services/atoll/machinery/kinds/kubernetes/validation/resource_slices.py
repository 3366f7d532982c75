"""ResourceSlices: the devices of a pool, where they are, and the counters that they share."""

from __future__ import annotations

import re
from functools import partial

from atoll.machinery.kinds.checks import items, mapping, objects, text
from atoll.machinery.kinds.kubernetes.validation.device_capacity import request_policy
from atoll.machinery.kinds.kubernetes.validation.devices import (
    binding_conditions,
    bounded,
    bounded_set,
    exactly_one,
    keyed,
    name_of,
    pool,
    qualified_name,
    taint,
    texts,
)
from atoll.machinery.kinds.kubernetes.validation.resources import is_native
from atoll.machinery.kinds.kubernetes.validation.rules import (
    Errors,
    amount_of,
    integer,
    matches,
    matches_always,
    quantity_text,
    required_label,
    same,
    unchanged,
)
from atoll.machinery.kinds.kubernetes.validation.scheduling import node_selector
from atoll.machinery.kinds.kubernetes.validation.volume_sources import driver_errors
from atoll.machinery.meta.labels import LABEL_SIZE, dns_label_errors, dns_subdomain_errors
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import forbidden, invalid, not_found, required, too_long, too_many

_MAX_DEVICES, _MAX_ADVANCED_DEVICES, _MAX_SETS, _MAX_COUNTERS, _MAX_CONSUMED = 128, 64, 8, 32, 2
_MAX_ATTRIBUTES, _MAX_VALUES, _MAX_TAINTS, _VALUE_SIZE = 32, 48, 16, 64
_LISTS = ("bools", "ints", "strings", "versions")
_VALUES = ("bool", "int", "string", "version", *_LISTS)
_NODES, _NODES_OF_DEVICE = ("nodeName", "nodeSelector", "allNodes"), "perDeviceNodeSelection"
_TRUE_OR_ABSENT = "must be either unset or set to true"
_ONE_PLACE = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
_ONE_PLACE_OF_DEVICE = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true "
    "in the ResourceSlice spec"
)
_NO_PLACE = (
    "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the "
    "ResourceSlice spec"
)
_NUMBER, _BUILD = r"(0|[1-9]\d*)", "[0-9a-zA-Z-]+"
_BEFORE_RELEASE = r"(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_VERSION = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_BEFORE_RELEASE}(\.{_BEFORE_RELEASE})*)?(\+{_BUILD}(\.{_BUILD})*)?\Z", re.ASCII
)


def validate(obj: Object) -> list[FieldError]:
    """Check a new ResourceSlice."""
    return list(_slice(mapping(obj, "spec"), {}))


def validate_update(obj: Object, old: Object) -> list[FieldError]:
    """Check one that replaces another, of the same pool, driver and node."""
    spec, before = mapping(obj, "spec"), mapping(old, "spec")
    errors = [*_slice(spec, before), *unchanged(spec, before, "spec", "driver", "nodeName")]
    return [*errors, *unchanged(mapping(spec, "pool"), mapping(before, "pool"), "spec.pool", "name")]


def warnings(obj: Object) -> list[str]:
    """Return what kube-apiserver says of a valid slice."""
    driver = text(obj, "spec", "driver")
    if driver == driver.lower():
        return []
    return [f'spec.driver: driver names should be lowercase; "{driver}" contains uppercase characters']


def _slice(spec: Object, before: Object) -> Errors:
    yield from driver_errors(spec, "spec")
    yield from _pool(mapping(spec, "pool"))
    yield from _place(spec, "spec", "must be either unset or set to a non-empty string")
    terms = items(spec, "nodeSelector", "nodeSelectorTerms")
    if isinstance(spec.get("nodeSelector"), dict) and len(terms) != 1:
        yield invalid("spec.nodeSelector.nodeSelectorTerms", terms, "must have exactly one node selector term")
    if spec.get(_NODES_OF_DEVICE) is False:
        yield invalid(f"spec.{_NODES_OF_DEVICE}", False, _TRUE_OR_ABSENT)
    yield from exactly_one(spec, "spec", (*_NODES, _NODES_OF_DEVICE), _ONE_PLACE)
    if spec.get("sharedCounters") is not None and spec.get("devices") is not None:
        yield invalid("spec", "", "only one of `sharedCounters` or `devices` is allowed")
    devices, former = objects(spec, "devices"), {name_of(each): each for _, each in objects(before, "devices")}
    limit = _MAX_ADVANCED_DEVICES if any(_is_advanced(each) for _, each in devices) else _MAX_DEVICES
    check = partial(_device, former=former, has_place=spec.get(_NODES_OF_DEVICE) is True)
    yield from bounded_set(devices, "spec.devices", limit, check, name_of)
    yield from bounded_set(objects(spec, "sharedCounters"), "spec.sharedCounters", _MAX_SETS, _counter_set, name_of)


def _pool(part: Object) -> Errors:
    yield from pool(part, "spec.pool", "name")
    count, generation = integer(part.get("resourceSliceCount")) or 0, integer(part.get("generation")) or 0
    if count <= 0:
        yield invalid("spec.pool.resourceSliceCount", count, "must be greater than zero")
    if generation < 0:
        yield invalid("spec.pool.generation", generation, "must be greater than or equal to zero")


def _place(part: Object, at: str, empty_text: str) -> Errors:
    """Check the nodes from which devices are reached."""
    if part.get("nodeName") == "":
        yield invalid(f"{at}.nodeName", "", empty_text)
    yield from matches(part, at, "nodeName", dns_subdomain_errors)
    if isinstance(part.get("nodeSelector"), dict):
        yield from node_selector(part["nodeSelector"], f"{at}.nodeSelector")
    if part.get("allNodes") is False:
        yield invalid(f"{at}.allNodes", False, _TRUE_OR_ABSENT)


def _is_advanced(device: Object) -> bool:
    """Report whether a device has what lets a slice hold fewer of them."""
    if items(device, "taints") or items(device, "consumesCounters"):
        return True
    return any(each.get(name) is not None for _, _, each in keyed(device, "attributes", "") for name in _LISTS)


def _device(device: Object, at: str, former: dict[str, Object], has_place: bool) -> Errors:
    yield from matches_always(device, at, "name", dns_label_errors)
    yield from _attributes(device, at)
    yield from _capacities(device, at)
    old = former.get(name_of(device))
    if old is None or not same(device.get("taints"), old.get("taints")):
        yield from bounded(objects(device, "taints"), f"{at}.taints", _MAX_TAINTS, taint)
    consumed = objects(device, "consumesCounters")
    yield from bounded_set(
        consumed, f"{at}.consumesCounters", _MAX_CONSUMED, _consumed, lambda each: text(each, "counterSet")
    )
    if has_place:
        yield from _place(device, at, "must not be empty")
        yield from exactly_one(device, at, _NODES, _ONE_PLACE_OF_DEVICE)
    elif any(device.get(name) is not None for name in _NODES):
        yield invalid(at, None, _NO_PLACE)
    yield from binding_conditions(device, at)
    yield from _node_resources(device, at)


def _attributes(device: Object, at: str) -> Errors:
    attributes = keyed(device, "attributes", at)
    count = len(attributes) + len(mapping(device, "capacity"))
    if count > _MAX_ATTRIBUTES:
        yield invalid(at, count, f"the total number of attributes and capacities must not exceed {_MAX_ATTRIBUTES}")
    values = sum(sum(len(items(each, name)) for name in _LISTS) or 1 for _, _, each in attributes)
    if values > _MAX_VALUES:
        yield invalid(at, values, f"the total number of attribute values must not exceed {_MAX_VALUES}")
    for key, field, attribute in attributes:
        yield from qualified_name(key, f"{at}.attributes")
        yield from _attribute(attribute, field)


def _attribute(attribute: Object, at: str) -> Errors:
    for name in _LISTS:
        if attribute.get(name) == []:
            yield invalid(f"{at}.{name}", [], "must not be empty if specified")
    singles = [(f"{at}.{name}", attribute.get(name), name == "version") for name in ("string", "version")]
    listed = [
        (f"{at}.{name}[{index}]", value, name == "versions")
        for name in ("strings", "versions")
        for index, value in texts(attribute, name)
    ]
    for field, value, is_version in (*singles, *listed):
        if not isinstance(value, str):
            continue
        if is_version and not _VERSION.match(value):
            yield invalid(field, value, "must be a string compatible with semver.org spec 2.0.0")
        if len(value.encode()) > _VALUE_SIZE:
            yield too_long(field, _VALUE_SIZE)
    if sum(attribute.get(name) is not None for name in _VALUES) != 1:
        yield invalid(at, attribute or "", "exactly one value must be specified")


def _capacities(device: Object, at: str) -> Errors:
    is_shared = device.get("allowMultipleAllocations") is True
    for key, field, capacity in keyed(device, "capacity", at):
        yield from qualified_name(key, f"{at}.capacity")
        if isinstance(capacity.get("requestPolicy"), dict):
            if is_shared:
                yield from request_policy(capacity, f"{field}.requestPolicy")
            else:
                yield forbidden(f"{field}.requestPolicy", "allowMultipleAllocations must be true")


def _counter_set(part: Object, at: str) -> Errors:
    yield from required_label(part, at, "name")
    yield from _counters(part, at)


def _consumed(part: Object, at: str) -> Errors:
    yield from required_label(part, at, "counterSet")
    yield from _counters(part, at)


def _counters(part: Object, at: str) -> Errors:
    counters, field = mapping(part, "counters"), f"{at}.counters"
    if not counters:
        yield required(field)
    elif len(counters) > _MAX_COUNTERS:
        yield too_many(field, len(counters), _MAX_COUNTERS)
    else:
        for key in counters:
            for problem in dns_label_errors(key):
                yield invalid(field, key, problem)


def _node_resources(device: Object, at: str) -> Errors:
    """Check which resources of its node a device uses."""
    for key, field, use in keyed(device, "nodeAllocatableResourceMappings", at, LABEL_SIZE * 5):
        if not is_native(key):
            yield invalid(field, key, "must be a node allocatable resource name")
        factor, capacity = use.get("allocationMultiplier"), use.get("capacityKey")
        if (number := amount_of(factor)) is not None and number <= 0:
            yield invalid(f"{field}.allocationMultiplier", quantity_text(factor), "must be positive")
        if capacity == "":
            yield invalid(f"{field}.capacityKey", "", "capacityKey must not be an empty string")
        elif isinstance(capacity, str) and capacity not in mapping(device, "capacity"):
            yield not_found(f"{field}.capacityKey", capacity)
