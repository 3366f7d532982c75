"""Fields of Services that follow from each other: families and their policy, and what another type leaves behind.

Pure, on the `spec` of a Service with its defaults; admission gives out addresses and ports between these steps. The
order of an update is that of kube-apiserver: `keep_given`, `pair_addresses`, `set_families`, allocation,
`drop_of_old_type`. Every workspace has both families, IPv4 first.
"""

from __future__ import annotations

from copy import copy
from ipaddress import ip_address

from atoll.machinery.kinds.checks import items, mapping, objects, text
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import invalid

IPV4, IPV6 = "IPv4", "IPv6"
NO_ADDRESS = "None"
_SINGLE, _PREFER, _REQUIRE = "SingleStack", "PreferDualStack", "RequireDualStack"
_WITH_PORTS = frozenset({"NodePort", "LoadBalancer"})


def has_address(spec: Object) -> bool:
    """Whether Services of this type have a cluster IP, or say that they have none."""
    return text(spec, "type") != "ExternalName"


def is_headless(spec: Object) -> bool:
    """Whether it says that it has no cluster IP."""
    return text(spec, "clusterIP") == NO_ADDRESS


def gives_ports(spec: Object) -> bool:
    """Whether each port gets a node port."""
    kind = text(spec, "type")
    return kind == "NodePort" or (kind == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is not False)


def has_health_port(spec: Object) -> bool:
    """Whether it has a node port for health checks."""
    return text(spec, "type") == "LoadBalancer" and text(spec, "externalTrafficPolicy") == "Local"


def node_ports(spec: Object) -> list[int]:
    """Return the node ports of its ports."""
    return [port["nodePort"] for _, port in objects(spec, "ports") if port.get("nodePort")]


def family_of(address: str) -> str:
    """Return the family of an address. Raises ValueError."""
    return IPV4 if ip_address(address).version == 4 else IPV6


def keep_given(spec: Object, old: Object) -> None:
    """Keep what was given out and the client does not repeat, so that the same manifest is accepted again."""
    if has_address(spec) and has_address(old):
        for field in ("clusterIP", "clusterIPs"):
            if not spec.get(field) and old.get(field):
                spec[field] = copy(old[field])
    if gives_ports(spec) and gives_ports(old):
        used = set(node_ports(spec)) & set(node_ports(old))
        by_name = {text(port, "name"): port.get("nodePort") for _, port in objects(old, "ports")}
        for _, each in objects(spec, "ports"):
            known = by_name.get(text(each, "name"))
            if not each.get("nodePort") and known and known not in used:
                each["nodePort"] = known
    port = old.get("healthCheckNodePort")
    if port and has_health_port(spec) and has_health_port(old) and not spec.get("healthCheckNodePort"):
        spec["healthCheckNodePort"] = port


def pair_addresses(spec: Object, old: Object | None) -> None:
    """Make clusterIP and clusterIPs follow a client that writes only one of them."""
    single, every = text(spec, "clusterIP"), items(spec, "clusterIPs")
    if old is None:
        if single and not every:
            spec["clusterIPs"] = [single]
        return
    before, all_before = text(old, "clusterIP"), items(old, "clusterIPs")
    if single == before:
        if all_before and not every:
            spec["clusterIPs"] = list(all_before)
    elif every == all_before:
        if single:
            spec["clusterIPs"] = [single]
        else:
            spec.pop("clusterIPs", None)


def keeps_families(spec: Object, old: Object) -> bool:
    """Whether a Service that prefers two families stays as it is, however many it has."""
    return (
        text(spec, "type") == text(old, "type") != "ExternalName"
        and text(spec, "ipFamilyPolicy") == _PREFER
        and text(old, "ipFamilyPolicy") in ("", _PREFER)
        and items(spec, "clusterIPs") == items(old, "clusterIPs")
        and items(spec, "ipFamilies") == items(old, "ipFamilies")
    )


def is_consistent(spec: Object) -> bool:
    """Whether addresses and families agree, so that something may follow from them; validation reports the others."""
    single, every, families = text(spec, "clusterIP"), items(spec, "clusterIPs"), items(spec, "ipFamilies")
    if single != (every[0] if every else "") or len(every) > 2:
        return False
    if len(set(families)) != len(families) or not {IPV4, IPV6}.issuperset(families):
        return False
    if text(spec, "ipFamilyPolicy") not in ("", _SINGLE, _PREFER, _REQUIRE):
        return False
    if every == [NO_ADDRESS]:
        return True
    try:
        found = [family_of(address) for address in every]
    except ValueError:
        return False
    return len(set(found)) == len(found) and all(a == b for a, b in zip(found, families, strict=False))


def set_families(spec: Object, old: Object | None) -> list[FieldError]:
    """Set policy and families of a consistent Service that has an address or says that it has none."""
    if not spec.get("ipFamilyPolicy"):
        is_open = is_headless(spec) and not mapping(spec, "selector")
        known = text(old, "ipFamilyPolicy") if old is not None else ""
        spec["ipFamilyPolicy"] = known or (_REQUIRE if is_open else _SINGLE)
    errors = [*(_shorten(spec, old) if old is not None else ()), *_too_many(spec)]
    if errors:
        return errors
    families = list(items(spec, "ipFamilies"))
    if not is_headless(spec):
        families += [family_of(address) for address in items(spec, "clusterIPs")[len(families) :]]
    families = families or [IPV4]
    if spec["ipFamilyPolicy"] != _SINGLE and len(families) == 1:
        families.append(IPV6 if families == [IPV4] else IPV4)
    spec["ipFamilies"] = families
    return []


def _shorten(spec: Object, old: Object) -> list[FieldError]:
    """Release the second family of a Service that asks for one; nothing is released without that."""
    errors = []
    policy = spec["ipFamilyPolicy"]
    for field, what in (("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")):
        now, before = items(spec, field), items(old, field)
        if policy == _SINGLE:
            if now == before and len(now) > 1:
                spec[field] = now[:1]
        elif now and len(now) < len(before):
            text = f"must be 'SingleStack' to release the secondary {what}"
            errors.append(invalid("spec.ipFamilyPolicy", policy, text))
    return errors


def _too_many(spec: Object) -> list[FieldError]:
    policy = spec["ipFamilyPolicy"]
    if policy != _SINGLE:
        return []
    must = "must be 'RequireDualStack' or 'PreferDualStack' when multiple {} are specified"
    fields = (("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families"))
    found = [what for field, what in fields if len(items(spec, field)) == 2]
    return [invalid("spec.ipFamilyPolicy", policy, must.format(what)) for what in found]


def drop_of_old_type(spec: Object, old: Object) -> None:
    """Drop what the new type has no use for and the client did not change."""
    if has_address(old) and not has_address(spec):
        same = all((spec.get(field) or None) == (old.get(field) or None) for field in ("clusterIP", "clusterIPs"))
        fields = [*(("clusterIP", "clusterIPs") if same else ()), *_same(spec, old, "ipFamilies", "ipFamilyPolicy")]
        _drop(spec, *fields)
    kind, before = text(spec, "type"), text(old, "type")
    if before in _WITH_PORTS and kind not in _WITH_PORTS and set(node_ports(spec)) <= set(node_ports(old)):
        for _, port in objects(spec, "ports"):
            port.pop("nodePort", None)
    if has_health_port(old) and not has_health_port(spec):
        _drop(spec, *_same(spec, old, "healthCheckNodePort"))
    if before == "LoadBalancer" != kind:
        _drop(spec, *_same(spec, old, "allocateLoadBalancerNodePorts", "loadBalancerClass"))
    if _is_external(old) and not _is_external(spec):
        _drop(spec, *_same(spec, old, "externalTrafficPolicy"))


def _is_external(spec: Object) -> bool:
    kind = text(spec, "type")
    return kind in _WITH_PORTS or (kind == "ClusterIP" and bool(items(spec, "externalIPs")))


def _same(spec: Object, old: Object, *fields: str) -> list[str]:
    return [field for field in fields if spec.get(field) == old.get(field)]


def _drop(spec: Object, *fields: str) -> None:
    for field in fields:
        spec.pop(field, None)
