"""Ports of containers, and that no two of a pod ask for the same port of a node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from atoll.machinery.kinds.checks import invalid_values, objects, text
from atoll.machinery.kinds.kubernetes.validation.rules import Errors, one_of_defaulted, port_name_errors, port_number
from atoll.machinery.meta.objects import Object
from atoll.machinery.schema.fielderrors import duplicate, invalid, required

PROTOCOLS = ("SCTP", "TCP", "UDP")


def container_ports(container: Object, at: str) -> Errors:
    """Check the ports of a container."""
    names = set[str]()
    for index, port in objects(container, "ports"):
        field, name = f"{at}.ports[{index}]", text(port, "name")
        if name:
            problems = port_name_errors(name)
            yield from invalid_values(f"{field}.name", name, problems)
            if not problems and name in names:
                yield duplicate(f"{field}.name", name)
            names.add(name)
        if port.get("containerPort") == 0:
            yield required(f"{field}.containerPort")
        else:
            yield from port_number(port.get("containerPort"), f"{field}.containerPort")
        if port.get("hostPort"):
            yield from port_number(port["hostPort"], f"{field}.hostPort")
        yield from one_of_defaulted(port, field, "protocol", PROTOCOLS)


def host_ports(containers: Iterable[tuple[int, Object]], at: str) -> Errors:
    """Check that containers do not ask for the same port of the node twice."""
    seen = set[str]()
    for index, container in containers:
        for position, port in objects(container, "ports"):
            if port.get("hostPort"):
                key = f"{text(port, 'protocol')}/{text(port, 'hostIP')}/{port['hostPort']}"
                if key in seen:
                    yield duplicate(f"{at}[{index}].ports[{position}].hostPort", key)
                seen.add(key)


def own_host_ports(containers: Sequence[tuple[int, Object]], at: str) -> Errors:
    """Check each container for itself; initial ones run one after another."""
    for _, container in containers:
        yield from host_ports([(0, container)], at)


def host_network_ports(spec: Object, at: str, *, is_pod: bool) -> Errors:
    """Check that ports are those of the node, in whose network the pod is."""
    if spec.get("hostNetwork") is not True:
        return
    for index, container in objects(spec, "containers"):
        for position, port in objects(container, "ports"):
            host = port.get("hostPort") or 0
            if (is_pod or host) and host != port.get("containerPort"):
                field = f"{at}.containers[{index}].ports[{position}].hostPort"
                yield invalid(field, host, "must match `containerPort` when `hostNetwork` is true")
