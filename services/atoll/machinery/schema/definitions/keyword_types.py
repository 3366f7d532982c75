"""The types of keywords in a definition's schema.

`version_schema` calls it first; all other validation of the schema then relies on the types. The schema of the kind
CustomResourceDefinition finds most of these errors too; an APIResourceSchema holds its schemas as open JSON, so this is
the only validation between a tenant's bytes and the compiler.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import quote, type_invalid
from atoll.machinery.schema.structural.fast_validation import TYPE_NAMES

#: Maximum nesting of schemas. Real ones have about 20.
MAX_LEVELS = 100

_STRINGS = (
    "id",
    "$schema",
    "$ref",
    "description",
    "type",
    "format",
    "title",
    "pattern",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
)
_NUMBERS = ("maximum", "minimum", "multipleOf")
_INTEGERS = ("maxLength", "minLength", "maxItems", "minItems", "maxProperties", "minProperties")
_BOOLEANS = (
    "exclusiveMaximum",
    "exclusiveMinimum",
    "uniqueItems",
    "nullable",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
)
_LISTS = (
    "enum",
    "required",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-validations",
    *(JUNCTORS := ("allOf", "oneOf", "anyOf")),
)
_MAPS = (*(NAMED := ("properties", "patternProperties", "definitions")), "dependencies", "externalDocs")
_TYPES: dict[str, str] = {
    **dict.fromkeys(_STRINGS, "string"),
    **dict.fromkeys(_NUMBERS, "number"),
    **dict.fromkeys(_INTEGERS, "integer"),
    **dict.fromkeys(_BOOLEANS, "boolean"),
    **dict.fromkeys(_LISTS, "array"),
    **dict.fromkeys(_MAPS, "object"),
    "not": "object",
}
_ITEM_TYPES = {
    "required": "string",
    "x-kubernetes-list-map-keys": "string",
    "x-kubernetes-validations": "object",
    **dict.fromkeys(JUNCTORS, "object"),
}
_SINGLE = ("not", "additionalProperties", "items", "additionalItems")
#: Keywords that contain schemas.
HOLDING = frozenset((*NAMED, *JUNCTORS, *_SINGLE))
_RULE_STRINGS = ("rule", "message", "messageExpression", "reason", "fieldPath")


def keyword_type_errors(schema: Any, path: str) -> list[FieldError]:
    """Return an error for each keyword of a wrong type, at any depth; nulls count as absent. `path` is the field."""
    errors: list[FieldError] = []
    todo: list[tuple[Any, str, int]] = [(schema, path, 0)]
    while todo:
        item, at, level = todo.pop()
        if error := _type_error(item, "object", at):
            errors.append(error)
        elif level > MAX_LEVELS:
            return [type_invalid(at, "object", f"{at} in body is nested deeper than {MAX_LEVELS} schemas")]
        else:
            errors.extend(_own_errors(item, at))
            todo.extend((child, below, level + 1) for child, below in children(item, at))
    return errors


def children(schema: Object, path: str) -> Iterable[tuple[Any, str]]:
    """Return the schemas directly inside a schema, of any type, and their fields."""
    # Four of five schemas contain no other, and a large definition has ten thousand.
    return () if HOLDING.isdisjoint(schema) else _children(schema, path)


def _children(schema: Object, path: str) -> Iterator[tuple[Any, str]]:
    for keyword in NAMED:
        if isinstance(schema.get(keyword), dict):
            yield from ((child, f"{path}.{keyword}[{key}]") for key, child in schema[keyword].items())
    for keyword in JUNCTORS:
        if isinstance(schema.get(keyword), list):
            yield from ((child, f"{path}.{keyword}[{index}]") for index, child in enumerate(schema[keyword]))
    for keyword in _SINGLE:
        if isinstance(schema.get(keyword), dict):
            yield schema[keyword], f"{path}.{keyword}"


def _own_errors(schema: Object, path: str) -> Iterator[FieldError]:
    for keyword, value in schema.items():
        expected = _TYPES.get(keyword)
        at = f"{path}.{keyword}"
        if value is None or (expected is None and keyword not in ("items", "additionalProperties", "additionalItems")):
            continue
        if expected is None:
            # `items` may also be a list, the others also a boolean.
            other = list if keyword == "items" else bool
            error = None if isinstance(value, (dict, other)) else _type_error(value, "object", at)
        else:
            error = _type_error(value, expected, at)
        if error:
            yield error
        elif keyword in _ITEM_TYPES:
            yield from _item_errors(value, _ITEM_TYPES[keyword], at)
            if keyword == "x-kubernetes-validations":
                yield from _rule_errors(value, at)


def _item_errors(values: list[Any], expected: str, path: str) -> Iterator[FieldError]:
    for index, value in enumerate(values):
        if error := _type_error(value, expected, f"{path}[{index}]"):
            yield error


def _rule_errors(rules: list[Any], path: str) -> Iterator[FieldError]:
    for index, rule in enumerate(rules):
        for key in _RULE_STRINGS:
            value = rule.get(key) if isinstance(rule, dict) else None
            if value is not None and (error := _type_error(value, "string", f"{path}[{index}].{key}")):
                yield error
        optional = rule.get("optionalOldSelf") if isinstance(rule, dict) else None
        if optional is not None and (error := _type_error(optional, "boolean", f"{path}[{index}].optionalOldSelf")):
            yield error


def _type_error(value: Any, expected: str, path: str) -> FieldError | None:
    actual = TYPE_NAMES[type(value)]
    if actual == expected or (expected == "number" and actual == "integer"):
        return None
    return type_invalid(path, actual, f"{path} in body must be of type {expected}: {quote(actual)}")
