"""What a Pod uses: itself, and until it has ended its requests and limits.

Unlike Kubernetes, a Pod that is past its time of deletion is charged until it is gone: what a quota counts changes with
writes alone, never with the clock.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec

from atoll.machinery.kinds.kubernetes.usage.charge import Amount, Charge, Totals, totals
from atoll.machinery.kinds.kubernetes.usage.pod_resources import (
    PodSpec,
    PodStatus,
    Resources,
    has_own,
    limits,
    requests,
)

COUNTS: dict[str, Amount] = {"count/pods": 1}
_MEASURED = ("cpu", "memory", "ephemeral-storage")
_REQUESTS, _LIMITS = "requests.", "limits."
NAMES = frozenset(prefix + name for name in _MEASURED for prefix in ("", _REQUESTS, _LIMITS))
SCOPES = frozenset(
    {"Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "PriorityClass", "CrossNamespacePodAffinity"}
)
_HUGE_PAGES, _DEVICES = "hugepages-", "deviceclass.resource.kubernetes.io/"
_NATIVE = "kubernetes.io/"
#: Of these a quota makes every container say what it wants.
_REQUIRED = ("cpu", "memory")
_ENDED = frozenset({"Succeeded", "Failed"})


class _Term(msgspec.Struct, frozen=True, gc=False):
    namespaces: list[str] | None = None
    namespaceSelector: msgspec.Raw = msgspec.Raw()

    @property
    def is_cross_namespace(self) -> bool:
        return bool(self.namespaces) or bytes(self.namespaceSelector) not in {b"", b"null"}


class _WeightedTerm(msgspec.Struct, frozen=True, gc=False):
    podAffinityTerm: _Term = _Term()


class _Terms(msgspec.Struct, frozen=True, gc=False):
    requiredDuringSchedulingIgnoredDuringExecution: list[_Term] | None = None
    preferredDuringSchedulingIgnoredDuringExecution: list[_WeightedTerm] | None = None


class _Affinity(msgspec.Struct, frozen=True, gc=False):
    podAffinity: _Terms | None = None
    podAntiAffinity: _Terms | None = None


class _Spec(PodSpec, frozen=True, gc=False):
    activeDeadlineSeconds: int | None = None
    priorityClassName: str | None = None
    affinity: _Affinity | None = None


class _Status(PodStatus, frozen=True, gc=False):
    phase: str | None = None
    qosClass: str | None = None


class _Pod(msgspec.Struct, frozen=True, gc=False):
    spec: _Spec = _Spec()
    status: _Status | None = None


_pod = msgspec.json.Decoder(_Pod).decode


def charge(value: bytes) -> Charge:
    try:
        pod = _pod(value)
    except msgspec.DecodeError:
        return Charge({**COUNTS, "pods": 1})
    spec, status = pod.spec, pod.status or _Status()
    amounts = dict(COUNTS)
    if status.phase not in _ENDED:
        amounts |= {"pods": 1, **_amounts(requests(spec, status), limits(spec, status))}
    is_terminating = spec.activeDeadlineSeconds is not None and spec.activeDeadlineSeconds >= 0
    requested = (spec.containers, spec.initContainers, spec.resources, spec.overhead, is_terminating)
    missing = {} if has_own(spec) else _missing(spec)
    return Charge(amounts, _scopes(spec, status, is_terminating), requested, missing)


def charges(name: str) -> bool:
    """Whether Pods use a resource of a quota, beside being counted."""
    if name in NAMES or name.startswith((_HUGE_PAGES, _REQUESTS + _HUGE_PAGES)):
        return True
    extended = name.removeprefix(_REQUESTS)
    return extended != name and _is_extended(extended)


def _is_extended(name: str) -> bool:
    """Whether a resource is one of somebody's own, or of a device class."""
    is_own = "/" in name and _NATIVE not in name and not name.startswith(_REQUESTS)
    return is_own or name.startswith(_DEVICES)


def _amounts(requested: Totals, limited: Totals) -> dict[str, Amount]:
    found: dict[str, Amount] = {}
    for name, value in requested.items():
        if name in _MEASURED or name.startswith(_HUGE_PAGES):
            found[name] = found[_REQUESTS + name] = value
        elif _is_extended(name):
            found[_REQUESTS + name] = value
    return found | {_LIMITS + name: limited[name] for name in _MEASURED if name in limited}


def _missing(spec: PodSpec) -> dict[str, tuple[str, ...]]:
    found = defaultdict[str, set[str]](set)
    for container in (*(spec.containers or ()), *(spec.initContainers or ())):
        for name in _not_said(container.resources or Resources()):
            found[name].add(container.name)
    return {name: tuple(sorted(found[name])) for name in sorted(found)}


def _not_said(resources: Resources) -> list[str]:
    requested, limited = resources.requests or {}, resources.limits or {}
    without = [prefix + name for name in _REQUIRED if name not in requested for prefix in ("", _REQUESTS)]
    return without + [_LIMITS + name for name in _REQUIRED if name not in limited]


def _scopes(spec: _Spec, status: _Status, is_terminating: bool) -> dict[str, tuple[str, ...] | None]:
    is_best_effort = status.qosClass == "BestEffort" if status.qosClass else _is_best_effort(spec)
    affinity = spec.affinity or _Affinity()
    crosses = any(_crosses(terms) for terms in (affinity.podAffinity, affinity.podAntiAffinity) if terms is not None)
    is_in = {
        "Terminating": is_terminating,
        "NotTerminating": not is_terminating,
        "BestEffort": is_best_effort,
        "NotBestEffort": not is_best_effort,
        "CrossNamespacePodAffinity": crosses,
    }
    scopes: dict[str, tuple[str, ...] | None] = {name: () if yes else None for name, yes in is_in.items()}
    scopes["PriorityClass"] = (spec.priorityClassName,) if spec.priorityClassName else None
    return scopes


def _is_best_effort(spec: PodSpec) -> bool:
    if spec.resources is not None:
        parts = [spec.resources]
    else:
        containers = (*(spec.containers or ()), *(spec.initContainers or ()))
        parts = [each.resources for each in containers if each.resources is not None]
    said = (totals(quantities) for part in parts for quantities in (part.requests, part.limits))
    return not any(found.get(name, 0) > 0 for found in said for name in _REQUIRED)


def _crosses(terms: _Terms) -> bool:
    required = terms.requiredDuringSchedulingIgnoredDuringExecution or ()
    preferred = terms.preferredDuringSchedulingIgnoredDuringExecution or ()
    return any(term.is_cross_namespace for term in (*required, *(each.podAffinityTerm for each in preferred)))
