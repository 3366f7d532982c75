"""DeviceClasses, ResourceClaims and their templates: which devices are wanted, and how they are set up."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from atoll.machinery.kinds.checks import mapping, objects, text
from atoll.machinery.kinds.kubernetes.validation.claims import template_metadata
from atoll.machinery.kinds.kubernetes.validation.device_selectors import selectors
from atoll.machinery.kinds.kubernetes.validation.devices import (
    bounded,
    bounded_set,
    full_name,
    itself,
    json_object,
    name_of,
    texts,
    toleration,
)
from atoll.machinery.kinds.kubernetes.validation.resources import is_extended
from atoll.machinery.kinds.kubernetes.validation.rules import (
    Errors,
    integer,
    matches_always,
    one_of_defaulted,
    required_subdomain,
    same,
    unchanged,
)
from atoll.machinery.kinds.kubernetes.validation.volume_sources import driver_errors
from atoll.machinery.meta.labels import dns_label_errors
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import invalid, required

MAX_REQUESTS, MAX_CONFIGURATIONS = 32, 32
_MAX_CONSTRAINTS, _MAX_ALTERNATIVES, _MAX_PARAMETERS_SIZE = 32, 8, 10 * 1024
_MODES = ("All", "ExactCount")
_ONE_FORM = "exactly one of `exactly` or `firstAvailable` is required"
_REQUEST_TEXT = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
#: The names of the requests of a claim, each with those of its alternatives.
Names = Mapping[str, frozenset[str]]


def validate_class(obj: Object) -> list[FieldError]:
    """Check a new DeviceClass."""
    return list(_class(mapping(obj, "spec"), {}))


def validate_class_update(obj: Object, old: Object) -> list[FieldError]:
    """Check one that replaces another: selectors and parameters that stay may be what former versions took."""
    return list(_class(mapping(obj, "spec"), mapping(old, "spec")))


def _class(spec: Object, before: Object) -> Errors:
    keeps = {name: bool(before.get(name)) and same(spec.get(name), before[name]) for name in ("selectors", "config")}
    yield from selectors(spec, "spec", is_stored=keeps["selectors"])
    check = partial(opaque, is_stored=keeps["config"])
    yield from bounded(objects(spec, "config"), "spec.config", MAX_CONFIGURATIONS, check)
    name = spec.get("extendedResourceName")
    if isinstance(name, str) and not is_extended(name):
        yield invalid("spec.extendedResourceName", name, "must be a valid extended resource name")


def validate_claim(obj: Object) -> list[FieldError]:
    """Check a new ResourceClaim."""
    return list(_claim(mapping(obj, "spec"), "spec"))


def validate_claim_update(obj: Object, old: Object) -> list[FieldError]:
    """Check that the spec of a ResourceClaim stays."""
    return list(unchanged(obj, old, "", "spec"))


def validate_template(obj: Object) -> list[FieldError]:
    """Check a new ResourceClaimTemplate."""
    spec = mapping(obj, "spec")
    return [*template_metadata(spec, "spec"), *_claim(mapping(spec, "spec"), "spec.spec")]


def validate_template_update(obj: Object, old: Object) -> list[FieldError]:
    """Check that the spec of a ResourceClaimTemplate stays."""
    return [*validate_template(obj), *unchanged(obj, old, "", "spec")]


def _claim(spec: Object, at: str) -> Errors:
    devices, field = mapping(spec, "devices"), f"{at}.devices"
    names = request_names(spec)
    yield from bounded_set(objects(devices, "requests"), f"{field}.requests", MAX_REQUESTS, _request, name_of)
    check = partial(_constraint, names=names)
    yield from bounded(objects(devices, "constraints"), f"{field}.constraints", _MAX_CONSTRAINTS, check)
    configured = partial(configuration, names=names)
    yield from bounded(objects(devices, "config"), f"{field}.config", MAX_CONFIGURATIONS, configured)


def request_names(spec: Object) -> Names:
    """Return the names by which other parts refer to the requests of a claim."""
    return {
        text(request, "name"): frozenset(text(each, "name") for _, each in objects(request, "firstAvailable"))
        for _, request in objects(spec, "devices", "requests")
    }


def _request(request: Object, at: str) -> Errors:
    yield from matches_always(request, at, "name", dns_label_errors)
    alternatives, exact = objects(request, "firstAvailable"), request.get("exactly")
    if not alternatives and exact is None:
        yield required(at, _ONE_FORM)
    elif alternatives and exact is not None:
        yield invalid(at, None, f"{_ONE_FORM}, but multiple fields are set")
    elif alternatives:
        yield from bounded_set(alternatives, f"{at}.firstAvailable", _MAX_ALTERNATIVES, _alternative, name_of)
    else:
        yield from _exact(mapping(request, "exactly"), f"{at}.exactly")


def _alternative(request: Object, at: str) -> Errors:
    yield from matches_always(request, at, "name", dns_label_errors)
    yield from _exact(request, at)


def _exact(request: Object, at: str) -> Errors:
    yield from required_subdomain(request, at, "deviceClassName")
    yield from selectors(request, at)
    count = integer(request.get("count")) or 0
    yield from one_of_defaulted(request, at, "allocationMode", _MODES)
    if text(request, "allocationMode") == "All":
        if count:
            yield invalid(f"{at}.count", count, "must not be specified when allocationMode is 'All'")
    elif text(request, "allocationMode") in ("", "ExactCount") and count < 0:
        yield invalid(f"{at}.count", count, "must be greater than zero")
    for index, each in objects(request, "tolerations"):
        yield from toleration(each, f"{at}.tolerations[{index}]")


def _constraint(constraint: Object, at: str, names: Names) -> Errors:
    yield from references(constraint, at, names)
    found = next((name for name in ("matchAttribute", "distinctAttribute") if constraint.get(name) is not None), "")
    if found:
        yield from full_name(constraint, at, found)
    else:
        yield required(at, 'exactly one of "matchAttribute" or "distinctAttribute" is required')


def references(part: Object, at: str, names: Names) -> Errors:
    """Check the names of the requests to which a part of a claim applies."""
    check = partial(reference, names=names)
    yield from bounded_set(texts(part, "requests"), f"{at}.requests", MAX_REQUESTS, check, itself)


def reference(name: str, field: str, names: Names) -> Errors:
    """Check that a name is that of a request, or of an alternative behind it."""
    first, *more = name.split("/")
    if len(more) > 1:
        yield invalid(field, name, _REQUEST_TEXT)
        return
    for part in (first, *more):
        for problem in dns_label_errors(part):
            yield invalid(field, part, problem)
    if first not in names or not names[first].issuperset(more):
        yield invalid(field, name, _REQUEST_TEXT)


def configuration(part: Object, at: str, names: Names) -> Errors:
    """Check how the devices of some requests are set up."""
    yield from references(part, at, names)
    yield from opaque(part, at)


def opaque(part: Object, at: str, *, is_stored: bool = False) -> Errors:
    """Check the parameters for the driver of a device."""
    source, field = part.get("opaque"), f"{at}.opaque"
    if source is None:
        yield required(field)
    elif isinstance(source, dict):
        yield from driver_errors(source, field)
        limit = _MAX_PARAMETERS_SIZE if not is_stored else 1 << 30
        yield from json_object(source.get("parameters"), f"{field}.parameters", limit)
