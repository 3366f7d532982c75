"""Conversion of OpenAPI v3 schemas to v2, with the losses of Kubernetes.

`openapi` converts sources of custom kinds with `to_v2`, `apiserver.openapi` the built-in components with
`native_to_v2`. Keywords that v2 lacks (oneOf, anyOf, not, nullable) are dropped. Clients of v2 are old kubectls, which
reject fields that an object with properties does not name, and fail on lists without items: a type is dropped too where
v2 cannot express all allowed values. Invariant: sources are not modified.
"""

from __future__ import annotations

from typing import Any

from atoll.machinery.meta.objects import Object

PREFIX_V2 = "#/definitions/"
PRESERVE = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING = "x-kubernetes-int-or-string"
EMBEDDED = "x-kubernetes-embedded-resource"

_DROPPED = frozenset({"oneOf", "anyOf", "allOf", "not", "nullable"})
_CHILDREN = ("items", "additionalProperties")


def to_v2(schema: Object) -> Object:
    """Convert a structural schema to v2."""
    converted = {key: value for key, value in schema.items() if key not in _DROPPED}
    if schema.get("nullable") is True:
        # A type without null would reject values that the API accepts.
        converted.pop("type", None)
    if schema.get("nullable") is True or schema.get(PRESERVE) is True:
        converted.pop("items", None)
        converted.pop("properties", None)
    kind = converted.get("type")
    if (kind == "array" and "items" not in converted) or (kind == "object" and schema.get(PRESERVE) is True):
        del converted["type"]
    _convert_children(converted)
    return converted


def _convert_children(converted: Object) -> None:
    properties: Any = converted.get("properties")
    if isinstance(properties, dict):
        converted["properties"] = {
            name: to_v2(child) if isinstance(child, dict) else child for name, child in properties.items()
        }
        _drop_required(converted, {name for name, child in properties.items() if _is_nullable(child)})
    for key in _CHILDREN:
        child: Any = converted.get(key)
        if isinstance(child, dict):
            converted[key] = to_v2(child)
            if key == "additionalProperties" and _is_nullable(child):
                converted.pop("required", None)


def _is_nullable(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("nullable") is True


def _drop_required(schema: Object, names: set[str]) -> None:
    """Remove nullable fields from `required`: clients treat null as absent."""
    required: Any = schema.get("required")
    if not names or not isinstance(required, list):
        return
    kept = [name for name in required if name not in names]
    if kept:
        schema["required"] = kept
    else:
        del schema["required"]


def native_to_v2(schema: Object) -> Object:
    """Convert a built-in component to v2: references in the form of v2, no defaults."""
    converted: Object = {}
    for key, value in schema.items():
        if key == "properties":
            converted[key] = {name: native_to_v2(child) for name, child in value.items()}
        elif key in _CHILDREN and isinstance(value, dict):
            converted[key] = native_to_v2(value)
        elif key == "allOf" and len(value) == 1:
            converted["$ref"] = _reference(value[0]["$ref"])
        elif key == "$ref":
            converted[key] = _reference(value)
        elif key == "oneOf":
            # Of several forms (quantities), every client writes the string.
            converted["type"] = "string"
        elif key not in _DROPPED and key != "default":
            converted[key] = value
    return converted


def _reference(text: str) -> str:
    return PREFIX_V2 + text.rpartition("/")[2]
