"""What a Pod as a whole requests and is limited to: sums of its containers, exactly, and its quality of service.

`pod_sums` has the rule. What `spec.resources` says of CPU and memory replaces the sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

import msgspec

from atoll.machinery.kinds.checks import mapping, objects, text
from atoll.machinery.kinds.kubernetes.pod_sums import of_pod
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.quantity import DECIMAL, add, format_quantity, parse, read

#: The amounts that a Pod may say as a whole.
_OF_PODS = ("cpu", "memory")
_QUALITY = ("cpu", "memory")


class Amount(msgspec.Struct, frozen=True):
    """A quantity with the family of suffixes in which it is written."""

    value: Decimal
    family: str = DECIMAL

    @property
    def text(self) -> str:
        """The canonical text."""
        return format_quantity(self.value, self.family)

    def plus(self, other: Amount) -> Amount:
        """Return the sum, in the family of the first that is not zero."""
        return Amount(add(self.value, other.value), self.family if self.value else other.family)

    def __gt__(self, other: Amount) -> bool:
        return self.value > other.value


Amounts = dict[str, Amount]


def amounts_of(container: Object, field: str) -> Amounts:
    """Return the `requests` or `limits` of a container, or of a Pod's spec. Raises ValueError."""
    return {name: Amount(*read(value)) for name, value in mapping(container, "resources", field).items()}


def container_amounts(spec: Object, field: str) -> Amounts:
    """Return what the containers of a Pod's spec request, or are limited to, together. Raises ValueError."""
    containers = (amounts_of(each, field) for _, each in objects(spec, "containers"))
    starting = (
        (amounts_of(each, field), text(each, "restartPolicy") == "Always")
        for _, each in objects(spec, "initContainers")
    )
    return of_pod(containers, starting, Amount.plus)


def pod_amounts(pod: Object, field: str) -> Amounts:
    """Return the `requests` or `limits` of a Pod, without overhead. Raises ValueError for what is no quantity."""
    total = container_amounts(mapping(pod, "spec"), field)
    said = amounts_of(mapping(pod, "spec"), field)
    total.update({name: said[name] for name in _OF_PODS if name in said})
    return total


def quality_of_service(pod: Object) -> str:
    """Return Guaranteed, Burstable or BestEffort. Raises ValueError for what is no quantity."""
    spec = mapping(pod, "spec")
    parts = [spec] if isinstance(spec.get("resources"), dict) else _containers(spec)
    requests: dict[str, Decimal] = {}
    limits: dict[str, Decimal] = {}
    is_guaranteed = True
    for part in parts:
        for total, field in ((requests, "requests"), (limits, "limits")):
            found = _positive(mapping(part, "resources", field))
            for name, value in found.items():
                total[name] = total.get(name, Decimal(0)) + value
            if field == "limits" and len(found) != len(_QUALITY):
                is_guaranteed = False
    if not requests and not limits:
        return "BestEffort"
    return "Guaranteed" if is_guaranteed and requests == limits else "Burstable"


def _containers(spec: Object) -> list[Object]:
    return [each for field in ("containers", "initContainers") for _, each in objects(spec, field)]


def _positive(amounts: Mapping[str, str | int | float]) -> dict[str, Decimal]:
    found = {name: parse(amounts[name]) for name in _QUALITY if name in amounts}
    return {name: value for name, value in found.items() if value > 0}
