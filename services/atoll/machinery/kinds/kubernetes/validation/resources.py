"""Requests and limits of containers and pods: names, amounts, and how they relate."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from decimal import Decimal

from atoll.machinery.kinds.checks import mapping, objects, text
from atoll.machinery.kinds.core.resourcequotas import COUNTED
from atoll.machinery.kinds.kubernetes.validation.rules import NEGATIVE, Errors, amount_of, label, quantity_text
from atoll.machinery.meta.labels import label_key_errors
from atoll.machinery.meta.objects import Object
from atoll.machinery.schema.fielderrors import duplicate, forbidden, invalid, not_found, not_supported, required

NameCheck = Callable[[str, str], Errors]

_COMPUTE = ("cpu", "memory", "ephemeral-storage")
_PREFIXED = frozenset(prefix + name for prefix in ("", "requests.", "limits.") for name in _COMPUTE)
_STANDARD = COUNTED | _PREFIXED | {"storage", "requests.storage"}
_HUGE_PAGES, _REQUESTS, _OWN = "hugepages-", "requests.", "kubernetes.io/"
#: Characters of the names in one text, which every claim may repeat.
_NAMES_SIZE = 256
#: Of a whole pod; huge pages too.
_POD_LEVEL = ("cpu", "hugepages-", "memory")


def is_huge_pages(name: str) -> bool:
    """Report whether a resource is memory in pages of another size."""
    return name.startswith(_HUGE_PAGES)


def is_native(name: str) -> bool:
    """Report whether a resource is one of Kubernetes' own."""
    return "/" not in name or _OWN in name


def is_extended(name: str) -> bool:
    """Report whether a resource is counted in whole devices."""
    return not is_native(name) and not name.startswith(_REQUESTS) and not label_key_errors(_REQUESTS + name)


def may_overcommit(name: str) -> bool:
    """Report whether requests may be below limits."""
    return is_native(name) and not is_huge_pages(name)


def resource_name(name: str, field: str) -> Errors:
    """Check the name of any resource."""
    problems = label_key_errors(name)
    for problem in problems:
        yield invalid(field, name, problem)
    is_standard = name in _STANDARD or name.startswith((_HUGE_PAGES, _REQUESTS + _HUGE_PAGES))
    if not problems and "/" not in name and not is_standard:
        yield invalid(field, name, "must be a standard resource type or fully qualified")


def container_resource_name(name: str, field: str) -> Errors:
    """Check the name of a resource of a container."""
    yield from resource_name(name, field)
    if "/" not in name:
        if name not in _COMPUTE and not is_huge_pages(name):
            yield invalid(field, name, "must be a standard resource for containers")
    elif not is_native(name) and not is_extended(name):
        yield invalid(field, name, "doesn't follow extended resource name standard")


def pod_resource_name(name: str, field: str) -> Errors:
    """Check the name of a resource of a whole pod."""
    errors = list(resource_name(name, field))
    yield from errors
    if not errors and name not in _POD_LEVEL and not is_huge_pages(name):
        yield not_supported(field, name, _POD_LEVEL)


def amount_errors(name: str, value: object, field: str) -> Errors:
    """Check the amount of a resource."""
    number = amount_of(value)
    if number is None:
        return
    if number < 0:
        yield invalid(field, quantity_text(value), NEGATIVE)
    if (name in COUNTED or is_extended(name)) and number != number.to_integral_value():
        yield invalid(field, quantity_text(value), "must be an integer")


def basic_amount(value: object, field: str) -> Errors:
    """Check that an amount is not below zero, where Kubernetes has another text for it."""
    number = amount_of(value)
    if number is not None and number < 0:
        yield invalid(field, int(number), "must be a valid resource quantity")


def _page_errors(name: str, value: object, field: str) -> Errors:
    size, number = amount_of(name.removeprefix(_HUGE_PAGES)), amount_of(value)
    if number is not None and (size is None or size <= 0 or size % 1 or number.to_integral_value() % size):
        yield invalid(field, quantity_text(value), f"{quantity_text(value)} is not positive integer multiple of {name}")


def requirements(resources: Object, at: str, claims: Collection[str], *, partial_pages: bool = False) -> Errors:
    """Check requests, limits and claims of a container."""
    if resources:
        yield from _requirements(resources, at, container_resource_name, partial_pages)
        yield from _claims(resources, f"{at}.claims", claims)


def pod_requirements(resources: Object, at: str, *, partial_pages: bool = False) -> Errors:
    """Check requests and limits of a whole pod."""
    yield from _requirements(resources, at, pod_resource_name, partial_pages)


def _requirements(resources: Object, at: str, name_check: NameCheck, partial_pages: bool) -> Errors:
    limits, requests = mapping(resources, "limits"), mapping(resources, "requests")
    for kind, amounts in (("limits", limits), ("requests", requests)):
        for name, value in amounts.items():
            field = f"{at}.{kind}[{name}]"
            yield from name_check(name, field)
            yield from amount_errors(name, value, field)
            if kind == "requests":
                yield from _relation_errors(name, value, limits, at)
            if is_huge_pages(name) and not partial_pages:
                yield from _page_errors(name, value, field)
    names = limits.keys() | requests.keys()
    if any(map(is_huge_pages, names)) and not names & {"cpu", "memory"}:
        yield forbidden(at, "HugePages require cpu or memory")


def _relation_errors(name: str, value: object, limits: Object, at: str) -> Errors:
    if name not in limits:
        if not may_overcommit(name):
            yield required(f"{at}.limits", "Limit must be set for non overcommitable resources")
        return
    request, limit = amount_of(value), amount_of(limits[name])
    if request is None or limit is None:
        return
    if request != limit and not may_overcommit(name):
        yield invalid(
            f"{at}.requests", quantity_text(value), f"must be equal to {name} limit of {quantity_text(limits[name])}"
        )
    elif request > limit:
        detail = f"must be less than or equal to {name} limit of {quantity_text(limits[name])}"
        yield invalid(f"{at}.requests", quantity_text(value), detail)


def _claims(resources: Object, at: str, pod_claims: Collection[str]) -> Errors:
    whole, parts, partial = set[str](), set[str](), set[str]()
    names = f": {', '.join(sorted(pod_claims))}"[:_NAMES_SIZE] if pod_claims else " which is empty"
    for index, claim in objects(resources, "claims"):
        field, name, request = f"{at}[{index}]", text(claim, "name"), text(claim, "request")
        if not name:
            if "name" in claim:
                yield required(field)
            continue
        if request and name not in whole:
            yield from label(claim, field, "request")
        key = f"{name}/{request}" if request else name
        if name in whole or key in parts:
            yield duplicate(field, name if name in whole else key)
        elif not request and name in partial:
            yield duplicate(field, name)
        (parts if request else whole).add(key)
        if request:
            partial.add(name)
        if name not in pod_claims:
            yield not_found(field, name, f"must be one of the names in pod.spec.resourceClaims{names}")


def aggregate(spec: Object, kind: str) -> dict[str, Decimal]:
    """Return what the containers of a pod need of each resource at once: initial ones run one after another."""
    peaks, sidecars, regular = (dict[str, Decimal]() for _ in range(3))
    for _, container in objects(spec, "initContainers"):
        for name, value in _amounts(container, kind):
            needed = sidecars.get(name, Decimal(0)) + value
            peaks[name] = max(peaks.get(name, Decimal(0)), needed)
            if container.get("restartPolicy") == "Always":
                sidecars[name] = needed
    for _, container in objects(spec, "containers"):
        for name, value in _amounts(container, kind):
            regular[name] = regular.get(name, sidecars.get(name, Decimal(0))) + value
    return {name: max(peaks.get(name, Decimal(0)), regular.get(name, Decimal(0))) for name in peaks | regular}


def _amounts(container: Object, kind: str) -> Iterator[tuple[str, Decimal]]:
    for name, value in mapping(container, "resources", kind).items():
        if (number := amount_of(value)) is not None:
            yield name, number
