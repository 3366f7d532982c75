"""Ingresses, IngressClasses, IPAddresses and ServiceCIDRs."""

from __future__ import annotations

from atoll.machinery.kinds.checks import invalid_values, mapping, objects, strings, text
from atoll.machinery.kinds.kubernetes.validation.addresses import canonical_network_errors, parse_address, parse_network
from atoll.machinery.kinds.kubernetes.validation.domains import domain_path_errors, wildcard_errors
from atoll.machinery.kinds.kubernetes.validation.rules import (
    IMMUTABLE,
    Errors,
    annotations_of,
    label,
    matches,
    needed,
    not_empty,
    one_of,
    port_name_errors,
    port_number,
    shorter,
    subdomain,
    unchanged,
)
from atoll.machinery.kinds.kubernetes.validation.services import balancer_errors
from atoll.machinery.meta.labels import dns_label_errors, dns_subdomain_errors, path_segment_errors
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import forbidden, invalid, not_supported, required

_PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")
_BAD_PARTS, _BAD_ENDS = ("//", "/./", "/../", "%2f", "%2F"), ("/..", "/.")
_CLASS_ANNOTATION = "kubernetes.io/ingress.class"
_CONTROLLER_SIZE = 250
_TWO_FAMILIES = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"


def validate_ingress(obj: Object) -> list[FieldError]:
    """Check a new Ingress."""
    errors = list(_ingress(obj))
    name, annotation = mapping(obj, "spec").get("ingressClassName"), annotations_of(obj).get(_CLASS_ANNOTATION)
    if name is not None and annotation not in (None, name):
        detail = "must match `ingressClassName` when both are specified"
        errors.append(invalid(f"annotations.{_CLASS_ANNOTATION}", annotation, detail))
    return errors


def validate_ingress_update(obj: Object, old: Object) -> list[FieldError]:
    """Check an Ingress that replaces another."""
    names = [text(each, "secretName") for _, each in objects(old, "spec", "tls")]
    rules = [rule for _, rule in objects(old, "spec", "rules") if "*" in text(rule, "host")]
    any_rule = any(True for rule in rules for _ in _paths(rule, ""))
    any_secret = any(name and dns_subdomain_errors(name) for name in names)
    return list(_ingress(obj, any_secret=any_secret, any_wildcard_rule=any_rule))


def validate_ingress_status(obj: Object, old: Object) -> list[FieldError]:
    """Check where an Ingress takes traffic in."""
    now, before = (mapping(each, "status", "loadBalancer") for each in (obj, old))
    return list(balancer_errors(now, "status.loadBalancer", before, has_modes=False))


def _ingress(obj: Object, *, any_secret: bool = False, any_wildcard_rule: bool = False) -> Errors:
    spec = mapping(obj, "spec")
    backend, rules = spec.get("defaultBackend"), objects(spec, "rules")
    if not rules and backend is None:
        yield invalid("spec", [], "either `defaultBackend` or `rules` must be specified")
    if isinstance(backend, dict):
        yield from _backend(backend, "spec.defaultBackend")
    for index, rule in rules:
        field, host = f"spec.rules[{index}]", text(rule, "host")
        if host and parse_address(host) is not None:
            yield invalid(f"{field}.host", host, "must be a DNS name, not an IP address")
        yield from matches(rule, field, "host", wildcard_errors if "*" in host else dns_subdomain_errors)
        if "*" not in host or not any_wildcard_rule:
            yield from _paths(rule, field)
    for index, each in objects(spec, "tls"):
        for position, host in enumerate(strings(each, "hosts")):
            problems = wildcard_errors(host) if "*" in host else dns_subdomain_errors(host)
            yield from invalid_values(f"spec.tls[{index}].hosts[{position}]", host, problems)
        if not any_secret:
            yield from subdomain(each, f"spec.tls[{index}]", "secretName")
    if isinstance(spec.get("ingressClassName"), str):
        name = spec["ingressClassName"]
        yield from invalid_values("spec.ingressClassName", name, dns_subdomain_errors(name))


def _paths(rule: Object, at: str) -> Errors:
    http = rule.get("http")
    if not isinstance(http, dict):
        return
    yield from needed(http, f"{at}.http", "paths")
    for index, each in objects(http, "paths"):
        field, path, kind = f"{at}.http.paths[{index}]", text(each, "path"), each.get("pathType")
        if kind in ("Exact", "Prefix") or (kind == "ImplementationSpecific" and path):
            if not path.startswith("/"):
                yield invalid(f"{field}.path", path, "must be an absolute path")
            yield from _path_parts(path, f"{field}.path") if kind != "ImplementationSpecific" else ()
        elif kind is None:
            yield required(f"{field}.pathType", "pathType must be specified")
        else:
            yield from one_of(each, field, "pathType", _PATH_TYPES)
        yield from _backend(mapping(each, "backend"), f"{field}.backend")


def _path_parts(path: str, field: str) -> Errors:
    for part in _BAD_PARTS:
        if part in path:
            yield invalid(field, path, f"must not contain '{part}'")
    for end in _BAD_ENDS:
        if path.endswith(end):
            yield invalid(field, path, f"cannot end with '{end}'")


def _backend(backend: Object, at: str) -> Errors:
    resource, service = backend.get("resource"), backend.get("service")
    if resource is not None and service is not None:
        yield invalid(at, "", "cannot set both resource and service backends")
    elif isinstance(resource, dict):
        yield from _reference(resource, f"{at}.resource")
    elif isinstance(service, dict):
        yield from not_empty(service, f"{at}.service", "name")
        yield from label(service, f"{at}.service", "name")
        yield from _service_port(mapping(service, "port"), at)
    elif resource is None and service is None:
        yield invalid(at, "", "resource or service backend is required")


def _service_port(port: Object, at: str) -> Errors:
    name, number = text(port, "name"), port.get("number")
    if name and number:
        yield invalid(at, "", "cannot set both port name & port number")
    elif name:
        yield from invalid_values(f"{at}.service.port.name", name, port_name_errors(name))
    elif number:
        yield from port_number(number, f"{at}.service.port.number")
    else:
        yield required(at, "port name or number is required")


def _reference(reference: Object, at: str) -> Errors:
    if isinstance(reference.get("apiGroup"), str):
        yield from invalid_values(f"{at}.apiGroup", reference["apiGroup"], dns_subdomain_errors(reference["apiGroup"]))
    for name in ("kind", "name"):
        yield from not_empty(reference, at, name)
        yield from matches(reference, at, name, path_segment_errors)


def validate_class(obj: Object) -> list[FieldError]:
    """Check an IngressClass."""
    spec = mapping(obj, "spec")
    controller = text(spec, "controller")
    errors = [
        *shorter(spec, "spec", "controller", _CONTROLLER_SIZE),
        *domain_path_errors(controller, "spec.controller"),
    ]
    parameters, at = spec.get("parameters"), "spec.parameters"
    if not isinstance(parameters, dict):
        return errors
    errors += _reference(parameters, at)
    scope, namespace = text(parameters, "scope"), parameters.get("namespace")
    if scope not in ("Cluster", "Namespace"):
        errors.append(not_supported(f"{at}.scope", scope, ("Cluster", "Namespace")))
    elif scope == "Cluster" and namespace is not None:
        errors.append(forbidden(f"{at}.namespace", "`parameters.scope` is set to 'Cluster'"))
    elif scope == "Namespace" and namespace is None:
        errors.append(required(f"{at}.namespace", "`parameters.scope` is set to 'Namespace'"))
    elif isinstance(namespace, str):
        errors += invalid_values(f"{at}.namespace", namespace, dns_label_errors(namespace))
    return errors


def validate_class_update(obj: Object, old: Object) -> list[FieldError]:
    """Check that the controller of an IngressClass stays."""
    return [*unchanged(mapping(obj, "spec"), mapping(old, "spec"), "spec", "controller"), *validate_class(obj)]


def validate_address(obj: Object) -> list[FieldError]:
    """Check what an IPAddress belongs to."""
    parent, at = mapping(obj, "spec", "parentRef"), "spec.parentRef"
    if mapping(obj, "spec").get("parentRef") is None:
        return [required(at)]
    errors = [*needed(parent, at, "resource", "name"), *subdomain(parent, at, "group")]
    for name in ("resource", "name", "namespace"):
        errors += matches(parent, at, name, path_segment_errors)
    return errors


def validate_address_update(obj: Object, old: Object) -> list[FieldError]:
    """Check that an IPAddress belongs to what it belonged to."""
    return list(unchanged(mapping(obj, "spec"), mapping(old, "spec"), "spec", "parentRef"))


def validate_range(obj: Object) -> list[FieldError]:
    """Check the ranges of a ServiceCIDR."""
    values, field = strings(obj, "spec", "cidrs"), "spec.cidrs"
    errors = [] if values else [required(field, "at least one CIDR required")]
    if len(values) > 2:
        errors.append(invalid(field, mapping(obj, "spec"), "may only hold up to 2 values"))
    for index, value in enumerate(values):
        errors += canonical_network_errors(value, f"{field}[{index}]")
    found = [parse_network(value) for value in values]
    versions = [each.version for each in found if each is not None]
    if len(values) == len(versions) == 2 and versions[0] == versions[1]:
        errors.append(invalid(field, values, _TWO_FAMILIES))
    return errors


def validate_range_update(obj: Object, old: Object) -> list[FieldError]:
    """Check that the ranges of a ServiceCIDR stay; the one of the other family may be added."""
    values, before, field = strings(obj, "spec", "cidrs"), strings(old, "spec", "cidrs"), "spec.cidrs"
    if len(values) != len(before) and (len(before), len(values)) != (1, 2):
        return [invalid(field, values, IMMUTABLE)]
    pairs = enumerate(zip(values, before, strict=False))
    errors = [invalid(f"{field}[{index}]", value, IMMUTABLE) for index, (value, kept) in pairs if value != kept]
    return errors if len(values) == len(before) else errors + validate_range(obj)
