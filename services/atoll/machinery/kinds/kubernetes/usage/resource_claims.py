"""What a ResourceClaim uses: itself, and devices of each class, as many as it may be given."""

from __future__ import annotations

import msgspec

from atoll.machinery.kinds.kubernetes.usage.charge import Charge

GROUP = "resource.k8s.io"
COUNTS = {f"count/resourceclaims.{GROUP}": 1}
#: Of a class: its name and this.
OF_CLASS = ".deviceclass.resource.k8s.io/devices"
#: Devices that one allocation holds at most: what a request of all devices uses.
_ALL = 32


class _Exactly(msgspec.Struct, frozen=True, gc=False):
    deviceClassName: str = ""
    allocationMode: str = ""
    count: int = 0

    @property
    def devices(self) -> int:
        match self.allocationMode:
            case "ExactCount":
                return self.count
            case "All":
                return _ALL
        return 0


class _Request(msgspec.Struct, frozen=True, gc=False):
    exactly: _Exactly | None = None
    firstAvailable: list[_Exactly] | None = None


class _Devices(msgspec.Struct, frozen=True, gc=False):
    requests: list[_Request] | None = None


class _Spec(msgspec.Struct, frozen=True, gc=False):
    devices: _Devices | None = None


class _ResourceClaim(msgspec.Struct, frozen=True, gc=False):
    spec: _Spec = _Spec()


_resource_claim = msgspec.json.Decoder(_ResourceClaim).decode


def charge(value: bytes) -> Charge:
    try:
        spec = _resource_claim(value).spec
    except msgspec.DecodeError:
        return Charge(COUNTS)
    amounts = dict(COUNTS)
    for request in (spec.devices or _Devices()).requests or []:
        # Of alternatives the most of each class.
        most: dict[str, int] = {}
        for each in request.firstAvailable or [request.exactly or _Exactly()]:
            most[each.deviceClassName] = max(most.get(each.deviceClassName, 0), each.devices)
        for name, devices in most.items():
            amounts[name + OF_CLASS] = amounts.get(name + OF_CLASS, 0) + devices
    return Charge(amounts, requested=spec)
