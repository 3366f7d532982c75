"""The rules that make a schema structural, so that objects can be pruned and defaulted by it.

`version_schema` calls it after `keyword_types`. The rules and texts are those of Kubernetes: every place has a type;
only value validations are allowed inside allOf, anyOf, oneOf and not; every field validated there is declared outside.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.regexp import PatternError, compile_pattern
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import forbidden, invalid, required

_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
_EMPTY_TYPE = {
    "root": "must not be empty at the root",
    "item": "must not be empty for specified array items",
    "field": "must not be empty for specified object fields",
}
_EMBEDDED_TYPE = "must be object if x-kubernetes-embedded-resource is true"
_ONLY_NAMES = "must not specify anything other than name and generateName, but metadata is implicitly specified"
#: Keywords that are forbidden inside allOf, anyOf, oneOf and not, with the error text.
_FORBIDDEN_INSIDE = (
    ("type", "must be empty to be structural"),
    ("additionalProperties", "must be undefined to be structural"),
    ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
    ("x-kubernetes-embedded-resource", "must be false to be structural"),
    ("x-kubernetes-int-or-string", "must be false to be structural"),
    ("x-kubernetes-list-map-keys", "must be empty to be structural"),
    ("x-kubernetes-list-type", "must be undefined to be structural"),
    ("x-kubernetes-map-type", "must be undefined to be structural"),
    ("x-kubernetes-validations", "must be empty to be structural"),
)


def structural_errors(schema: Object, path: str) -> list[FieldError]:
    """Return every violation, sorted by text as in Kubernetes. `path` is the field of the schema."""
    errors = [*_invariants(schema, "root", path), *_completeness(schema, schema, path, path)]
    return sorted(errors, key=str)


def is_set(schema: Object, keyword: str) -> bool:
    """Whether a keyword is set: Go does not distinguish false, "" and empty lists from absence."""
    value = schema.get(keyword)
    return value is not None and (bool(value) or keyword in ("default", "additionalProperties"))


def _properties(schema: Object) -> Iterator[tuple[str, Object]]:
    yield from (schema.get("properties") or {}).items()


def _invariants(schema: Object, level: str, path: str) -> Iterator[FieldError]:
    items, extra = schema.get("items"), schema.get("additionalProperties")
    if schema.get("type") == "array" and items is None:
        yield required(f"{path}.items", "must be specified")
    if isinstance(items, dict):
        yield from _invariants(items, "item", f"{path}.items")
    for key, child in _properties(schema):
        yield from _invariants(child, "field", f"{path}.properties[{key}]")
    if extra is not None and level == "root":
        yield forbidden(f"{path}.additionalProperties", "must not be used at the root")
    if isinstance(extra, dict):
        yield from _invariants(extra, "field", f"{path}.additionalProperties")
    yield from _extension_errors(schema, path)
    yield from _value_validations(schema, path, _int_or_string_forms(schema))
    yield from _type_errors(schema, level, path)
    yield from _meta_errors(schema, level, path)


def _extension_errors(schema: Object, path: str) -> Iterator[FieldError]:
    if is_set(schema, "x-kubernetes-int-or-string"):
        for keyword in ("x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"):
            if is_set(schema, keyword):
                yield invalid(f"{path}.{keyword}", True, "must be false if x-kubernetes-int-or-string is true")


def _type_errors(schema: Object, level: str, path: str) -> Iterator[FieldError]:
    name, embedded = schema.get("type") or "", is_set(schema, "x-kubernetes-embedded-resource")
    preserves = is_set(schema, "x-kubernetes-preserve-unknown-fields")
    at = f"{path}.type"
    if embedded and name != "object":
        yield invalid(at, name, _EMBEDDED_TYPE) if name else required(at, _EMBEDDED_TYPE)
    elif not name and not preserves and not is_set(schema, "x-kubernetes-int-or-string"):
        yield required(at, _EMPTY_TYPE[level])
    if embedded and schema.get("additionalProperties") is not None:
        yield forbidden(f"{path}.additionalProperties", "must not be used if x-kubernetes-embedded-resource is set")
    if level == "root" and name and name != "object":
        yield invalid(at, name, "must be object at the root")
    if embedded and not preserves and not schema.get("properties"):
        text = (
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"
        )
        yield required(f"{path}.properties", text)


def _meta_errors(schema: Object, level: str, path: str) -> Iterator[FieldError]:
    properties = schema.get("properties") or {}
    is_object = level == "root" or is_set(schema, "x-kubernetes-embedded-resource")
    for key in ("kind", "apiVersion"):
        if is_object and key in properties and properties[key].get("type") != "string":
            yield invalid(f"{path}.properties[{key}].type", properties[key].get("type") or "", "must be string")
    metadata = properties.get("metadata")
    if metadata is None:
        return
    at = f"{path}.properties[metadata]"
    if is_object and metadata.get("type") != "object":
        yield invalid(f"{at}.type", metadata.get("type") or "", "must be object")
    if level == "root":
        names = metadata.get("properties") or {}
        known = not names or names.keys() <= {"name", "generateName"}
        if not known or any(is_set(metadata, key) for key in metadata if key not in ("type", "default", "properties")):
            yield forbidden(at, _ONLY_NAMES)


class _IntOrStringForms(NamedTuple):
    """Which of the two forms of int-or-string a schema uses: in its anyOf, or in the anyOf of its first allOf."""

    in_any_of: bool
    in_all_of: bool


def _int_or_string_forms(schema: Object) -> _IntOrStringForms:
    all_of = schema.get("allOf") or [{}]
    return _IntOrStringForms(schema.get("anyOf") == _INT_OR_STRING, all_of[0].get("anyOf") == _INT_OR_STRING)


_NO_FORM = _IntOrStringForms(False, False)


def _value_validations(schema: Object, path: str, forms: _IntOrStringForms) -> Iterator[FieldError]:
    for keyword in ("anyOf", "allOf", "oneOf"):
        for index, child in enumerate(schema.get(keyword) or ()):
            if keyword == "anyOf" and forms.in_any_of:
                continue
            inside = _IntOrStringForms(keyword == "allOf" and index == 0 and forms.in_all_of, False)
            yield from _nested(child, f"{path}.{keyword}[{index}]", inside)
    if isinstance(schema.get("not"), dict):
        yield from _nested(schema["not"], f"{path}.not", _NO_FORM)
    if pattern := schema.get("pattern"):
        try:
            compile_pattern(pattern)
        except PatternError as error:
            yield invalid(f"{path}.pattern", pattern, f"must be a valid regular expression, but isn't: {error}")


def _nested(schema: Object, path: str, forms: _IntOrStringForms) -> Iterator[FieldError]:
    yield from _value_validations(schema, path, forms)
    if isinstance(schema.get("items"), dict):
        yield from _nested(schema["items"], f"{path}.items", _NO_FORM)
    for key, child in _properties(schema):
        yield from _nested(child, f"{path}.properties[{key}]", _NO_FORM)
        if key == "metadata":
            yield forbidden(f"{path}.properties[metadata]", "must not be specified in a nested context")
    for keyword, text in _FORBIDDEN_INSIDE:
        if is_set(schema, keyword):
            yield forbidden(f"{path}.{keyword}", text)


def _completeness(schema: Object, outside: Object | None, at: str, path: str) -> Iterator[FieldError]:
    """Return an error for each field that allOf, anyOf, oneOf or not validate and `outside`, at field `at`, lacks.

    As in Kubernetes, this applies to the root only; definitions in use violate it elsewhere.
    """
    if isinstance(schema.get("not"), dict):
        yield from _declared(schema["not"], outside, at, f"{path}.not")
    for keyword in ("allOf", "anyOf", "oneOf"):
        for index, child in enumerate(schema.get(keyword) or ()):
            yield from _declared(child, outside, at, f"{path}.{keyword}[{index}]")


def _declared(nested: Any, outside: Any, at: str, path: str) -> Iterator[FieldError]:
    if not isinstance(outside, dict):
        yield required(at, f"because it is defined in {path}")
        return
    yield from _completeness(nested, outside, at, path)
    if isinstance(nested.get("items"), dict):
        yield from _declared(nested["items"], outside.get("items"), f"{at}.items", f"{path}.items")
    properties = outside.get("properties") or {}
    for key, child in _properties(nested):
        step = f".properties[{key}]"
        yield from _declared(child, properties.get(key), at + step, path + step)
