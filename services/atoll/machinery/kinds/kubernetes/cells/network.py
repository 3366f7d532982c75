"""Cells of the network's kinds: Services, endpoints, Ingresses, policies, addresses."""

from __future__ import annotations

from atoll.machinery.kinds.checks import items, number, objects, strings, text
from atoll.machinery.kinds.kubernetes.cells.common import MAX_ENTRIES, NONE, UNKNOWN, UNSET, Accessor, cut, selector
from atoll.machinery.meta.objects import Object

_IPV6 = ":"


def _external_ip(obj: Object, now_s: float) -> object:
    kind, own = text(obj, "spec", "type"), strings(obj, "spec", "externalIPs")
    if kind in ("ClusterIP", "NodePort"):
        return ",".join(own) or NONE
    if kind == "LoadBalancer":
        return ",".join([*_balancers(obj), *own]) or "<pending>"
    return text(obj, "spec", "externalName") if kind == "ExternalName" else UNKNOWN


def _balancers(obj: Object) -> list[str]:
    found = (each for _, each in objects(obj, "status", "loadBalancer", "ingress"))
    return sorted({text(each, "ip") or text(each, "hostname") for each in found} - {""})


def _ports(obj: Object, now_s: float) -> object:
    return ",".join(_port(each) for _, each in objects(obj, "spec", "ports")) or NONE


def _port(port: Object) -> str:
    node = number(port, "nodePort")
    numbers = f"{number(port, 'port')}:{node}" if node else str(number(port, "port"))
    return f"{numbers}/{text(port, 'protocol')}"


def _endpoints(obj: Object, now_s: float) -> object:
    found: list[str] = []
    for _, subset in objects(obj, "subsets"):
        addresses = [text(each, "ip") for _, each in objects(subset, "addresses")]
        ports = [number(each, "port") for _, each in objects(subset, "ports")]
        found += [_joined(each, port) for port in ports for each in addresses] if ports else addresses
    return cut(found) if items(obj, "subsets") else NONE


def _joined(address: str, port: int | None) -> str:
    return f"[{address}]:{port}" if _IPV6 in address else f"{address}:{port}"


def _slice_ports(obj: Object, now_s: float) -> object:
    found = []
    for _, port in objects(obj, "ports"):
        at = number(port, "port")
        found.append(str(at) if at is not None else text(port, "name") if "name" in port else "*")
    return cut(found) or UNSET


def _slice_endpoints(obj: Object, now_s: float) -> object:
    return cut([address for _, each in objects(obj, "endpoints") for address in strings(each, "addresses")]) or UNSET


def _hosts(obj: Object, now_s: float) -> object:
    rules = [text(each, "host") for _, each in objects(obj, "spec", "rules")]
    found: list[str] = []
    for host in rules:
        if len(found) == MAX_ENTRIES:
            return f"{','.join(found)} + {len(rules) - MAX_ENTRIES} more..."
        found += [host] if host else []
    return ",".join(found) or "*"


def _ingress_address(obj: Object, now_s: float) -> object:
    return ",".join(_balancers(obj))


def _ingress_ports(obj: Object, now_s: float) -> object:
    return "80, 443" if items(obj, "spec", "tls") else "80"


def _class_parameters(obj: Object, now_s: float) -> object:
    kind, group, name = (text(obj, "spec", "parameters", field) for field in ("kind", "apiGroup", "name"))
    if not kind and not name:
        return NONE
    return f"{kind}.{group}/{name}" if group else f"{kind}/{name}"


def _cidrs(obj: Object, now_s: float) -> object:
    return ",".join(strings(obj, "spec", "cidrs"))


def _parent_reference(obj: Object, now_s: float) -> object:
    group, resource, namespace, name = (
        text(obj, "spec", "parentRef", field) for field in ("group", "resource", "namespace", "name")
    )
    if not resource and not name:
        return NONE
    of = f"{resource}.{group}" if group else resource
    return "/".join([of.lower(), *([namespace] if namespace else []), name])


ACCESSORS: dict[str, Accessor] = {
    "cidrs": _cidrs,
    "class_parameters": _class_parameters,
    "endpoints": _endpoints,
    "ingress_address": _ingress_address,
    "ingress_hosts": _hosts,
    "ingress_ports": _ingress_ports,
    "parent_reference": _parent_reference,
    "pod_selector": selector("spec", "podSelector"),
    "service_external_ip": _external_ip,
    "service_ports": _ports,
    "slice_endpoints": _slice_endpoints,
    "slice_ports": _slice_ports,
}
