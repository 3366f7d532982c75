"""Schemas of OpenAPI v3 as OpenAPI v2 can say them, with Kubernetes' losses.

`openapi` converts custom kinds' sources with `to_v2`, `apiserver.openapi` the built-in components with
`native_to_v2`. What v2 lacks (oneOf, anyOf, not, nullable) goes; readers of v2 are old kubectls, which refuse fields
that an object with properties does not name, and cannot cope with lists without items: where a field may be more
than v2 can say, its type goes too. Sources are never changed.
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
    """A structural schema in v2."""
    found = {key: value for key, value in schema.items() if key not in _DROPPED}
    if schema.get("nullable") is True:
        # A type without null would refuse what the API takes.
        found.pop("type", None)
    if schema.get("nullable") is True or schema.get(PRESERVE) is True:
        found.pop("items", None)
        found.pop("properties", None)
    kind = found.get("type")
    if (kind == "array" and "items" not in found) or (kind == "object" and schema.get(PRESERVE) is True):
        del found["type"]
    _convert_children(found)
    return found


def _convert_children(found: Object) -> None:
    properties: Any = found.get("properties")
    if isinstance(properties, dict):
        found["properties"] = {
            name: to_v2(child) if isinstance(child, dict) else child for name, child in properties.items()
        }
        _drop_required(found, {name for name, child in properties.items() if _is_nullable(child)})
    for key in _CHILDREN:
        child: Any = found.get(key)
        if isinstance(child, dict):
            found[key] = to_v2(child)
            if key == "additionalProperties" and _is_nullable(child):
                found.pop("required", None)


def _is_nullable(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("nullable") is True


def _drop_required(schema: Object, names: set[str]) -> None:
    """A field that may be null is not asked for: readers would take null for absent."""
    required: Any = schema.get("required")
    if not names or not isinstance(required, list):
        return
    kept = [name for name in required if name not in names]
    if kept:
        schema["required"] = kept
    else:
        del schema["required"]


def native_to_v2(schema: Object) -> Object:
    """A built-in component in v2: references as v2 writes them, no defaults."""
    found: Object = {}
    for key, value in schema.items():
        if key == "properties":
            found[key] = {name: native_to_v2(child) for name, child in value.items()}
        elif key in _CHILDREN and isinstance(value, dict):
            found[key] = native_to_v2(value)
        elif key == "allOf" and len(value) == 1:
            found["$ref"] = _reference(value[0]["$ref"])
        elif key == "$ref":
            found[key] = _reference(value)
        elif key == "oneOf":
            # Of what has several forms (quantities), the string is the one that every client writes.
            found["type"] = "string"
        elif key not in _DROPPED and key != "default":
            found[key] = value
    return found


def _reference(text: str) -> str:
    return PREFIX_V2 + text.rpartition("/")[2]
