"""Requests and limits of a whole Pod: its containers beside each other, or those that start it, whatever is more.

`pods` calls it. Invariant: the sums are those by which Kubernetes schedules and charges a Pod: sidecars (containers
that start it and stay; `pod_sums`), resources of the Pod as a whole, overhead, and a resize that is under way included.
"""

from __future__ import annotations

import msgspec

from atoll.machinery.kinds.kubernetes.pod_sums import add, of_pod, raise_to
from atoll.machinery.kinds.kubernetes.usage.charge import Quantities, Totals, totals
from atoll.machinery.meta import quantity

_OF_PODS = frozenset({"cpu", "memory"})
_HUGE_PAGES = "hugepages-"


class Resources(msgspec.Struct, frozen=True, gc=False):
    requests: Quantities | None = None
    limits: Quantities | None = None


class Container(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    resources: Resources | None = None
    restartPolicy: str | None = None

    @property
    def stays(self) -> bool:
        """Of a container that starts the Pod: whether it runs on beside the others."""
        return self.restartPolicy == "Always"


class PodSpec(msgspec.Struct, frozen=True, gc=False):
    containers: list[Container] | None = None
    initContainers: list[Container] | None = None
    resources: Resources | None = None
    overhead: Quantities | None = None


class ContainerStatus(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    resources: Resources | None = None
    allocatedResources: Quantities | None = None


class Condition(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    reason: str | None = None


class PodStatus(msgspec.Struct, frozen=True, gc=False):
    containerStatuses: list[ContainerStatus] | None = None
    initContainerStatuses: list[ContainerStatus] | None = None
    conditions: list[Condition] | None = None


def has_own(spec: PodSpec) -> bool:
    """Whether the Pod as a whole has requests or limits of what it may have."""
    own = spec.resources or Resources()
    return any(map(_is_of_pods, (*(own.requests or ()), *(own.limits or ()))))


def requests(spec: PodSpec, status: PodStatus) -> Totals:
    total = _aggregate(spec, status, _requests)
    own = totals(spec.resources.requests if spec.resources is not None else None)
    total |= {name: value for name, value in own.items() if _is_of_pods(name)}
    add(total, totals(spec.overhead), quantity.add)
    return total


def limits(spec: PodSpec, status: PodStatus) -> Totals:
    """Overhead raises limits that there are."""
    total = _aggregate(spec, status, _limits)
    own = totals(spec.resources.limits if spec.resources is not None else None)
    total |= {name: value for name, value in own.items() if _is_of_pods(name)}
    add(total, {name: value for name, value in totals(spec.overhead).items() if total.get(name)}, quantity.add)
    return total


def _is_of_pods(name: str) -> bool:
    return name in _OF_PODS or name.startswith(_HUGE_PAGES)


class _Of(msgspec.Struct, frozen=True):
    """The part of resources that is added up; of a resize, whether what is allocated counts."""

    limits: bool

    def of(self, resources: Resources | None) -> Totals:
        if resources is None:
            return {}
        return totals(resources.limits if self.limits else resources.requests)

    def effective(self, container: Container, status: ContainerStatus | None, is_infeasible: bool) -> Totals:
        """Return what a container has: during a resize the most of what it shall have and what it has."""
        requested = self.of(container.resources)
        if status is None or status.resources is None:
            return requested
        total = {} if is_infeasible else requested
        raise_to(total, self.of(status.resources))
        if not self.limits:
            raise_to(total, totals(status.allocatedResources))
        return total


_requests, _limits = _Of(False), _Of(True)


def _aggregate(spec: PodSpec, status: PodStatus, part: _Of) -> Totals:
    statuses = {each.name: each for each in (*(status.containerStatuses or ()), *(status.initContainerStatuses or ()))}
    resizing = next((each for each in status.conditions or () if each.type == "PodResizePending"), Condition())
    is_infeasible = resizing.reason == "Infeasible"
    containers = (part.effective(each, statuses.get(each.name), is_infeasible) for each in spec.containers or ())
    starting = (
        (part.effective(each, statuses.get(each.name) if each.stays else None, is_infeasible), each.stays)
        for each in spec.initContainers or ()
    )
    return of_pod(containers, starting, quantity.add)
