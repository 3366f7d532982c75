"""StorageClasses, CSIDrivers, CSINodes, CSIStorageCapacities, VolumeAttachments and VolumeAttributesClasses."""

from __future__ import annotations

from atoll.machinery.kinds.checks import invalid_values, items, mapping, objects, strings, text
from atoll.machinery.kinds.kubernetes.validation.persistentvolumes import volume_spec
from atoll.machinery.kinds.kubernetes.validation.rules import (
    IMMUTABLE,
    MAX_INT32,
    NEGATIVE,
    Errors,
    amount_of,
    integer,
    label_key,
    needed,
    not_empty,
    not_negative,
    one_of,
    quantity_text,
    range_text,
    same,
    unchanged,
)
from atoll.machinery.kinds.kubernetes.validation.scheduling import selector
from atoll.machinery.kinds.kubernetes.validation.volume_sources import driver_errors
from atoll.machinery.meta.labels import dns_subdomain_errors, label_key_errors
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import duplicate, forbidden, invalid, not_supported, required, too_long

_MAX_PARAMETERS, _PARAMETERS_SIZE, _METADATA_SIZE, _MESSAGE_SIZE, _NODE_ID_SIZE = 512, 262_144, 262_144, 1024, 256
_CLASS_FIELDS = ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode")
_POLICIES = ("File", "None", "ReadWriteOnceWithFSType")
_SHORTEST_TOKEN_S, _LONGEST_TOKEN_S = 600, 2**32
_ONE_SOURCE = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"


def _driver(obj: Object, name: str) -> Errors:
    value = obj.get(name)
    if value == "":
        yield required(name)
    elif isinstance(value, str):
        yield from invalid_values(name, value.lower(), label_key_errors(value.lower()))


def _parameters(obj: Object, *, are_required: bool) -> Errors:
    values = mapping(obj, "parameters")
    if len(values) > _MAX_PARAMETERS:
        yield too_long("parameters", _MAX_PARAMETERS)
        return
    if "" in values:
        yield invalid("parameters", "", "field can not be empty.")
    if sum(len(key.encode()) + len(str(value).encode()) for key, value in values.items()) > _PARAMETERS_SIZE:
        yield too_long("parameters", _PARAMETERS_SIZE)
    if are_required and not values:
        yield required("parameters", "must contain at least one key/value pair")


def validate_class(obj: Object) -> list[FieldError]:
    """Check a new StorageClass."""
    errors = [*_driver(obj, "provisioner"), *_parameters(obj, are_required=False)]
    policy, mode = obj.get("reclaimPolicy"), obj.get("volumeBindingMode")
    if isinstance(policy, str) and policy not in ("", "Delete", "Retain"):
        errors.append(not_supported("reclaimPolicy", policy, ("Delete", "Retain")))
    if isinstance(mode, str) and mode not in ("Immediate", "WaitForFirstConsumer"):
        errors.append(not_supported("volumeBindingMode", mode, ("Immediate", "WaitForFirstConsumer")))
    return errors + list(_topologies(obj))


def validate_class_update(obj: Object, old: Object) -> list[FieldError]:
    """Check that a StorageClass stays what it is."""
    return list(unchanged(obj, old, "", *_CLASS_FIELDS))


def _topologies(obj: Object) -> Errors:
    seen = set[frozenset[tuple[str, frozenset[str]]]]()
    for index, term in objects(obj, "allowedTopologies"):
        at, found = f"allowedTopologies[{index}]", dict[str, frozenset[str]]()
        for position, each in objects(term, "matchLabelExpressions"):
            field, values, key = f"{at}.matchLabelExpressions[{position}]", strings(each, "values"), text(each, "key")
            yield from needed(each, field, "values")
            unique = set[str]()
            for place, value in enumerate(values):
                if value in unique:
                    yield duplicate(f"{field}.values[{place}]", value)
                unique.add(value)
            yield from label_key(f"{field}.key", each.get("key"))
            if key in found:
                yield duplicate(f"{field}.key", key)
            found[key] = frozenset(values)
        terms = frozenset(found.items())
        if terms in seen:
            yield duplicate(f"{at}.matchLabelExpressions", "")
        seen.add(terms)


def validate_attributes(obj: Object) -> list[FieldError]:
    """Check a new VolumeAttributesClass."""
    return [*_driver(obj, "driverName"), *_parameters(obj, are_required=True)]


def validate_attributes_update(obj: Object, old: Object) -> list[FieldError]:
    """Check that a VolumeAttributesClass stays what it is."""
    names = (name for name in ("driverName", "parameters") if not same(obj.get(name), old.get(name)))
    return [*(forbidden(name, f"updates to {name} are forbidden.") for name in names), *validate_attributes(obj)]


def validate_driver(obj: Object) -> list[FieldError]:
    """Check a new CSIDriver."""
    spec = mapping(obj, "spec")
    errors = list(one_of(spec, "spec", "fsGroupPolicy", _POLICIES))
    audiences = set[str]()
    for index, request in objects(spec, "tokenRequests"):
        field, audience = f"spec.tokenRequests[{index}]", text(request, "audience")
        if audience in audiences:
            errors.append(duplicate(f"{field}.audience", audience))
            continue
        audiences.add(audience)
        errors += _token_duration(integer(request.get("expirationSeconds")), f"{field}.expirationSeconds")
    for mode in strings(spec, "volumeLifecycleModes"):
        if mode not in ("Persistent", "Ephemeral"):
            errors.append(not_supported("spec.volumeLifecycleModes", mode, ("Persistent", "Ephemeral")))
    period = integer(spec.get("nodeAllocatableUpdatePeriodSeconds"))
    if period is not None and period < 10:
        detail = "must be greater than or equal to 10 seconds"
        errors.append(invalid("spec.nodeAllocatableUpdatePeriodSeconds", period, detail))
    if spec.get("serviceAccountTokenInSecrets") is not None and not items(spec, "tokenRequests"):
        detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified"
        value = spec["serviceAccountTokenInSecrets"]
        errors.append(invalid("spec.serviceAccountTokenInSecrets", value, detail))
    return errors


def _token_duration(seconds: int | None, field: str) -> Errors:
    if seconds is not None and seconds < _SHORTEST_TOKEN_S:
        yield invalid(field, seconds, "may not specify a duration less than 10 minutes")
    if seconds is not None and seconds > _LONGEST_TOKEN_S:
        yield invalid(field, seconds, "may not specify a duration larger than 2^32 seconds")


def validate_driver_update(obj: Object, old: Object) -> list[FieldError]:
    """Check what stays of a CSIDriver."""
    spec, before = mapping(obj, "spec"), mapping(old, "spec")
    errors = validate_driver(obj)
    if not same(spec.get("attachRequired"), before.get("attachRequired")):
        # Kubernetes' errors have this name for the field.
        errors.append(invalid("spec.attachedRequired", spec.get("attachRequired"), IMMUTABLE))
    return errors + list(unchanged(spec, before, "spec", "volumeLifecycleModes"))


def validate_node(obj: Object) -> list[FieldError]:
    """Check a new CSINode."""
    errors, names = list[FieldError](), set[str]()
    for index, driver in objects(obj, "spec", "drivers"):
        field, name, node = f"spec.drivers[{index}]", text(driver, "name"), driver.get("nodeID")
        errors += driver_errors(driver, field, "name")
        errors += not_empty(driver, field, "nodeID")
        if isinstance(node, str) and len(node.encode()) > _NODE_ID_SIZE:
            errors.append(invalid(f"{field}.nodeID", node, f"must be {_NODE_ID_SIZE} characters or less"))
        errors += not_negative(mapping(driver, "allocatable"), f"{field}.allocatable", "count")
        if name in names:
            errors.append(duplicate(f"{field}.name", name))
        names.add(name)
        keys = set[str]()
        for key in strings(driver, "topologyKeys"):
            errors += [required(field)] if not key else []
            errors += [duplicate(field, key)] if key in keys else []
            keys.add(key)
            errors += label_key(field, key)
    return errors


def validate_node_update(obj: Object, old: Object) -> list[FieldError]:
    """Check that the drivers of a CSINode stay, but for the number of volumes that they take."""
    before = {text(each, "name"): each for _, each in objects(old, "spec", "drivers")}
    errors = validate_node(obj)
    for _, driver in objects(obj, "spec", "drivers"):
        other = before.get(text(driver, "name"))
        if other is not None and not same({**driver, "allocatable": None}, {**other, "allocatable": None}):
            errors.append(invalid("spec.drivers", driver, IMMUTABLE))
    return errors


def validate_capacity(obj: Object) -> list[FieldError]:
    """Check a new CSIStorageCapacity."""
    errors, name, size = (
        selector(obj.get("nodeTopology"), "nodeTopology"),
        obj.get("storageClassName"),
        obj.get("capacity"),
    )
    if isinstance(name, str):
        errors += invalid_values("storageClassName", name, dns_subdomain_errors(name))
    if (amount_of(size) or 0) < 0:
        errors.append(invalid("capacity", quantity_text(size), NEGATIVE))
    return errors


def validate_capacity_update(obj: Object, old: Object) -> list[FieldError]:
    """Check what a CSIStorageCapacity is about."""
    return list(unchanged(obj, old, "", "nodeTopology", "storageClassName"))


def validate_attachment(obj: Object) -> list[FieldError]:
    """Check a new VolumeAttachment."""
    spec, source = mapping(obj, "spec"), mapping(obj, "spec", "source")
    errors = list(driver_errors(spec, "spec", "attacher"))
    name, inline, at = source.get("persistentVolumeName"), source.get("inlineVolumeSpec"), "spec.source"
    if name is None and inline is None:
        errors.append(required(at, _ONE_SOURCE))
    elif name is not None and inline is not None:
        errors.append(forbidden(at, _ONE_SOURCE))
    elif name == "":
        errors.append(required(f"{at}.persistentVolumeName", "must specify non empty persistentVolumeName"))
    elif isinstance(inline, dict):
        errors += volume_spec(inline, f"{at}.inlineVolumeSpec", "", is_inline=True)
    node = spec.get("nodeName")
    if isinstance(node, str):
        errors += invalid_values("spec.nodeName", node, dns_subdomain_errors(node))
    errors += _attachment_status(obj)
    if isinstance(name, str):
        errors += invalid_values(f"{at}.persistentVolumeName", name, dns_subdomain_errors(name))
    return errors


def _attachment_status(obj: Object) -> Errors:
    status, at = mapping(obj, "status"), "status"
    pairs = mapping(status, "attachmentMetadata").items()
    if sum(len(key.encode()) + len(str(value).encode()) for key, value in pairs) > _METADATA_SIZE:
        yield too_long(f"{at}.attachmentMetadata", _METADATA_SIZE)
    for name in ("attachError", "detachError"):
        error = mapping(status, name)
        if len(text(error, "message").encode()) > _MESSAGE_SIZE:
            yield too_long(f"{at}.{name}.message", _METADATA_SIZE)
        code = integer(error.get("errorCode"))
        if code is not None and code < 0:
            yield invalid(f"{at}.{name}.errorCode", code, range_text(0, MAX_INT32))


def validate_attachment_update(obj: Object, old: Object) -> list[FieldError]:
    """Check that the spec of a VolumeAttachment stays."""
    return [*validate_attachment(obj), *unchanged(obj, old, "", "spec")]
