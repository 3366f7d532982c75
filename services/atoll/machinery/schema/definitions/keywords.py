"""Validation of single keywords of a definition's schema, at any depth.

`version_schema` calls it after `keyword_types`. Errors have the texts of Kubernetes, in document order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.definitions.keyword_types import HOLDING, JUNCTORS, NAMED
from atoll.machinery.schema.definitions.rule_field_path import resolve_field_path
from atoll.machinery.schema.definitions.structural_rules import is_set
from atoll.machinery.schema.fielderrors import forbidden, invalid, not_supported, required
from atoll.machinery.schema.structural.object_meta import META_FIELDS

_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
#: Keywords that no definition may use; a schema with any of them is not validated as structural.
UNSUPPORTED = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")
_UNSUPPORTED = frozenset((*UNSUPPORTED, "$schema"))
_MAP_KEY = "this property is in x-kubernetes-list-map-keys, so it"


class _Position(msgspec.Struct, frozen=True):
    """The position of a schema in its definition, and the keywords that it forbids."""

    is_root: bool = False
    in_metadata: bool = False
    #: Why a default is forbidden; empty where it is allowed.
    no_default: str = ""


def keyword_errors(schema: Object, path: str) -> list[FieldError]:
    """Return an error for each invalid keyword. `path` is the field of the schema."""
    return list(_errors(schema, path, _Position(is_root=True)))


def has_unsupported(schema: Object) -> bool:
    """Whether a schema, at any depth, uses an unsupported keyword, or a list of schemas as `items`."""
    todo = [schema]
    while todo:
        item = todo.pop()
        if not _UNSUPPORTED.isdisjoint(item) and any(is_set(item, keyword) for keyword in _UNSUPPORTED):
            return True
        if isinstance(item.get("items"), list):
            return True
        todo.extend(child for child, _, _ in _below(item, "", _Position()))
    return False


def _errors(schema: Object, path: str, place: _Position) -> Iterator[FieldError]:
    yield from _plain_errors(schema, path, place)
    for child, below, inside in _below(schema, path, place):
        yield from _errors(child, below, inside)
    yield from _list_errors(schema, path)
    yield from _rule_errors(schema, path)


def _below(schema: Object, path: str, place: _Position) -> Iterable[tuple[Object, str, _Position]]:
    return () if HOLDING.isdisjoint(schema) else _children(schema, path, place)


def _children(schema: Object, path: str, place: _Position) -> Iterator[tuple[Object, str, _Position]]:
    inner = msgspec.structs.replace(place, is_root=False)
    for keyword in NAMED:
        for key, child in (schema.get(keyword) or {}).items():
            yield child, f"{path}.{keyword}[{key}]", _at_property(schema, keyword, key, place)
    for keyword in JUNCTORS:
        for index, child in enumerate(schema.get(keyword) or ()):
            yield child, f"{path}.{keyword}[{index}]", inner
    for keyword in ("not", "items", "additionalProperties"):
        child = schema.get(keyword)
        if isinstance(child, dict):
            reason = "inside additionalProperties applying to object metadata"
            forbids = keyword == "additionalProperties" and place.in_metadata
            yield child, f"{path}.{keyword}", msgspec.structs.replace(inner, no_default=reason) if forbids else inner


def _at_property(schema: Object, keyword: str, key: str, place: _Position) -> _Position:
    is_object = place.is_root or is_set(schema, "x-kubernetes-embedded-resource")
    if keyword != "properties" or not is_object or key not in META_FIELDS:
        return msgspec.structs.replace(place, is_root=False)
    reason = f"in top-level {key}" if place.is_root else place.no_default
    return _Position(in_metadata=True, no_default=reason)


def _plain_errors(schema: Object, path: str, place: _Position) -> Iterator[FieldError]:
    name = schema.get("type") or ""
    if name and name not in _TYPES:
        yield not_supported(f"{path}.type", name, _TYPES)
    if schema.get("default") is not None and place.no_default:
        yield forbidden(f"{path}.default", f"must not be set {place.no_default}")
    for keyword in () if _UNSUPPORTED.isdisjoint(schema) else UNSUPPORTED:
        if is_set(schema, keyword):
            yield forbidden(f"{path}.{keyword}", f"{keyword} is not supported")
    if name == "null":
        yield forbidden(f"{path}.type", "type cannot be set to null, use nullable as an alternative")
    if isinstance(schema.get("items"), list):
        yield forbidden(f"{path}.items", "items must be a schema object and not an array")
    if place.in_metadata and is_set(schema, "x-kubernetes-embedded-resource"):
        yield forbidden(f"{path}.x-kubernetes-embedded-resource", "must not be used inside of resource meta")
    if is_set(schema, "uniqueItems"):
        text = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield forbidden(f"{path}.uniqueItems", text)
    if schema.get("properties") and schema.get("additionalProperties") not in (None, True):
        yield forbidden(f"{path}.additionalProperties", "additionalProperties and properties are mutual exclusive")
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        yield invalid(f"{path}.x-kubernetes-preserve-unknown-fields", False, "must be true or undefined")


def _topology_errors(schema: Object, path: str, keyword: str, wanted: str) -> Iterator[FieldError]:
    if schema.get(keyword) is None or schema.get("type") == wanted:
        return
    text, name = f"must be {wanted} if {keyword} is specified", schema.get("type") or ""
    yield invalid(f"{path}.type", name, text) if name else required(f"{path}.type", text)


def _list_errors(schema: Object, path: str) -> Iterator[FieldError]:
    map_type, list_type = schema.get("x-kubernetes-map-type"), schema.get("x-kubernetes-list-type")
    yield from _topology_errors(schema, path, "x-kubernetes-map-type", "object")
    if map_type not in (None, "atomic", "granular"):
        yield not_supported(f"{path}.x-kubernetes-map-type", map_type, ("atomic", "granular"))
    yield from _topology_errors(schema, path, "x-kubernetes-list-type", "array")
    items = schema.get("items")
    if list_type == "set" and schema.get("type") == "array" and isinstance(items, dict):
        yield from _atomic_errors(items, path)
    if list_type not in (None, "atomic", "set", "map"):
        yield not_supported(f"{path}.x-kubernetes-list-type", list_type, ("atomic", "set", "map"))
    if schema.get("x-kubernetes-list-map-keys") and list_type != "map":
        text, at = "must be map if x-kubernetes-list-map-keys is non-empty", f"{path}.x-kubernetes-list-type"
        yield required(at, text) if list_type is None else invalid(at, list_type, text)
    if list_type == "map":
        yield from _map_errors(schema, path)
    if list_type in ("set", "map") and isinstance(items, dict) and is_set(items, "nullable"):
        yield forbidden(f"{path}.items.nullable", f"cannot be nullable when x-kubernetes-list-type is {list_type}")
    if list_type == "map" and isinstance(items, dict):
        yield from _map_key_errors(schema, items, path)


def _atomic_errors(items: Object, path: str) -> Iterator[FieldError]:
    text = "must be atomic as item of a list with x-kubernetes-list-type=set"
    list_type = items.get("x-kubernetes-list-type")
    if items.get("type") == "array" and list_type not in (None, "atomic"):
        yield invalid(f"{path}.items.x-kubernetes-list-type", list_type, text)
    if items.get("type") == "object" and items.get("x-kubernetes-map-type") != "atomic":
        yield invalid(f"{path}.items.x-kubernetes-map-type", items.get("x-kubernetes-map-type"), text)


def _map_errors(schema: Object, path: str) -> Iterator[FieldError]:
    keys, items = schema.get("x-kubernetes-list-map-keys") or [], schema.get("items")
    at = f"{path}.x-kubernetes-list-map-keys"
    if not keys:
        yield required(at, "must not be empty if x-kubernetes-list-type is map")
    if items is None:
        yield required(f"{path}.items", "must have a schema if x-kubernetes-list-type is map")
    if not isinstance(items, dict):
        return
    if items.get("type") != "object":
        text = "must be object if parent array's x-kubernetes-list-type is map"
        yield invalid(f"{path}.items.type", items.get("type") or "", text)
        return
    properties = items.get("properties") or {}
    for index, key in enumerate(keys):
        if key not in properties:
            yield invalid(at, keys, "entries must all be names of item properties")
        elif properties[key].get("type") in ("array", "object"):
            text = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            yield invalid(f"{path}.items.properties[{key}].type", items["type"], text)
        if key in keys[:index]:
            yield invalid(at, keys, "must not contain duplicate entries")


def _map_key_errors(schema: Object, items: Object, path: str) -> Iterator[FieldError]:
    properties, needed = items.get("properties") or {}, items.get("required") or ()
    for key in schema.get("x-kubernetes-list-map-keys") or ():
        if key not in properties:
            continue
        at = f"{path}.items.properties[{key}]"
        if key not in needed and properties[key].get("default") is None:
            yield required(f"{at}.default", f"{_MAP_KEY} must have a default or be a required property")
        if is_set(properties[key], "nullable"):
            yield forbidden(f"{at}.nullable", f"{_MAP_KEY} cannot be nullable")


def _rule_errors(schema: Object, path: str) -> Iterator[FieldError]:
    for index, entry in enumerate(schema.get("x-kubernetes-validations") or ()):
        at = f"{path}.x-kubernetes-validations[{index}]"
        rule, message = entry.get("rule") or "", entry.get("message") or ""
        if not rule.strip():
            yield required(f"{at}.rule", "rule is not specified")
        elif message and not message.strip():
            yield invalid(f"{at}.message", message, "must be non-empty if specified")
        elif _has_newline(message.strip()):
            yield invalid(f"{at}.message", message, "must not contain line breaks")
        elif _has_newline(rule.strip()) and not message:
            yield required(f"{at}.message", "message must be specified if rule contains line breaks")
        expression, place = entry.get("messageExpression") or "", entry.get("fieldPath") or ""
        if expression and not expression.strip():
            yield required(f"{at}.messageExpression", "messageExpression must be non-empty if specified")
        if entry.get("reason") is not None and entry["reason"] not in _REASONS:
            yield not_supported(f"{at}.reason", entry["reason"], _REASONS)
        if place and not place.strip():
            yield invalid(f"{at}.fieldPath", place, "must be non-empty if specified")
        if _has_newline(place):
            yield invalid(f"{at}.fieldPath", place, "must not contain line breaks")
        if place and resolve_field_path(place, schema) is None:
            yield invalid(f"{at}.fieldPath", place, "must be a valid path")


def _has_newline(text: str) -> bool:
    return "\n" in text or "\r" in text
