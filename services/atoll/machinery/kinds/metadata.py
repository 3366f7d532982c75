"""Checks on metadata that every kind shares: names, labels, annotations, owners, finalizers, what may not change.

Create and update call these beside the schema's and the kind's own checks, and the conversions and webhooks that
change metadata are judged by them too. Texts are Kubernetes'. They hold for any JSON: a wrong type is an error
of its field, never an exception.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from atoll.machinery.kinds.checks import (
    forbidden,
    immutable,
    invalid_value,
    invalid_values,
    items,
    mapping,
    required,
    strings,
    text,
    too_long,
)
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import labels
from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.meta.status import FieldError

ANNOTATIONS_SIZE = 262_144
ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"

_MANAGER_SIZE = 128
_STANDARD_FINALIZERS = frozenset({"kubernetes", ORPHAN, FOREGROUND})
#: Groups whose kinds take finalizers without a domain, as custom resources do.
_LENIENT_GROUPS = frozenset({"admissionregistration.k8s.io", "apiextensions.k8s.io"})
_IMMUTABLE = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
_TYPES: tuple[tuple[str, type, str], ...] = (
    ("name", str, "string"), ("generateName", str, "string"), ("namespace", str, "string"), ("uid", str, "string"),
    ("resourceVersion", str, "string"), ("generation", int, "integer"), ("labels", dict, "object"),
    ("annotations", dict, "object"), ("ownerReferences", list, "array"), ("finalizers", list, "array"),
    ("managedFields", list, "array"),
)  # fmt: skip


def validate_metadata(obj: Object, kind: Kind) -> list[FieldError]:
    """Every problem with the metadata of an object to be created; its name was already generated."""
    metadata = mapping(obj, "metadata")
    if errors := _type_errors(metadata):
        return errors
    return [*_name_errors(metadata, kind), *_namespace_errors(metadata, kind), *_common_errors(metadata, kind)]


def validate_metadata_update(obj: Object, old: Object, kind: Kind) -> list[FieldError]:
    """Every problem with the metadata of an object that replaces `old`."""
    metadata, before = mapping(obj, "metadata"), mapping(old, "metadata")
    if errors := _type_errors(metadata):
        return errors
    errors = _common_errors(metadata, kind)
    if before.get("deletionTimestamp"):
        errors += _new_finalizer_errors(metadata, before)
    if metadata.get("generation", 0) < before.get("generation", 0):
        errors.append(invalid_value("metadata.generation", metadata.get("generation", 0), "must not be decremented"))
    for name in _IMMUTABLE:
        errors += immutable(f"metadata.{name}", metadata.get(name), before.get(name))
    return errors


def _type_errors(metadata: Object) -> list[FieldError]:
    errors = []
    for name, type_, shown in _TYPES:
        value = metadata.get(name)
        if value is not None and (not isinstance(value, type_) or isinstance(value, bool)):
            errors.append(_type_error(f"metadata.{name}", value, shown))
    for name in ("labels", "annotations"):
        for key, value in mapping(metadata, name).items():
            if not isinstance(value, str):
                errors.append(_type_error(f"metadata.{name}.{key}", value, "string"))
    for index, value in enumerate(items(metadata, "finalizers")):
        if not isinstance(value, str):
            errors.append(_type_error(f"metadata.finalizers[{index}]", value, "string"))
    for name in ("ownerReferences", "managedFields"):
        for index, value in enumerate(items(metadata, name)):
            if not isinstance(value, dict):
                errors.append(_type_error(f"metadata.{name}[{index}]", value, "object"))
    return errors


def _type_error(field: str, value: object, type_: str) -> FieldError:
    shown = encode_json(_kind_of(value)).decode()
    detail = f"Invalid value: {shown}: {field} in body must be of type {type_}: {shown}"
    return FieldError("FieldValueTypeInvalid", field, detail)


def _kind_of(value: object) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")


# --- names -----------------------------------------------------------------------------------------------


_NAME_RULES: dict[str, Callable[[str], list[str]]] = {
    "subdomain": labels.dns_subdomain_errors,
    "label": labels.dns_label_errors,
    "path-segment": labels.path_segment_errors,
}


def name_errors(name: str, rule: str) -> list[str]:
    """What is wrong with an object's name. Every name must fit into a URL; `rule` says what else it must be."""
    return _NAME_RULES.get(rule, labels.path_segment_errors)(name)


def _prefix_errors(prefix: str, rule: str) -> list[str]:
    """What is wrong with a generateName: a suffix follows, so that a dash may stand at its end."""
    if rule in ("subdomain", "label"):
        return name_errors(prefix[:-1] + "a" if len(prefix) > 1 and prefix.endswith("-") else prefix, rule)
    return [f"may not contain '{character}'" for character in ("/", "%") if character in prefix]


def _name_errors(metadata: Object, kind: Kind) -> list[FieldError]:
    errors = []
    if prefix := text(metadata, "generateName"):
        errors += invalid_values("metadata.generateName", prefix, _prefix_errors(prefix, kind.name_rule))
    name = text(metadata, "name")
    if not name:
        return [*errors, required("metadata.name", "name or generateName is required")]
    return errors + invalid_values("metadata.name", name, name_errors(name, kind.name_rule))


def _namespace_errors(metadata: Object, kind: Kind) -> list[FieldError]:
    namespace = text(metadata, "namespace")
    if kind.namespaced:
        if not namespace:
            return [required("metadata.namespace")]
        return invalid_values("metadata.namespace", namespace, labels.dns_label_errors(namespace))
    return [forbidden("metadata.namespace", "not allowed on this type")] if namespace else []


# --- what create and update both check -------------------------------------------------------------------


def _common_errors(metadata: Object, kind: Kind) -> list[FieldError]:
    errors = []
    generation = metadata.get("generation") or 0
    if generation < 0:
        errors.append(invalid_value("metadata.generation", generation, "must be greater than or equal to 0"))
    errors += label_errors(mapping(metadata, "labels"), "metadata.labels")
    errors += _annotation_errors(mapping(metadata, "annotations"))
    errors += _owner_errors(items(metadata, "ownerReferences"))
    errors += _finalizer_errors(strings(metadata, "finalizers"), kind)
    return errors + _manager_errors(items(metadata, "managedFields"))


def label_errors(values: Object, field: str) -> list[FieldError]:
    """What is wrong with a map of labels."""
    errors = []
    for key, value in values.items():
        errors += invalid_values(field, key, labels.label_key_errors(key))
        errors += invalid_values(field, value, labels.label_value_errors(value))
    return errors


def _annotation_errors(annotations: Object) -> list[FieldError]:
    errors, size = [], 0
    for key, value in annotations.items():
        errors += invalid_values("metadata.annotations", key, labels.label_key_errors(key.lower()))
        size += len(key.encode()) + len(value.encode())
    if size > ANNOTATIONS_SIZE:
        errors.append(too_long("metadata.annotations", ANNOTATIONS_SIZE))
    return errors


def _owner_errors(references: list[Object]) -> list[FieldError]:
    field, errors, controller = "metadata.ownerReferences", [], ""
    for reference in references:
        errors += _one_owner_errors(reference, field)
        if reference.get("controller") is True:
            name = f"{text(reference, 'kind')}/{text(reference, 'name')}"
            if controller:
                detail = (
                    'Only one reference can have Controller set to true. Found "true" in references for '
                    f"{controller} and {name}"
                )
                errors.append(invalid_value(field, references, detail))
            controller = controller or name
    return errors


def _one_owner_errors(reference: Object, field: str) -> list[FieldError]:
    api_version, kind = text(reference, "apiVersion"), text(reference, "kind")
    errors = []
    if not api_version.rpartition("/")[2] or api_version.count("/") > 1:
        errors.append(invalid_value(f"{field}.apiVersion", api_version, "version must not be empty"))
    for name in ("kind", "name", "uid"):
        if not text(reference, name):
            errors.append(invalid_value(f"{field}.{name}", text(reference, name), "must not be empty"))
    if (api_version, kind) == ("v1", "Event"):
        errors.append(invalid_value(field, reference, "/v1, Kind=Event is disallowed from being an owner"))
    return errors


def _finalizer_errors(finalizers: list[str], kind: Kind) -> list[FieldError]:
    field, errors = "metadata.finalizers", []
    is_strict = kind.builtin and kind.group not in _LENIENT_GROUPS
    for index, finalizer in enumerate(finalizers):
        errors += invalid_values(field, finalizer, labels.label_key_errors(finalizer))
        if is_strict and "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            detail = "name is neither a standard finalizer name nor is it fully qualified"
            errors.append(invalid_value(f"{field}[{index}]", finalizer, detail))
    if ORPHAN in finalizers and FOREGROUND in finalizers:
        errors.append(invalid_value(field, finalizers, f"finalizer {ORPHAN} and {FOREGROUND} cannot be both set"))
    return errors


def _new_finalizer_errors(metadata: Object, before: Object) -> list[FieldError]:
    """An object under deletion may lose finalizers and never gain one."""
    added = sorted(set(strings(metadata, "finalizers")) - set(strings(before, "finalizers")))
    if not added:
        return []
    # The list is printed as Go prints a []string.
    shown = "[]string{" + ", ".join(encode_json(name).decode() for name in added) + "}"
    detail = f"no new finalizers can be added if the object is being deleted, found new finalizers {shown}"
    return [forbidden("metadata.finalizers", detail)]


def _manager_errors(entries: list[Object]) -> list[FieldError]:
    errors = []
    for index, entry in enumerate(entries):
        field = f"metadata.managedFields[{index}]"
        if text(entry, "operation") not in ("Apply", "Update"):
            errors.append(invalid_value(f"{field}.operation", text(entry, "operation"), "must be `Apply` or `Update`"))
        if text(entry, "fieldsType") not in ("", "FieldsV1"):
            errors.append(invalid_value(f"{field}.fieldsType", text(entry, "fieldsType"), "must be `FieldsV1`"))
        if len(text(entry, "manager").encode()) > _MANAGER_SIZE:
            errors.append(too_long(f"{field}.manager", _MANAGER_SIZE))
    return errors


# --- what is mended or warned of -------------------------------------------------------------------------


def dedupe_owner_references(obj: Object) -> list[str]:
    """Remove owner references that repeat an earlier one; gives the warning for them, if any."""
    metadata = mapping(obj, "metadata")
    kept: dict[bytes, object] = {}
    repeated: list[str] = []
    for reference in items(metadata, "ownerReferences"):
        known = len(kept)
        kept.setdefault(encode_json(reference), reference)
        if len(kept) == known:
            repeated.append(text(reference, "uid"))
    if not repeated:
        return []
    metadata["ownerReferences"] = list(kept.values())
    uids = ", ".join(sorted(set(repeated)))
    return [
        ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may "
        f"reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {uids}"
    ]


def finalizer_warnings(obj: Object, kind: Kind, old: Object | None = None) -> list[str]:
    """Warnings for new finalizers of custom resources that could belong to anybody."""
    if kind.builtin:
        return []
    known: Iterable[str] = strings(old, "metadata", "finalizers") if old is not None else ()
    return [
        f"metadata.finalizers: {encode_json(name).decode()}: prefer a domain-qualified finalizer name including a "
        "path (/) to avoid accidental conflicts with other finalizer writers"
        for name in strings(obj, "metadata", "finalizers")
        if "/" not in name and name not in _STANDARD_FINALIZERS and name not in known
    ]
