"""NetworkPolicies: ports and peers."""

from __future__ import annotations

from collections.abc import Collection

from atoll.machinery.kinds.checks import items, mapping, objects, strings, text
from atoll.machinery.kinds.kubernetes.validation.addresses import network_errors, parse_network
from atoll.machinery.kinds.kubernetes.validation.rules import Errors, integer, not_empty, one_of, port, port_number
from atoll.machinery.kinds.kubernetes.validation.scheduling import selector
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import forbidden, invalid, not_supported, required

_TYPES = ("Ingress", "Egress")
_PEERS = {"ingress": "from", "egress": "to"}


def validate(obj: Object) -> list[FieldError]:
    """Check a new NetworkPolicy."""
    return list(_spec(mapping(obj, "spec"), (), any_values=False))


def validate_update(obj: Object, old: Object) -> list[FieldError]:
    """Check one that replaces another, whose ranges may stay whatever they are."""
    before = mapping(old, "spec")
    blocks = [
        mapping(peer, "ipBlock")
        for kind, name in _PEERS.items()
        for _, rule in objects(before, kind)
        for _, peer in objects(rule, name)
    ]
    ranges = {value for block in blocks for value in (*strings(block, "except"), text(block, "cidr"))}
    any_values = bool(selector(before.get("podSelector"), ""))
    return list(_spec(mapping(obj, "spec"), ranges, any_values=any_values))


def _spec(spec: Object, ranges: Collection[object], *, any_values: bool) -> Errors:
    yield from selector(spec.get("podSelector"), "spec.podSelector", any_values=any_values)
    for kind, name in _PEERS.items():
        for index, rule in objects(spec, kind):
            at = f"spec.{kind}[{index}]"
            for position, each in objects(rule, "ports"):
                yield from _port(each, f"{at}.ports[{position}]")
            for position, peer in objects(rule, name):
                yield from _peer(peer, f"{at}.{name}[{position}]", ranges, any_values)
    types = items(spec, "policyTypes")
    if len(types) > len(_TYPES):
        yield invalid("spec.policyTypes", types, "may not specify more than two policyTypes")
        return
    for index, each in enumerate(types):
        if each not in _TYPES:
            yield not_supported(f"spec.policyTypes[{index}]", each, _TYPES)


def _port(each: Object, at: str) -> Errors:
    yield from one_of(each, at, "protocol", ("TCP", "UDP", "SCTP"))
    number, end = each.get("port"), integer(each.get("endPort"))
    yield from port(number, f"{at}.port")
    if end is None:
        return
    first = integer(number)
    if number is None:
        yield invalid(f"{at}.endPort", end, "may not be specified when `port` is not specified")
    elif first is None:
        yield invalid(f"{at}.endPort", end, "may not be specified when `port` is non-numeric")
    else:
        if end < first:
            yield invalid(f"{at}.endPort", first, "must be greater than or equal to `port`")
        yield from port_number(end, f"{at}.endPort")


def _peer(peer: Object, at: str, ranges: Collection[object], any_values: bool) -> Errors:
    present = [name for name in ("podSelector", "namespaceSelector", "ipBlock") if peer.get(name) is not None]
    for name in present:
        if name == "ipBlock":
            yield from _block(mapping(peer, name), f"{at}.{name}", ranges)
        else:
            yield from selector(peer[name], f"{at}.{name}", any_values=any_values)
    if not present:
        yield required(at, "must specify a peer")
    elif len(present) > 1 and "ipBlock" in present:
        yield forbidden(at, "may not specify both ipBlock and another peer")


def _block(block: Object, at: str, ranges: Collection[object]) -> Errors:
    if not block.get("cidr"):
        yield from not_empty(block, at, "cidr")
        return
    yield from network_errors(block["cidr"], f"{at}.cidr", ranges)
    whole = parse_network(block["cidr"]) if isinstance(block["cidr"], str) else None
    if whole is None:
        return
    for index, value in enumerate(strings(block, "except")):
        field = f"{at}.except[{index}]"
        yield from network_errors(value, field, ranges)
        part = parse_network(value)
        if part is not None and (part.network_address not in whole or whole.prefixlen >= part.prefixlen):
            yield invalid(field, value, "must be a strict subset of `cidr`")
