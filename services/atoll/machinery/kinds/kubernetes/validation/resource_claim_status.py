"""The status of ResourceClaims: the devices that are allocated, who uses them, and what their drivers report."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import partial

from atoll.machinery.kinds.checks import mapping, objects, text
from atoll.machinery.kinds.kubernetes.validation.devices import (
    binding_conditions,
    bounded,
    bounded_set,
    device_of,
    interface_address,
    itself,
    json_object,
    pool,
    share,
    texts,
)
from atoll.machinery.kinds.kubernetes.validation.resource_claims import (
    MAX_CONFIGURATIONS,
    Names,
    configuration,
    reference,
    request_names,
)
from atoll.machinery.kinds.kubernetes.validation.rules import (
    Errors,
    integer,
    label_key,
    matches_always,
    needed,
    one_of,
    one_of_required,
    shorter,
    unchanged,
)
from atoll.machinery.kinds.kubernetes.validation.scheduling import node_selector
from atoll.machinery.kinds.kubernetes.validation.volume_sources import driver_errors
from atoll.machinery.meta.labels import dns_label_errors
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import duplicate, forbidden, invalid, required, too_many

_MAX_USERS, _MAX_RESULTS, _MAX_CONDITIONS, _MAX_ADDRESSES = 256, 32, 8, 16
_INTERFACE_SIZE, _HARDWARE_SIZE, _REASON_SIZE, _MESSAGE_SIZE = 256, 128, 1024, 32 * 1024
_STATUSES = ("False", "True", "Unknown")
_REASON_PATTERN = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"
_REASON = re.compile(_REASON_PATTERN + r"\Z")
_REASON_TEXT = (
    "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric "
    "characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or "
    f"'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '{_REASON_PATTERN}')"
)
_NEW_USERS = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"


def validate_status(obj: Object, old: Object) -> list[FieldError]:
    """Check a status that replaces another."""
    status, before = mapping(obj, "status"), mapping(old, "status")
    errors = [*_users(obj, before), *_devices(status)]
    if status.get("allocation") is not None and before.get("allocation") is not None:
        errors += unchanged(status, before, "status", "allocation")
    elif status.get("allocation") is not None:
        errors += _allocation(mapping(status, "allocation"), "status.allocation", request_names(mapping(obj, "spec")))
    return errors


def _users(obj: Object, before: Object) -> Errors:
    status, field = mapping(obj, "status"), "status.reservedFor"
    users = objects(status, "reservedFor")
    yield from bounded_set(users, field, _MAX_USERS, _user, lambda user: text(user, "uid"))
    if not users:
        return
    if status.get("allocation") is None:
        yield forbidden(field, "may not be specified when `allocated` is not set")
    elif text(obj, "metadata", "deletionTimestamp"):
        known = [user for _, user in objects(before, "reservedFor")][:_MAX_USERS]
        if any(user not in known for _, user in users[:_MAX_USERS]):
            yield forbidden(field, _NEW_USERS)


def _user(user: Object, at: str) -> Errors:
    yield from needed(user, at, "resource", "name", "uid")


def _devices(status: Object) -> Errors:
    allocated = {device_of(each) for _, each in objects(status, "allocation", "devices", "results")}
    devices, check = objects(status, "devices"), partial(_device, allocated=allocated)
    yield from bounded_set(devices, "status.devices", len(devices), check, device_of)


def _device(device: Object, at: str, allocated: Collection[object]) -> Errors:
    yield from driver_errors(device, at)
    yield from pool(device, at, "pool")
    yield from matches_always(device, at, "device", dns_label_errors)
    yield from share(device, at)
    if device_of(device) not in allocated:
        yield invalid(at, "/".join(filter(None, device_of(device))), "must be an allocated device in the claim")
    conditions = objects(device, "conditions")
    if len(conditions) > _MAX_CONDITIONS:
        yield too_many(f"{at}.conditions", len(conditions), _MAX_CONDITIONS)
    yield from _conditions(conditions, f"{at}.conditions")
    if device.get("data") is not None:
        yield from json_object(device["data"], f"{at}.data")
    network, field = mapping(device, "networkData"), f"{at}.networkData"
    yield from shorter(network, field, "interfaceName", _INTERFACE_SIZE)
    yield from shorter(network, field, "hardwareAddress", _HARDWARE_SIZE)
    yield from bounded_set(texts(network, "ips"), f"{field}.ips", _MAX_ADDRESSES, interface_address, itself)


def _conditions(conditions: list[tuple[int, Object]], field: str) -> Errors:
    seen = set[str]()
    for index, condition in conditions:
        at, kind, reason = f"{field}[{index}]", text(condition, "type"), text(condition, "reason")
        if kind in seen:
            yield duplicate(f"{at}.type", kind)
        seen.add(kind)
        yield from label_key(f"{at}.type", kind)
        yield from one_of(condition, at, "status", _STATUSES)
        generation = integer(condition.get("observedGeneration")) or 0
        if generation < 0:
            yield invalid(f"{at}.observedGeneration", generation, "must be greater than or equal to zero")
        if condition.get("lastTransitionTime") is None:
            yield required(f"{at}.lastTransitionTime")
        if not reason:
            yield required(f"{at}.reason")
        elif not _REASON.match(reason):
            yield invalid(f"{at}.reason", reason, _REASON_TEXT)
        yield from shorter(condition, at, "reason", _REASON_SIZE)
        yield from shorter(condition, at, "message", _MESSAGE_SIZE)


def _allocation(allocation: Object, at: str, names: Names) -> Errors:
    """Check what a scheduler chose, when it is written first."""
    devices, field = mapping(allocation, "devices"), f"{at}.devices"
    check = partial(_result, names=names)
    yield from bounded(objects(devices, "results"), f"{field}.results", _MAX_RESULTS, check)
    configured = partial(_configuration, names=names)
    # Those of the class and of the claim.
    yield from bounded(objects(devices, "config"), f"{field}.config", 2 * MAX_CONFIGURATIONS, configured)
    if isinstance(allocation.get("nodeSelector"), dict):
        yield from node_selector(allocation["nodeSelector"], f"{at}.nodeSelector")


def _result(result: Object, at: str, names: Names) -> Errors:
    yield from reference(text(result, "request"), f"{at}.request", names)
    yield from driver_errors(result, at)
    yield from pool(result, at, "pool")
    yield from matches_always(result, at, "device", dns_label_errors)
    yield from binding_conditions(result, at)
    yield from share(result, at)


def _configuration(part: Object, at: str, names: Names) -> Errors:
    yield from one_of_required(part, at, "source", ("FromClaim", "FromClass"))
    yield from configuration(part, at, names)
