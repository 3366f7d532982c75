"""PersistentVolumeClaims, and their templates in pods and StatefulSets."""

from __future__ import annotations

from atoll.machinery.kinds.checks import invalid_values, mapping, strings, text
from atoll.machinery.kinds.kubernetes.validation.resources import basic_amount, is_native
from atoll.machinery.kinds.kubernetes.validation.rules import (
    IMMUTABLE,
    Errors,
    amount_of,
    annotations_of,
    label,
    label_map,
    not_empty,
    one_of,
    quantity_text,
    same,
    subdomain,
    unchanged,
)
from atoll.machinery.kinds.kubernetes.validation.scheduling import selector
from atoll.machinery.meta.labels import dns_subdomain_errors, label_key_errors
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import forbidden, invalid, not_supported, required

ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
VOLUME_MODES = ("Block", "Filesystem")
_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
_RESIZE_STATUSES = (
    "ControllerResizeInfeasible",
    "ControllerResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizePending",
)
_SPEC_TEXT = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"


def access_modes(spec: Object, at: str) -> Errors:
    """Check how nodes may use a volume."""
    modes, field = strings(spec, "accessModes"), f"{at}.accessModes"
    for mode in modes:
        if mode not in ACCESS_MODES:
            yield not_supported(field, mode, ACCESS_MODES)
    if "ReadWriteOncePod" in modes and any(mode in ACCESS_MODES[:3] for mode in modes):
        yield forbidden(field, "may not use ReadWriteOncePod with other access modes")


def template_errors(template: Object, at: str) -> Errors:
    """Check the template of a claim in a pod."""
    yield from template_metadata(template, at)
    yield from spec_errors(mapping(template, "spec"), f"{at}.spec")


def template_metadata(template: Object, at: str) -> Errors:
    """Check the metadata of a template of objects whose names are chosen for them."""
    metadata, field = mapping(template, "metadata"), f"{at}.metadata"
    for key in mapping(metadata, "annotations"):
        yield from invalid_values(f"{field}.annotations", key, label_key_errors(key.lower()))
    yield from label_map(mapping(metadata, "labels"), f"{field}.labels")
    for name, value in metadata.items():
        if name not in ("annotations", "labels") and value not in (None, "", 0, [], {}):
            yield forbidden(f"{field}.{name}", "cannot be set")


def spec_errors(spec: Object, at: str, *, any_values: bool = False, any_groups: bool = False) -> Errors:
    """Check the spec of a claim; both options let what an old claim already had."""
    if not spec.get("accessModes"):
        yield required(f"{at}.accessModes", "at least 1 access mode is required")
    yield from selector(spec.get("selector"), f"{at}.selector", any_values=any_values)
    yield from access_modes(spec, at)
    requests, field = mapping(spec, "resources", "requests"), f"{at}.resources[storage]"
    if "storage" not in requests:
        yield required(field)
    elif (size := amount_of(requests["storage"])) is not None and size <= 0:
        yield invalid(field, quantity_text(requests["storage"]), "must be greater than zero")
    yield from subdomain(spec, at, "storageClassName", "volumeAttributesClassName")
    yield from one_of(spec, at, "volumeMode", VOLUME_MODES)
    for name in ("dataSource", "dataSourceRef"):
        if isinstance(spec.get(name), dict):
            yield from _source(spec[name], f"{at}.{name}", any_groups)
    yield from _sources(spec, at)


def _source(source: Object, at: str, any_groups: bool) -> Errors:
    yield from not_empty(source, at, "name", "kind")
    group = text(source, "apiGroup")
    if not group and text(source, "kind") != "PersistentVolumeClaim" and "kind" in source:
        detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        yield invalid(at, source["kind"], detail)
    if group and not any_groups:
        yield from invalid_values(f"{at}.apiGroup", group, dns_subdomain_errors(group))
    if at.endswith("Ref"):
        yield from label(source, at, "namespace")


def _sources(spec: Object, at: str) -> Errors:
    """Check that the old and the new form of a source are the same."""
    old, new = spec.get("dataSource"), spec.get("dataSourceRef")
    if not isinstance(old, dict) or not isinstance(new, dict):
        return
    if text(new, "namespace"):
        yield invalid(at, f"{at}.dataSource", "may not be specified when dataSourceRef.namespace is specified")
    elif any(old.get(name) != new.get(name) for name in ("apiGroup", "kind", "name")):
        yield invalid(at, f"{at}.dataSource", "must match dataSourceRef")


def validate(obj: Object) -> list[FieldError]:
    """Check a new claim."""
    return list(spec_errors(mapping(obj, "spec"), "spec"))


def validate_update(obj: Object, old: Object) -> list[FieldError]:
    """Check that the spec stays, but for the size and the class of a bound claim."""
    spec, before = mapping(obj, "spec"), mapping(old, "spec")
    groups = (mapping(before, name).get("apiGroup") for name in ("dataSource", "dataSourceRef"))
    any_values = bool(selector(before.get("selector"), "spec.selector"))
    any_groups = any(group is not None for group in groups)
    errors = list(spec_errors(spec, "spec", any_values=any_values, any_groups=any_groups))
    now, annotation = annotations_of(obj).get(_CLASS_ANNOTATION), annotations_of(old).get(_CLASS_ANNOTATION)
    is_new_class = before.get("storageClassName") is None and annotation in (None, spec.get("storageClassName"))
    is_moved = is_new_class and annotation is not None and now in (None, annotation)
    if (now or "") != (annotation or "") and not is_moved:
        errors.append(invalid(f"metadata.annotations.{_CLASS_ANNOTATION}", now or "", IMMUTABLE))
    free = {"storageClassName"} if is_new_class else set[str]()
    if not before.get("volumeName"):
        free.add("volumeName")
    if mapping(obj, "status").get("phase") == "Bound":
        free |= {"volumeAttributesClassName", "storage"}
    if not same(_fixed(spec, free), _fixed(before, free)):
        errors.append(forbidden("spec", _SPEC_TEXT))
    return [*errors, *_size_errors(obj, old), *unchanged(spec, before, "", "volumeMode"), *_attributes_errors(obj, old)]


def _fixed(spec: Object, free: set[str]) -> Object:
    """Return the spec without what may change."""
    kept = {name: value for name, value in spec.items() if name not in free}
    if "storage" in free and isinstance(kept.get("resources"), dict):
        requests = {name: value for name, value in mapping(kept, "resources", "requests").items() if name != "storage"}
        kept["resources"] = kept["resources"] | {"requests": requests}
    return kept


def _size_errors(obj: Object, old: Object) -> Errors:
    """Check that a claim does not shrink to the size that its volume has already."""
    size = amount_of(mapping(obj, "spec", "resources", "requests").get("storage"))
    before = amount_of(mapping(old, "spec", "resources", "requests").get("storage"))
    capacity = amount_of(mapping(old, "status", "capacity").get("storage")) or 0
    if size is not None and before is not None and size < before and size <= capacity:
        yield forbidden("spec.resources.requests.storage", "field can not be less than status.capacity")


def _attributes_errors(obj: Object, old: Object) -> Errors:
    """Check that a claim keeps a class of attributes once its volume has one."""
    name, before = "volumeAttributesClassName", mapping(old, "spec").get("volumeAttributesClassName")
    value = mapping(obj, "spec").get(name)
    if mapping(old, "status").get("currentVolumeAttributesClassName") is None or value == before:
        return
    if not value:
        kind = "nil" if value is None else "empty string"
        detail = f"update to {kind} is forbidden when status.currentVolumeAttributesClassName is not nil"
        yield forbidden(f"spec.{name}", detail)


def validate_status(obj: Object, old: Object) -> list[FieldError]:
    """Check sizes and resizes in a status."""
    status, errors = mapping(obj, "status"), list[FieldError]()
    if not mapping(obj, "spec").get("accessModes"):
        errors.append(required("Spec.accessModes"))
    for key, value in mapping(status, "capacity").items():
        errors += basic_amount(value, f"status.capacity[{key}]")
    field = "status.allocatedResourceStatuses"
    for key, value in mapping(status, "allocatedResourceStatuses").items():
        errors += _resource_key(key, field)
        if value not in _RESIZE_STATUSES:
            errors.append(not_supported(field, key, _RESIZE_STATUSES))
    for key, value in mapping(status, "allocatedResources").items():
        errors += list(_resource_key(key, "status.allocatedResources")) or list(
            basic_amount(value, f"status.allocatedResources[{key}]")
        )
    return errors


def _resource_key(key: str, field: str) -> Errors:
    problems = label_key_errors(key)
    yield from invalid_values(field, key, problems)
    if not problems and is_native(key) and key != "storage":
        yield not_supported(field, key, ("storage",))
