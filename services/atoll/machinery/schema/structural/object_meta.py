"""ObjectMeta as a schema, and the validation of embedded objects.

Roots and fields marked x-kubernetes-embedded-resource always have metadata: `compiler` gives such nodes METADATA, so
that unknown metadata fields are dropped and wrong types are errors. `validation` calls `embedded_errors` for the rules
on names, labels and annotations; for roots the kind's own validation checks these.
"""

from __future__ import annotations

from typing import Any

from atoll.machinery.meta import labels
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import invalid, required

_STRING: Object = {"type": "string"}
_TIME: Object = {"type": "string", "format": "date-time"}
# Go decodes a null among labels or annotations as an empty string.
_STRINGS: Object = {"type": "object", "additionalProperties": {"type": "string", "default": ""}}


def _fields(*names: str) -> Object:
    return dict.fromkeys(names, _STRING)


METADATA: Object = {
    "type": "object",
    "properties": {
        **_fields("name", "generateName", "namespace", "selfLink", "uid", "resourceVersion"),
        "generation": {"type": "integer", "format": "int64"},
        "creationTimestamp": _TIME,
        "deletionTimestamp": _TIME,
        "deletionGracePeriodSeconds": {"type": "integer", "format": "int64"},
        "labels": _STRINGS,
        "annotations": _STRINGS,
        "finalizers": {"type": "array", "items": _STRING},
        "ownerReferences": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    **_fields("apiVersion", "kind", "name", "uid"),
                    "controller": {"type": "boolean"},
                    "blockOwnerDeletion": {"type": "boolean"},
                },
            },
        },
        "managedFields": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    **_fields("manager", "operation", "apiVersion", "fieldsType", "subresource"),
                    "time": _TIME,
                    "fieldsV1": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                },
            },
        },
    },
}

META_FIELDS = frozenset({"apiVersion", "kind", "metadata"})


def embedded_errors(value: Object, path: str) -> list[FieldError]:
    """Validate apiVersion, kind and metadata of an embedded object, except for their types."""
    errors = [required(f"{path}.{name}") for name in ("apiVersion", "kind") if name not in value]
    for name, rule in (("apiVersion", _api_version_errors), ("kind", _kind_errors)):
        text = value.get(name)
        if isinstance(text, str):
            problems = rule(text) if text else ["must not be empty"]
            errors += [invalid(f"{path}.{name}", text, problem) for problem in problems]
    metadata = value.get("metadata")
    return errors + (_metadata_errors(metadata, f"{path}.metadata") if isinstance(metadata, dict) else [])


def _api_version_errors(text: str) -> list[str]:
    return [f"unexpected GroupVersion string: {text}"] if text.count("/") > 1 else []


def _kind_errors(text: str) -> list[str]:
    problems = labels.dns_1035_label_errors(text.lower())
    return ["may have mixed case, but should otherwise match: " + ",".join(problems)] if problems else []


def _metadata_errors(metadata: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for name, rule in (
        ("generateName", _prefix_errors),
        ("name", labels.path_segment_errors),
        ("namespace", labels.dns_label_errors),
    ):
        text = metadata.get(name)
        if isinstance(text, str) and text:
            errors += [invalid(f"{path}.{name}", text, problem) for problem in rule(text)]
    for key, value in _strings(metadata.get("labels")):
        errors += [invalid(f"{path}.labels", key, problem) for problem in labels.label_key_errors(key)]
        errors += [invalid(f"{path}.labels", value, problem) for problem in labels.label_value_errors(value)]
    for key, _ in _strings(metadata.get("annotations")):
        errors += [invalid(f"{path}.annotations", key, problem) for problem in labels.label_key_errors(key.lower())]
    return errors


def _prefix_errors(text: str) -> list[str]:
    # "." and ".." are not names but valid prefixes.
    return [] if text in (".", "..") else labels.path_segment_errors(text)


def _strings(value: Any) -> list[tuple[str, str]]:
    return [(key, item) for key, item in value.items() if isinstance(item, str)] if isinstance(value, dict) else []
