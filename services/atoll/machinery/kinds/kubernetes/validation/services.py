"""Services: types, addresses, ports and traffic policies.

Numbers that a cluster gives out (clusterIPs, nodePorts, the port of a health check) may be absent here: they are given
out after these checks, which see what a client asks for.
"""

from __future__ import annotations

from atoll.machinery.kinds.checks import items, mapping, objects, strings, text
from atoll.machinery.kinds.kubernetes.validation.addresses import (
    address_errors,
    are_dual,
    endpoint_errors,
    is_ipv6,
    network_errors,
    parse_address,
)
from atoll.machinery.kinds.kubernetes.validation.ports import PROTOCOLS
from atoll.machinery.kinds.kubernetes.validation.rules import (
    Errors,
    annotations_of,
    integer,
    label,
    label_key,
    label_map,
    one_of,
    one_of_defaulted,
    port,
    port_number,
)
from atoll.machinery.meta.labels import dns_subdomain_errors
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import duplicate, forbidden, invalid, not_supported, required

TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_POLICIES, _FAMILIES = ("Cluster", "Local"), ("IPv4", "IPv6")
_FAMILY_POLICIES = ("PreferDualStack", "RequireDualStack", "SingleStack")
_DISTRIBUTIONS = ("PreferClose", "PreferSameZone", "PreferSameNode")
_LONGEST_AFFINITY_S = 86400
_HINTS, _MODE = "service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"
_RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"
_BALANCED = "may only be used when `type` is 'LoadBalancer'"
_ONCE = "may not change once set"


def validate(obj: Object) -> list[FieldError]:
    """Check a new Service."""
    return list(_service(obj, {}))


def validate_update(obj: Object, old: Object) -> list[FieldError]:
    """Check that addresses stay; families and secondary addresses may be added and released."""
    spec, before = mapping(obj, "spec"), mapping(old, "spec")
    errors = list[FieldError]()
    if "ExternalName" not in (text(spec, "type"), text(before, "type")):
        errors += _address_changes(spec, before)
        errors += _family_changes(spec, before)
    if text(spec, "type") == text(before, "type") == "LoadBalancer":
        now, previous = spec.get("loadBalancerClass"), before.get("loadBalancerClass")
        errors += [invalid("spec.loadBalancerClass", now, _ONCE)] if now != previous else []
    errors += _class(spec)
    ports = [each.get("healthCheckNodePort") or 0 for each in (spec, before) if needs_health_check(each)]
    if len(ports) == 2 and ports[0] != ports[1]:
        errors.append(forbidden("spec.healthCheckNodePort", "field is immutable"))
    return errors + list(_service(obj, old))


def needs_health_check(spec: Object) -> bool:
    """Report whether a balancer asks nodes for their health."""
    return text(spec, "type") == "LoadBalancer" and text(spec, "externalTrafficPolicy") == "Local"


def _is_headless(spec: Object) -> bool:
    return items(spec, "clusterIPs") == ["None"]


def _service(obj: Object, old: Object) -> Errors:
    spec, annotations = mapping(obj, "spec"), annotations_of(obj)
    hints, mode = annotations.get(_HINTS), annotations.get(_MODE)
    if hints is not None and mode is not None and hints != mode:
        detail = f"must match annotations[{_HINTS}] when both are specified"
        yield invalid(f"metadata.annotations[{_MODE}]", mode, detail)
    kind = text(spec, "type")
    if not items(spec, "ports") and not _is_headless(spec) and kind != "ExternalName":
        yield required("spec.ports")
    if kind in ("LoadBalancer", "NodePort") and _is_headless(spec):
        yield invalid("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services")
    if kind == "ExternalName":
        yield from _external(spec)
    yield from _ports(spec, kind)
    yield from label_map(mapping(spec, "selector"), "spec.selector")
    yield from one_of_defaulted(spec, "spec", "sessionAffinity", ("ClientIP", "None"))
    yield from _affinity(spec)
    if kind != "ExternalName":
        yield from _addresses(spec)
    known = items(old, "spec", "externalIPs")
    for index, address in enumerate(strings(spec, "externalIPs")):
        errors = list(address_errors(address, f"spec.externalIPs[{index}]", known))
        yield from errors or endpoint_errors(address, f"spec.externalIPs[{index}]")
    yield from one_of_defaulted(spec, "spec", "type", TYPES)
    yield from _source_ranges(spec, annotations, old)
    if spec.get("allocateLoadBalancerNodePorts") is not None and kind != "LoadBalancer":
        yield forbidden("spec.allocateLoadBalancerNodePorts", _BALANCED)
    yield from _class(spec)
    yield from _traffic(spec, kind)


def _external(spec: Object) -> Errors:
    for name in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if spec.get(name):
            yield forbidden(f"spec.{name}", "may not be set for ExternalName services")
    target = text(spec, "externalName").removesuffix(".")
    if not target:
        yield required("spec.externalName")
        return
    for problem in dns_subdomain_errors(target):
        yield invalid("spec.externalName", target, problem)


def _ports(spec: Object, kind: str) -> Errors:
    found, names = objects(spec, "ports"), set[str]()
    node_ports, numbers = set[tuple[object, object]](), set[tuple[object, object]]()
    for index, each in found:
        field, name, protocol = f"spec.ports[{index}]", text(each, "name"), text(each, "protocol")
        if not name and len(found) > 1:
            yield required(f"{field}.name")
        yield from label(each, field, "name")
        if name in names:
            yield duplicate(f"{field}.name", name)
        if name:
            names.add(name)
        yield from port_number(each.get("port"), f"{field}.port")
        yield from one_of_defaulted(each, field, "protocol", PROTOCOLS)
        yield from port(each.get("targetPort"), f"{field}.targetPort")
        yield from label_key(f"{field}.appProtocol", each.get("appProtocol"))
        if each.get("nodePort"):
            if kind == "ClusterIP":
                yield forbidden(f"{field}.nodePort", "may not be used when `type` is 'ClusterIP'")
            if (protocol, integer(each["nodePort"])) in node_ports:
                yield duplicate(f"{field}.nodePort", each["nodePort"])
            node_ports.add((protocol, integer(each["nodePort"])))
        if (protocol, integer(each.get("port"))) in numbers:
            yield duplicate(field, {"protocol": protocol, "port": each.get("port")})
        numbers.add((protocol, integer(each.get("port"))))


def _affinity(spec: Object) -> Errors:
    config, field = spec.get("sessionAffinityConfig"), "spec.sessionAffinityConfig"
    if text(spec, "sessionAffinity") == "None" and config is not None:
        yield forbidden(field, "must not be set when session affinity is None")
    if text(spec, "sessionAffinity") != "ClientIP":
        return
    timeout = integer(mapping(config, "clientIP").get("timeoutSeconds"))
    if timeout is not None and not 0 < timeout <= _LONGEST_AFFINITY_S:
        detail = f"must be greater than 0 and less than {_LONGEST_AFFINITY_S}"
        yield invalid(f"{field}.clientIP.timeoutSeconds", timeout, detail)


def _addresses(spec: Object) -> Errors:
    """Check addresses in the cluster and their families."""
    first, addresses, families = text(spec, "clusterIP"), strings(spec, "clusterIPs"), strings(spec, "ipFamilies")
    field = "spec.clusterIPs"
    if not first and addresses:
        yield invalid(field, addresses, "must be empty when `clusterIP` is not specified")
    elif first and not addresses:
        yield required(field)
    elif first and addresses[0] != first:
        yield invalid(field, addresses, "first value must match `clusterIP`")
    seen = set[str]()
    for index, family in enumerate(families):
        if family not in _FAMILIES:
            yield not_supported(f"spec.ipFamilies[{index}]", family, _FAMILIES)
        if family in seen:
            yield duplicate(f"spec.ipFamilies[{index}]", family)
        seen.add(family)
    yield from one_of(spec, "spec", "ipFamilyPolicy", _FAMILY_POLICIES)
    are_valid = True
    for index, address in enumerate(addresses):
        if address == "None":
            if len(addresses) > 1:
                are_valid = False
                yield invalid(field, addresses, "'None' must be the first and only value")
                break
            continue
        errors = list(address_errors(address, f"{field}[{index}]"))
        yield from errors
        are_valid = are_valid and not errors
    if not are_valid:
        return
    if len(addresses) > 2:
        yield invalid(field, addresses, "may only hold up to 2 values")
    if len(addresses) > 1 and not are_dual(addresses):
        yield invalid(field, addresses, "may specify no more than one IP for each IP family")
    if not _is_headless(spec):
        for index, (address, family) in enumerate(zip(addresses, families, strict=False)):
            if (family == "IPv4" and is_ipv6(address)) or (family == "IPv6" and not is_ipv6(address)):
                yield invalid(f"{field}[{index}]", address, _expected(family, index))


def _expected(family: str, index: int) -> str:
    return f"expected an {family} value as indicated by `ipFamilies[{index}]`"


def _source_ranges(spec: Object, annotations: Object, old: Object) -> Errors:
    # Kubernetes names this field with a capital letter.
    field, balanced = "spec.LoadBalancerSourceRanges", text(spec, "type") == "LoadBalancer"
    ranges = strings(spec, "loadBalancerSourceRanges")
    if ranges:
        if not balanced:
            yield forbidden(field, _BALANCED)
        known = [each.strip() for each in strings(old, "spec", "loadBalancerSourceRanges")]
        for index, value in enumerate(ranges):
            yield from network_errors(value.strip(), f"{field}[{index}]", known)
    elif _RANGES in annotations:
        field, value = f"metadata.annotations[{_RANGES}]", text(annotations, _RANGES)
        if not balanced:
            yield forbidden(field, _BALANCED)
        if value.strip() and annotations_of(old).get(_RANGES) != value:
            for each in value.split(","):
                yield from network_errors(each.strip(), field)


def _class(spec: Object) -> Errors:
    name = spec.get("loadBalancerClass")
    if name is None:
        return
    if text(spec, "type") == "LoadBalancer":
        yield from label_key("spec.loadBalancerClass", name)
    else:
        yield forbidden("spec.loadBalancerClass", _BALANCED)


def _traffic(spec: Object, kind: str) -> Errors:
    is_external = kind in ("LoadBalancer", "NodePort") or (kind == "ClusterIP" and bool(items(spec, "externalIPs")))
    policy, check_port = text(spec, "externalTrafficPolicy"), integer(spec.get("healthCheckNodePort")) or 0
    if policy and not is_external:
        yield invalid("spec.externalTrafficPolicy", policy, "may only be set for externally-accessible services")
    elif policy:
        yield from one_of(spec, "spec", "externalTrafficPolicy", _POLICIES)
    if check_port and not needs_health_check(spec):
        detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        yield invalid("spec.healthCheckNodePort", check_port, detail)
    elif check_port:
        yield from port_number(check_port, "spec.healthCheckNodePort")
    yield from one_of(spec, "spec", "internalTrafficPolicy", _POLICIES)
    yield from one_of(spec, "spec", "trafficDistribution", _DISTRIBUTIONS)


def _address_changes(spec: Object, before: Object) -> Errors:
    addresses, old = strings(spec, "clusterIPs"), strings(before, "clusterIPs")
    if _is_headless(spec) and _is_headless(before):
        return
    first, policy = "spec.clusterIPs[0]", spec.get("ipFamilyPolicy")
    if len(addresses) == len(old):
        for index, (address, previous) in enumerate(zip(addresses, old, strict=True)):
            if address != previous:
                yield invalid(f"spec.clusterIPs[{index}]", addresses, _ONCE)
        return
    if old and not addresses:
        yield invalid(first, addresses, "primary clusterIP can not be unset")
    if old and addresses and addresses[0] != old[0]:
        yield invalid(first, addresses, _ONCE)
    if len(old) > len(addresses) == 1 and policy != "SingleStack":
        detail = "must be set to 'SingleStack' when releasing the secondary clusterIP"
        yield invalid("spec.ipFamilyPolicy", policy, detail)


def _family_changes(spec: Object, before: Object) -> Errors:
    families, old, first = strings(spec, "ipFamilies"), strings(before, "ipFamilies"), "spec.ipFamilies[0]"
    if _is_headless(spec) or _is_headless(before):
        return
    if len(families) == len(old):
        for family, previous in zip(families, old, strict=True):
            if family != previous:
                yield invalid(first, families, _ONCE)
        return
    if len(old) > len(families) and not strings(spec, "clusterIPs"):
        yield invalid(first, families, "primary ipFamily can not be unset")
    if old and families and families[0] != old[0]:
        yield invalid(first, strings(spec, "clusterIPs"), _ONCE)
    if len(old) > len(families) == 1 and spec.get("ipFamilyPolicy") != "SingleStack":
        detail = "must be set to 'SingleStack' when releasing the secondary ipFamily"
        yield invalid("spec.ipFamilyPolicy", spec.get("ipFamilyPolicy"), detail)


def balancer_errors(status: Object, at: str, old: Object, *, has_modes: bool) -> Errors:
    """Check where a balancer takes traffic in; only Services say how it passes addresses on."""
    known = [each.get("ip") for _, each in objects(old, "ingress")]
    for index, each in objects(status, "ingress"):
        field, address, host = f"{at}.ingress[{index}]", text(each, "ip"), text(each, "hostname")
        if address:
            yield from address_errors(address, f"{field}.ip", known)
        mode = each.get("ipMode")
        if has_modes and mode is None and address:
            yield required(f"{field}.ipMode", "must be specified when `ip` is set")
        elif has_modes and mode is not None and not address:
            yield forbidden(f"{field}.ipMode", "may not be specified when `ip` is not set")
        elif has_modes and mode is not None:
            yield from one_of(each, field, "ipMode", ("Proxy", "VIP"))
        if host:
            for problem in dns_subdomain_errors(host):
                yield invalid(f"{field}.hostname", host, problem)
            if parse_address(host) is not None:
                yield invalid(f"{field}.hostname", host, "must be a DNS name, not an IP address")


def validate_status(obj: Object, old: Object) -> list[FieldError]:
    """Check where the balancer of a Service takes traffic in."""
    field, status = "status.loadBalancer", mapping(obj, "status", "loadBalancer")
    if text(obj, "spec", "type") != "LoadBalancer" and items(status, "ingress"):
        return [forbidden(f"{field}.ingress", "may only be used when `spec.type` is 'LoadBalancer'")]
    return list(balancer_errors(status, field, mapping(old, "status", "loadBalancer"), has_modes=True))
