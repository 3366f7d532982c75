"""The bounds of one LimitRange: minima, maxima and ratios of containers, Pods and claims.

Pure. Each violation is the text of kube-apiserver; amounts are compared exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal

from atoll.machinery.kinds.checks import mapping, objects, text
from atoll.machinery.kinds.kubernetes.pod_resources import Amounts, pod_amounts
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.quantity import canonical, parse

#: Quantities as they are written, by resource.
Written = Mapping[str, str | int | float]


def pod_violations(pod: Object, limit_range: Object) -> Iterator[str]:
    """Yield what a Pod's containers, and their sums, violate."""
    for _, item in objects(limit_range, "spec", "limits"):
        if text(item, "type") == "Container":
            for field in ("containers", "initContainers"):
                for _, container in objects(pod, "spec", field):
                    resources = mapping(container, "resources")
                    yield from _violations(item, mapping(resources, "requests"), mapping(resources, "limits"))
        elif text(item, "type") == "Pod":
            yield from _violations(item, _written(pod_amounts(pod, "requests")), _written(pod_amounts(pod, "limits")))


def claim_violations(claim: Object, limit_range: Object) -> Iterator[str]:
    """Yield what the requests of a PersistentVolumeClaim violate; its limits do not count."""
    requests = mapping(claim, "spec", "resources", "requests")
    for _, item in objects(limit_range, "spec", "limits"):
        if (kind := text(item, "type")) != "PersistentVolumeClaim":
            continue
        for name, bound in mapping(item, "min").items():
            yield from _below(kind, name, bound, requests, {})
        for name, bound in mapping(item, "max").items():
            said = f"maximum {name} usage per {kind} is {canonical(bound)}"
            if name not in requests:
                yield f"{said}.  No request is specified"
            elif parse(requests[name]) > parse(bound):
                yield f"{said}, but request is {canonical(requests[name])}"


def _written(amounts: Amounts) -> Written:
    return {name: amount.text for name, amount in amounts.items()}


def _violations(item: Object, requests: Written, limits: Written) -> Iterator[str]:
    kind = text(item, "type")
    for name, bound in mapping(item, "min").items():
        yield from _below(kind, name, bound, requests, limits)
    for name, bound in mapping(item, "max").items():
        yield from _above(kind, name, bound, requests, limits)
    for name, bound in mapping(item, "maxLimitRequestRatio").items():
        yield from _out_of_ratio(kind, name, bound, requests, limits)


def _below(kind: str, name: str, bound: str, requests: Written, limits: Written) -> Iterator[str]:
    said = f"minimum {name} usage per {kind} is {canonical(bound)}"
    if name not in requests:
        yield f"{said}.  No request is specified"
    elif parse(requests[name]) < parse(bound):
        yield f"{said}, but request is {canonical(requests[name])}"
    elif name in limits and parse(limits[name]) < parse(bound):
        yield f"{said}, but limit is {canonical(limits[name])}"


def _above(kind: str, name: str, bound: str, requests: Written, limits: Written) -> Iterator[str]:
    said = f"maximum {name} usage per {kind} is {canonical(bound)}"
    if name not in limits:
        yield f"{said}.  No limit is specified"
    elif parse(limits[name]) > parse(bound):
        yield f"{said}, but limit is {canonical(limits[name])}"
    elif name in requests and parse(requests[name]) > parse(bound):
        yield f"{said}, but request is {canonical(requests[name])}"


def _out_of_ratio(kind: str, name: str, bound: str, requests: Written, limits: Written) -> Iterator[str]:
    said = f"{name} max limit to request ratio per {kind} is {canonical(bound)}"
    request, limit = _amount(requests, name), _amount(limits, name)
    if not request:
        yield f"{said}, but no request is specified or request is 0"
    elif not limit:
        yield f"{said}, but no limit is specified or limit is 0"
    elif limit > parse(bound) * request:
        yield f"{said}, but provided ratio is {float(limit) / float(request):f}"


def _amount(amounts: Written, name: str) -> Decimal:
    return parse(amounts[name]) if name in amounts else Decimal(0)
