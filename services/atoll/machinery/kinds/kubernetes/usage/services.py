"""What a Service uses: itself, its ports on nodes, and a load balancer."""

from __future__ import annotations

import msgspec

from atoll.machinery.kinds.kubernetes.usage.charge import Charge

COUNTS = {"count/services": 1, "services": 1}
NAMES = frozenset({"services.nodeports", "services.loadbalancers"})


class _Port(msgspec.Struct, frozen=True, gc=False):
    nodePort: int | None = None


class _Spec(msgspec.Struct, frozen=True, gc=False):
    type: str | None = None
    ports: list[_Port] | None = None
    allocateLoadBalancerNodePorts: bool | None = None


class _Service(msgspec.Struct, frozen=True, gc=False):
    spec: _Spec = _Spec()


_service = msgspec.json.Decoder(_Service).decode


def charge(value: bytes) -> Charge:
    try:
        spec = _service(value).spec
    except msgspec.DecodeError:
        return Charge(COUNTS)
    amounts = dict(COUNTS)
    ports = spec.ports or []
    if spec.type == "LoadBalancer":
        amounts["services.loadbalancers"] = 1
        if spec.allocateLoadBalancerNodePorts is False:
            ports = [port for port in ports if port.nodePort]
    if spec.type in ("NodePort", "LoadBalancer"):
        amounts["services.nodeports"] = len(ports)
    return Charge(amounts, requested=spec)
