"""What a Pod as a whole requests and is limited to: sums of its containers, exactly, and its quality of service.

Containers and sidecars (init containers that are always restarted) run together; each other init container runs beside
the sidecars that were started before it. What `spec.resources` says of CPU and memory replaces the sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

import msgspec

from atoll.machinery.kinds.checks import mapping, objects, text
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.quantity import DECIMAL, format_quantity, parse, read

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
        return Amount(self.value + other.value, self.family if self.value else other.family)


Amounts = dict[str, Amount]


def amounts_of(container: Object, field: str) -> Amounts:
    """Return the `requests` or `limits` of a container, or of a Pod's spec. Raises ValueError."""
    return {name: Amount(*read(value)) for name, value in mapping(container, "resources", field).items()}


def pod_amounts(pod: Object, field: str) -> Amounts:
    """Return the `requests` or `limits` of a Pod, without overhead. Raises ValueError for what is no quantity."""
    total: Amounts = {}
    for _, container in objects(pod, "spec", "containers"):
        _add(total, amounts_of(container, field))
    sidecars: Amounts = {}
    starting: Amounts = {}
    for _, container in objects(pod, "spec", "initContainers"):
        own = amounts_of(container, field)
        if text(container, "restartPolicy") == "Always":
            _add(total, own)
            _add(sidecars, own)
            _raise(starting, sidecars)
        else:
            _add(own, sidecars)
            _raise(starting, own)
    _raise(total, starting)
    said = amounts_of(mapping(pod, "spec"), field)
    total.update({name: said[name] for name in _OF_PODS if name in said})
    return total


def _add(total: Amounts, more: Mapping[str, Amount]) -> None:
    for name, amount in more.items():
        total[name] = total[name].plus(amount) if name in total else amount


def _raise(total: Amounts, least: Mapping[str, Amount]) -> None:
    for name, amount in least.items():
        if name not in total or amount.value > total[name].value:
            total[name] = amount


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
