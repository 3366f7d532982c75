"""Endpoints and EndpointSlices: where the traffic of a Service goes."""

from __future__ import annotations

from atoll.machinery.kinds.checks import invalid_values, items, mapping, objects, strings, text
from atoll.machinery.kinds.kubernetes.validation.addresses import (
    address_errors,
    canonical_address_errors,
    endpoint_errors,
    is_ipv6,
)
from atoll.machinery.kinds.kubernetes.validation.domains import full_domain_errors
from atoll.machinery.kinds.kubernetes.validation.ports import PROTOCOLS
from atoll.machinery.kinds.kubernetes.validation.rules import (
    Errors,
    label,
    label_key,
    label_map,
    one_of,
    one_of_defaulted,
    port_number,
    same,
    unchanged,
)
from atoll.machinery.meta.labels import dns_label_errors, dns_subdomain_errors, label_value_errors
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import duplicate, invalid, not_supported, required, too_many

_TYPES = ("FQDN", "IPv4", "IPv6")
_MAX_LABELS, _MAX_ADDRESSES, _MAX_PORTS, _MAX_ENDPOINTS, _MAX_HINTS = 16, 100, 20_000, 1000, 8


def validate(obj: Object) -> list[FieldError]:
    """Check new Endpoints."""
    errors = list[FieldError]()
    for index, subset in objects(obj, "subsets"):
        errors += _subset(subset, f"subsets[{index}]")
    return errors


def validate_update(obj: Object, old: Object) -> list[FieldError]:
    """Check Endpoints that replace others, unless they are the same."""
    return [] if same(obj.get("subsets"), old.get("subsets")) else validate(obj)


def _subset(subset: Object, at: str) -> Errors:
    if not items(subset, "addresses") and not items(subset, "notReadyAddresses"):
        yield required(at, "must specify `addresses` or `notReadyAddresses`")
    for name in ("addresses", "notReadyAddresses"):
        for index, address in objects(subset, name):
            field = f"{at}.{name}[{index}]"
            yield from address_errors(address.get("ip"), f"{field}.ip")
            yield from label(address, field, "hostname")
            if isinstance(address.get("nodeName"), str):
                node = address["nodeName"]
                yield from invalid_values(f"{field}.nodeName", node, dns_subdomain_errors(node))
            yield from endpoint_errors(address.get("ip"), f"{field}.ip")
    ports = objects(subset, "ports")
    for index, port in ports:
        field = f"{at}.ports[{index}]"
        if len(ports) > 1 and not text(port, "name"):
            yield required(f"{field}.name")
        yield from label(port, field, "name")
        yield from port_number(port.get("port"), f"{field}.port")
        yield from one_of_defaulted(port, field, "protocol", PROTOCOLS)
        yield from label_key(f"{field}.appProtocol", port.get("appProtocol"))


def validate_slice(obj: Object) -> list[FieldError]:
    """Check a new EndpointSlice."""
    return [*_slice(obj), *_endpoints(obj)]


def validate_slice_update(obj: Object, old: Object) -> list[FieldError]:
    """Check that the type of the addresses of an EndpointSlice stays."""
    is_same = same(obj.get("endpoints"), old.get("endpoints"))
    return [*_slice(obj), *([] if is_same else _endpoints(obj)), *unchanged(obj, old, "", "addressType")]


def _slice(obj: Object) -> list[FieldError]:
    errors, kind = list[FieldError](), obj.get("addressType")
    if kind == "":
        errors.append(required("addressType"))
    elif isinstance(kind, str) and kind not in _TYPES:
        errors.append(not_supported("addressType", kind, _TYPES))
    ports, names = objects(obj, "ports"), set[str]()
    if len(ports) > _MAX_PORTS:
        errors.append(too_many("ports", len(ports), _MAX_PORTS))
    for index, port in ports:
        field, name = f"ports[{index}]", text(port, "name")
        errors += label(port, field, "name")
        if name in names:
            errors.append(duplicate(f"{field}.name", name))
        names.add(name)
        errors += one_of(port, field, "protocol", PROTOCOLS)
        errors += label_key(f"{field}.appProtocol", port.get("appProtocol"))
    return errors


def _endpoints(obj: Object) -> Errors:
    found, kind = objects(obj, "endpoints"), text(obj, "addressType")
    if len(found) > _MAX_ENDPOINTS:
        yield too_many("endpoints", len(found), _MAX_ENDPOINTS)
        return
    for index, endpoint in found:
        field, addresses = f"endpoints[{index}]", strings(endpoint, "addresses")
        if not addresses:
            yield required(f"{field}.addresses", "must contain at least 1 address")
        elif len(addresses) > _MAX_ADDRESSES:
            yield too_many(f"{field}.addresses", len(addresses), _MAX_ADDRESSES)
        for position, address in enumerate(addresses[: _MAX_ADDRESSES + 1]):
            yield from _address(kind, address, f"{field}.addresses", position)
        if isinstance(endpoint.get("nodeName"), str):
            node = endpoint["nodeName"]
            yield from invalid_values(f"{field}.nodeName", node, dns_subdomain_errors(node))
        topology = mapping(endpoint, "deprecatedTopology")
        if len(topology) > _MAX_LABELS:
            yield too_many(f"{field}.deprecatedTopology", len(topology), _MAX_LABELS)
        yield from label_map(topology, f"{field}.deprecatedTopology")
        if isinstance(endpoint.get("hostname"), str):
            host = endpoint["hostname"]
            yield from invalid_values(f"{field}.hostname", host, dns_label_errors(host))
        yield from _hints(endpoint, f"{field}.hints")


def _address(kind: str, address: str, at: str, index: int) -> Errors:
    field = f"{at}[{index}]"
    if kind == "FQDN":
        yield from full_domain_errors(address, field)
        return
    if kind not in ("IPv4", "IPv6"):
        return
    errors = list((address_errors if kind == "IPv4" else canonical_address_errors)(address, field))
    yield from errors
    if not errors:
        if is_ipv6(address) != (kind == "IPv6"):
            yield invalid(at, address, f"must be an {kind} address")
        yield from endpoint_errors(address, field)


def _hints(endpoint: Object, at: str) -> Errors:
    for name, problems in (("forZones", label_value_errors), ("forNodes", dns_subdomain_errors)):
        found, names = objects(endpoint, "hints", name), set[str]()
        if len(found) > _MAX_HINTS:
            yield too_many(f"{at}.{name}", len(found), _MAX_HINTS)
            continue
        for index, each in found:
            value, field = text(each, "name"), f"{at}.{name}[{index}].name"
            if value in names:
                yield duplicate(field, value)
            names.add(value)
            if "name" in each:
                yield from invalid_values(field, value, problems(value))
