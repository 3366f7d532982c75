"""What a node reports of a pod in its status."""

from __future__ import annotations

from atoll.machinery.kinds.checks import items, mapping, objects, text
from atoll.machinery.kinds.kubernetes.validation.addresses import address_errors, are_dual
from atoll.machinery.kinds.kubernetes.validation.pods import annotation_changes
from atoll.machinery.kinds.kubernetes.validation.resources import is_native
from atoll.machinery.kinds.kubernetes.validation.rules import (
    Errors,
    amount_of,
    annotations_of,
    identifiers,
    integer,
    label,
    label_key,
    names_of,
    one_of_required,
    quantity_text,
    required_subdomain,
    same,
    subdomain,
)
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import duplicate, forbidden, invalid, not_supported, required, too_long

_STATUSES = {
    "containerStatuses": "containers",
    "initContainerStatuses": "initContainers",
    "ephemeralContainerStatuses": "ephemeralContainers",
}
_SYSTEM_CONDITIONS = ("PodScheduled", "Ready", "Initialized")
_HEALTH = ("Healthy", "Unhealthy", "Unknown")
_MESSAGE_SIZE = 256
_NOT_NEGATIVE = "must be a non-negative integer"
_STOPPED = "may not be transitioned to non-terminated state"


def validate_status(obj: Object, old: Object) -> list[FieldError]:
    """Check a status that replaces another."""
    errors = [*annotation_changes(annotations_of(obj), annotations_of(old)), *_conditions(obj), *_nodes(obj, old)]
    status, before = mapping(obj, "status"), mapping(old, "status")
    if (integer(status.get("observedGeneration")) or 0) < 0:
        errors.append(invalid("status.observedGeneration", status["observedGeneration"], _NOT_NEGATIVE))
    # A Pod that is data gets no class when it is made: the first report brings it.
    if before.get("qosClass") and not same(status.get("qosClass") or None, before["qosClass"]):
        errors.append(invalid("status.qosClass", status.get("qosClass"), "field is immutable"))
    for name, kind in _STATUSES.items():
        errors += _restarts(obj, old, name, kind)
    errors += _claims(obj)
    errors += _extended_claim(obj)
    errors += _node_claims(obj)
    for name, single in (("podIPs", ""), ("hostIPs", "hostIP")):
        errors += _addresses(status, before, name, single)
    for name, kind in _STATUSES.items():
        errors += _users(obj, name)
        errors += _health(obj, name, kind)
    return errors


def _conditions(obj: Object) -> Errors:
    for index, condition in objects(obj, "status", "conditions"):
        field, generation = f"status.conditions[{index}]", integer(condition.get("observedGeneration")) or 0
        if generation < 0:
            yield invalid(f"{field}.observedGeneration", generation, _NOT_NEGATIVE)
        if condition.get("type") not in _SYSTEM_CONDITIONS:
            # Kubernetes names this field with a capital letter.
            yield from label_key(f"{field}.Type", condition.get("type"))


def _nodes(obj: Object, old: Object) -> Errors:
    name, before = mapping(obj, "status").get("nominatedNodeName"), mapping(old, "status").get("nominatedNodeName")
    if text(obj, "spec", "nodeName") != text(old, "spec", "nodeName"):
        yield forbidden("status.nodeName", "may not be changed directly")
    if name and name != before:
        yield from subdomain(mapping(obj, "status"), "status", "nominatedNodeName")
        if text(old, "spec", "nodeName"):
            yield forbidden("status.nominatedNodeName", "may not be set on pods that are already bound to a node")


def _may_restart(container: Object, policy: str, exit_code: int) -> bool:
    """Report whether a container that ended with this code starts again."""
    for _, rule in objects(container, "restartPolicyRules"):
        codes = mapping(rule, "exitCodes")
        is_listed = exit_code in items(codes, "values")
        if is_listed == (text(codes, "operator") == "In") and text(rule, "action") == "Restart":
            return True
    policy = text(container, "restartPolicy") or policy
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def _restarts(obj: Object, old: Object, name: str, kind: str) -> Errors:
    spec = mapping(old, "spec")
    containers = {text(each, "name"): each for _, each in objects(spec, kind)}
    if kind != "ephemeralContainers":
        everything = [each for part in ("containers", "initContainers") for _, each in objects(spec, part)]
        rules = [rule for container in everything for _, rule in objects(container, "restartPolicyRules")]
        if any(text(rule, "action") == "RestartAllContainers" for rule in rules):
            return
    running = {text(each, "name") for _, each in objects(obj, "status", name) if not _ended(each)}
    for index, status in objects(old, "status", name):
        if not _ended(status) or text(status, "name") not in running:
            continue
        container = containers.get(text(status, "name"))
        code = integer(mapping(status, "state", "terminated").get("exitCode")) or 0
        policy = text(spec, "restartPolicy")
        if kind == "ephemeralContainers" or container is None or not _may_restart(container, policy, code):
            yield forbidden(f"status.{name}[{index}].state", _STOPPED)


def _ended(status: Object) -> bool:
    return mapping(status, "state").get("terminated") is not None


def _claims(obj: Object) -> Errors:
    known, seen = names_of(mapping(obj, "spec"), "resourceClaims"), set[str]()
    for index, status in objects(obj, "status", "resourceClaimStatuses"):
        field, name = f"status.resourceClaimStatuses[{index}]", text(status, "name")
        if name not in known:
            yield invalid(f"{field}.name", name, "must match the name of an entry in `spec.resourceClaims`")
        if name in seen:
            yield duplicate(f"{field}.name", name)
        seen.add(name)
        yield from subdomain(status, field, "resourceClaimName")


def _extended_claim(obj: Object) -> Errors:
    status, field = mapping(obj, "status").get("extendedResourceClaimStatus"), "status.extendedResourceClaimStatus"
    if not isinstance(status, dict):
        return
    parts = (each for name in ("initContainers", "containers") for _, each in objects(obj, "spec", name))
    containers, seen = {text(each, "name"): each for each in parts}, set[tuple[str, ...]]()
    if not items(status, "requestMappings"):
        yield required(f"{field}.requestMappings", "at least one request mapping is required")
    for index, each in objects(status, "requestMappings"):
        at = f"{field}.requestMappings[{index}]"
        names = ("containerName", "resourceName", "requestName")
        key = tuple(text(each, name) for name in names)
        if key[0] not in containers:
            detail = "must match the name of an entry in spec.initContainers.name or spec.containers.name"
            yield invalid(f"{at}.containerName", key[0], detail)
        elif key[1] not in mapping(containers[key[0]], "resources", "requests"):
            detail = (
                "must match the extended resource name of an entry in spec.initContainers.resources.requests or "
                "spec.containers.resources.requests"
            )
            yield invalid(f"{at}.resourceName", key[1], detail)
        yield from label(each, field, "requestName")
        if key in seen:
            for name, value in zip(names, key, strict=True):
                yield duplicate(f"{at}.{name}", value)
        seen.add(key)
    yield from required_subdomain(status, field, "resourceClaimName")


def _node_claims(obj: Object) -> Errors:
    spec, status = mapping(obj, "spec"), mapping(obj, "status")
    references = [*objects(spec, "resourceClaims"), *objects(status, "resourceClaimStatuses")]
    known = {text(each, "resourceClaimName") for _, each in references}
    for index, each in objects(status, "nodeAllocatableResourceClaimStatuses"):
        field, name = f"status.nodeAllocatableResourceClaimStatuses[{index}]", text(each, "resourceClaimName")
        if not name:
            yield required(f"{field}.resourceClaimName", "must not be empty")
        if not name or name not in known:
            yield invalid(f"{field}.resourceClaimName", name, "no mapping found in pod reference")
        for part in ("containers", "resources"):
            if not each.get(part):
                yield required(f"{field}.{part}", "must not be empty")
        for resource, value in mapping(each, "resources").items():
            if not is_native(resource):
                yield invalid(f"{field}.resources[{resource}]", resource, "must be a node allocatable resource name")
            if (amount_of(value) or 0) < 0:
                yield invalid(f"{field}.resources[{resource}]", quantity_text(value), "must be non-negative")


def _addresses(status: Object, before: Object, name: str, single: str) -> Errors:
    field, known = f"status.{name}", [each.get("ip") for _, each in objects(before, name)]
    found = [text(each, "ip") for _, each in objects(status, name)]
    if found and single and text(status, single) != found[0]:
        yield invalid(f"{field}[0].ip", found[0], f"must be equal to `{single}`")
    for index, address in enumerate(found):
        yield from address_errors(address, f"{field}[{index}]", known)
    if len(found) > 1:
        is_dual = are_dual(found)
        if is_dual is None:
            detail = "failed to check for dual stack with error:invalid IP"
            yield FieldError("InternalError", field, f"Internal error: {detail}")
        if not is_dual or len(found) > 2:
            yield invalid(field, items(status, name), "may specify no more than one IP for each IP family")


def _users(obj: Object, name: str) -> Errors:
    os = text(obj, "spec", "os", "name") or "linux"
    for index, status in objects(obj, "status", name):
        user, field = mapping(status, "user").get("linux"), f"status.{name}[{index}].user.linux"
        if not isinstance(user, dict):
            continue
        if os == "windows":
            yield forbidden(field, "cannot be set for a windows pod")
        elif os == "linux":
            yield from identifiers(user, field, "uid", "gid")
            groups = {f"supplementalGroups[{at}]": group for at, group in enumerate(items(user, "supplementalGroups"))}
            yield from identifiers(groups, field, *groups)


def _health(obj: Object, name: str, kind: str) -> Errors:
    containers = {text(each, "name"): each for _, each in objects(obj, "spec", kind)}
    for index, status in objects(obj, "status", name):
        field, container = f"status.{name}[{index}].allocatedResourcesStatus", containers.get(text(status, "name"))
        if kind == "ephemeralContainers":
            if items(status, "allocatedResourcesStatus"):
                yield forbidden(field, "must not be specified in container status")
            continue
        for position, each in objects(status, "allocatedResourcesStatus"):
            if container is not None:
                yield from _resource(each, f"{field}[{position}]", container)
            yield from _devices(each, f"{field}[{position}].resources")


def _resource(status: Object, at: str, container: Object) -> Errors:
    name = text(status, "name")
    if not name.startswith("claim:"):
        if name not in mapping(container, "resources", "requests"):
            yield invalid(f"{at}.name", name, "must match one of the container's resource requests")
        return
    claims = [(text(each, "name"), text(each, "request")) for _, each in objects(container, "resources", "claims")]
    if name not in {f"claim:{claim}" + (f"/{request}" if request else "") for claim, request in claims}:
        detail = (
            "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or "
            "'claim:<claimName>' if request is empty"
        )
        yield invalid(f"{at}.name", name, detail)


def _devices(status: Object, at: str) -> Errors:
    seen = set[str]()
    for index, device in objects(status, "resources"):
        field, message, uid = f"{at}[{index}]", device.get("message"), text(device, "resourceID")
        if "health" in device:
            yield from one_of_required(device, field, "health", _HEALTH)
        else:
            yield not_supported(f"{field}.health", "", _HEALTH)
        if message == "":
            yield required(f"{field}.message", "must be non-empty if specified")
        elif isinstance(message, str) and len(message.encode()) > _MESSAGE_SIZE:
            yield too_long(f"{field}.message", _MESSAGE_SIZE)
        if uid in seen:
            yield duplicate(f"{field}.resourceID", uid)
        seen.add(uid)
