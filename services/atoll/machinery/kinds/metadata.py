"""Checks on metadata for every kind: names, labels, owners, finalizers, immutable fields.

Create and update call these in addition to the checks of the schema and the kind; metadata from conversions and
webhooks is checked by them too. Messages are Kubernetes'. Values of a wrong type are skipped, because the schema
reports them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from atoll.machinery.kinds.checks import immutable, invalid_values, items, mapping, number, objects, strings, text
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import labels
from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import forbidden, invalid, required, too_long

ANNOTATIONS_SIZE = 262_144
ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"

_MANAGER_SIZE, _SUBRESOURCE_SIZE = 128, 256
_STANDARD_FINALIZERS = frozenset({"kubernetes", ORPHAN, FOREGROUND})
#: Groups whose kinds accept finalizers without a domain, as custom resources do.
_LENIENT_GROUPS = frozenset({"admissionregistration.k8s.io", "apiextensions.k8s.io"})
_IMMUTABLE = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


def validate_metadata(obj: Object, kind: Kind) -> list[FieldError]:
    """Return all errors in the metadata of a new object, after generateName."""
    metadata = obj.get("metadata")
    if type(metadata) is not dict:
        metadata = {}
    return [*_name_errors(metadata, kind), *_namespace_errors(metadata, kind), *_common_errors(metadata, kind)]


def validate_metadata_update(obj: Object, old: Object, kind: Kind) -> list[FieldError]:
    """Return all errors in the metadata of an object that replaces `old`."""
    metadata, before = mapping(obj, "metadata"), old["metadata"]
    errors = _common_errors(metadata, kind)
    if before.get("deletionTimestamp"):
        errors += _new_finalizer_errors(metadata, before)
    if "generation" in before:
        generation = number(metadata, "generation") or 0
        if generation < (number(before, "generation") or 0):
            errors.append(invalid("metadata.generation", generation, "must not be decremented"))
    for name in _IMMUTABLE:
        if metadata.get(name) != before.get(name):
            errors += immutable(f"metadata.{name}", metadata.get(name), before.get(name))
    return errors


# --- names -----------------------------------------------------------------------------------------------


_NAME_RULES: dict[str, Callable[[str], list[str]]] = {
    "subdomain": labels.dns_subdomain_errors,
    "label": labels.dns_label_errors,
    "path-segment": labels.path_segment_errors,
}


def name_errors(name: str, rule: str) -> list[str]:
    """Return the problems of the name of an object by a rule; every name must be a valid URL path segment."""
    return _NAME_RULES.get(rule, labels.path_segment_errors)(name)


def _prefix_errors(prefix: str, rule: str) -> list[str]:
    """Return the problems of a generateName; it may end in a dash because a suffix follows."""
    if rule in ("subdomain", "label"):
        return name_errors(prefix[:-1] + "a" if len(prefix) > 1 and prefix.endswith("-") else prefix, rule)
    return [f"may not contain '{character}'" for character in ("/", "%") if character in prefix]


def _name_errors(metadata: Object, kind: Kind) -> list[FieldError]:
    errors = []
    if "generateName" in metadata and (prefix := text(metadata, "generateName")):
        errors += invalid_values("metadata.generateName", prefix, _prefix_errors(prefix, kind.name_rule))
    name = metadata.get("name")
    if not name or type(name) is not str:
        return [*errors, required("metadata.name", "name or generateName is required")]
    found = _NAME_RULES.get(kind.name_rule, labels.path_segment_errors)(name)
    return errors + invalid_values("metadata.name", name, found) if found else errors


def _namespace_errors(metadata: Object, kind: Kind) -> list[FieldError]:
    namespace = metadata.get("namespace")
    if kind.namespaced:
        if not namespace or type(namespace) is not str:
            return [required("metadata.namespace")]
        found = labels.dns_label_errors(namespace)
        return invalid_values("metadata.namespace", namespace, found) if found else []
    return [forbidden("metadata.namespace", "not allowed on this type")] if text(metadata, "namespace") else []


# --- checks of create and update -------------------------------------------------------------------


def _common_errors(metadata: Object, kind: Kind) -> list[FieldError]:
    errors = []
    generation = metadata.get("generation")
    if type(generation) is int and generation < 0:
        errors.append(invalid("metadata.generation", generation, "must be greater than or equal to 0"))
    # Every write runs this, and most objects have few of these fields.
    if metadata.get("labels"):
        errors += label_errors(mapping(metadata, "labels"), "metadata.labels")
    if metadata.get("annotations"):
        errors += _annotation_errors(mapping(metadata, "annotations"))
    if metadata.get("ownerReferences"):
        errors += _owner_errors([reference for _, reference in objects(metadata, "ownerReferences")])
    if metadata.get("finalizers"):
        errors += _finalizer_errors(strings(metadata, "finalizers"), kind)
    if metadata.get("managedFields"):
        errors += _manager_errors(metadata)
    return errors


def label_errors(values: Object, field: str) -> list[FieldError]:
    """Return the errors of a map of labels."""
    errors = []
    for key, value in values.items():
        if found := labels.label_key_errors(key):
            errors += invalid_values(field, key, found)
        if isinstance(value, str) and (found := labels.label_value_errors(value)):
            errors += invalid_values(field, value, found)
    return errors


def _annotation_errors(annotations: Object) -> list[FieldError]:
    errors, size = [], 0
    for key, value in annotations.items():
        if found := labels.label_key_errors(key.lower()):
            errors += invalid_values("metadata.annotations", key, found)
        size += len(key.encode()) + (len(value.encode()) if isinstance(value, str) else 0)
    if size > ANNOTATIONS_SIZE:
        errors.append(too_long("metadata.annotations", ANNOTATIONS_SIZE))
    return errors


def _owner_errors(references: list[Object]) -> list[FieldError]:
    field = "metadata.ownerReferences"
    errors = [error for reference in references for error in _one_owner_errors(reference, field)]
    controllers = [reference for reference in references if reference.get("controller") is True]
    if len(controllers) > 1:
        first, second = (f"{text(each, 'kind')}/{text(each, 'name')}" for each in controllers[:2])
        detail = (
            f'Only one reference can have Controller set to true. Found "true" in references for {first} and {second}'
        )
        errors.append(invalid(field, references, detail))
    return errors


def _one_owner_errors(reference: Object, field: str) -> list[FieldError]:
    api_version, kind = text(reference, "apiVersion"), text(reference, "kind")
    errors = []
    if not api_version.rpartition("/")[2] or api_version.count("/") > 1:
        errors.append(invalid(f"{field}.apiVersion", api_version, "version must not be empty"))
    for name in ("kind", "name", "uid"):
        if not text(reference, name):
            errors.append(invalid(f"{field}.{name}", text(reference, name), "must not be empty"))
    if (api_version, kind) == ("v1", "Event"):
        errors.append(invalid(field, reference, "/v1, Kind=Event is disallowed from being an owner"))
    return errors


def _finalizer_errors(finalizers: list[str], kind: Kind) -> list[FieldError]:
    field, errors = "metadata.finalizers", []
    is_strict = kind.builtin and kind.group not in _LENIENT_GROUPS
    for index, finalizer in enumerate(finalizers):
        errors += invalid_values(field, finalizer, labels.label_key_errors(finalizer))
        if is_strict and "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            detail = "name is neither a standard finalizer name nor is it fully qualified"
            errors.append(invalid(f"{field}[{index}]", finalizer, detail))
    if ORPHAN in finalizers and FOREGROUND in finalizers:
        errors.append(invalid(field, finalizers, f"finalizer {ORPHAN} and {FOREGROUND} cannot be both set"))
    return errors


def _new_finalizer_errors(metadata: Object, before: Object) -> list[FieldError]:
    """Return an error for finalizers added to an object under deletion."""
    added = sorted(set(strings(metadata, "finalizers")) - set(strings(before, "finalizers")))
    if not added:
        return []
    # Formatted as Go formats a []string.
    shown = "[]string{" + ", ".join(encode_json(name).decode() for name in added) + "}"
    detail = f"no new finalizers can be added if the object is being deleted, found new finalizers {shown}"
    return [forbidden("metadata.finalizers", detail)]


def _manager_errors(metadata: Object) -> list[FieldError]:
    errors = []
    for index, entry in enumerate(items(metadata, "managedFields")):
        if not isinstance(entry, dict):
            continue
        field = f"metadata.managedFields[{index}]"
        if entry.get("operation") not in ("Apply", "Update"):
            errors.append(invalid(f"{field}.operation", text(entry, "operation"), "must be `Apply` or `Update`"))
        if entry.get("fieldsType") != "FieldsV1" and (fields_type := text(entry, "fieldsType")):
            errors.append(invalid(f"{field}.fieldsType", fields_type, "must be `FieldsV1`"))
        name = entry.get("manager", "")
        if type(name) is not str or not (name.isascii() and name.isprintable() and len(name) <= _MANAGER_SIZE):
            errors += manager_errors(text(entry, "manager"), f"{field}.manager")
        if "subresource" in entry and len(text(entry, "subresource").encode()) > _SUBRESOURCE_SIZE:
            errors.append(too_long(f"{field}.subresource", _SUBRESOURCE_SIZE))
    return errors


def manager_errors(name: str, field: str) -> list[FieldError]:
    """Return the errors of the name of a field manager: its size in bytes is bounded, its characters are printable."""
    errors = [too_long(field, _MANAGER_SIZE)] if len(name.encode()) > _MANAGER_SIZE else []
    if name.isprintable():
        return errors
    for index, character in enumerate(name[:_MANAGER_SIZE]):
        if not character.isprintable():
            at = len(name[:index].encode())
            errors.append(invalid(field, name, f"invalid character U+{ord(character):04X} (at position {at})"))
    return errors


# --- corrections and warnings -------------------------------------------------------------------------


def dedupe_owner_references(obj: Object) -> list[str]:
    """Remove owner references that repeat an earlier one; return the warning about them, if any."""
    metadata = mapping(obj, "metadata")
    unique: dict[bytes, object] = {}
    repeated: list[str] = []
    for reference in items(metadata, "ownerReferences"):
        count = len(unique)
        unique.setdefault(encode_json(reference), reference)
        if len(unique) == count:
            repeated.append(text(reference, "uid"))
    if not repeated:
        return []
    metadata["ownerReferences"] = list(unique.values())
    uids = ", ".join(sorted(set(repeated)))
    return [
        ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, "
        "and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: " + uids
    ]


def finalizer_warnings(obj: Object, kind: Kind, old: Object | None = None) -> list[str]:
    """Return warnings for new finalizers of custom resources without a domain."""
    if kind.builtin:
        return []
    existing: Iterable[str] = strings(old, "metadata", "finalizers") if old is not None else ()
    return [
        f"metadata.finalizers: {encode_json(name).decode()}: prefer a domain-qualified finalizer name "
        "including a path (/) to avoid accidental conflicts with other finalizer writers"
        for name in strings(obj, "metadata", "finalizers")
        if "/" not in name and name not in _STANDARD_FINALIZERS and name not in existing
    ]
