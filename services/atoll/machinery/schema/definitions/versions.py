"""Validation of the versions of a definition: names, schemas, deprecation, subresources, columns, selectable fields.

`crd` and `apiresourceschema` call `version_list_errors`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import Any

from atoll.machinery.meta import labels
from atoll.machinery.meta.equality import same
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.definitions.accessors import versions
from atoll.machinery.schema.definitions.version_schema import RuleValidator, definition_errors
from atoll.machinery.schema.fielderrors import duplicate, invalid, required, too_many

MAX_SELECTABLE_FIELDS = 8
_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")


def version_list_errors(
    obj: Object, steps: tuple[str, ...], validated: dict[str, Object], rules: RuleValidator | None
) -> Iterator[FieldError]:
    """Validate the versions and their schemas, which are at `schema` and the keys `steps` below it.

    `validated` holds versions that were validated before, by name; unchanged ones are skipped.
    """
    entries = versions(obj)
    for index, version in enumerate(entries):
        path, name = f"spec.versions[{index}]", version.get("name")
        if not isinstance(name, str) or (problems := labels.dns_1035_label_errors(name)):
            yield invalid(
                f"{path}.name", name or "", ",".join(problems) if isinstance(name, str) else "must be a string"
            )
        schema, at = _schema_of(version, steps), ".".join([path, "schema", *steps])
        if schema is None:
            yield required(at)
        before = validated.get(name) if isinstance(name, str) else None
        if before is None or not same(version, before):
            unchanged = before is not None and same(schema, _schema_of(before, steps))
            errors = _schema_errors(version, schema, at, None if unchanged else rules)
            yield from errors
            yield from version_errors(version, schema if not errors else None, path)
    names = [each.get("name") for each in entries]
    if len(set(map(str, names))) != len(names):
        yield invalid("spec.versions", names, "must contain unique version names")
    if sum(each.get("storage") is True for each in entries) != 1:
        yield invalid("spec.versions", names, "must have exactly one version marked as storage version")


def _schema_of(version: Object, steps: tuple[str, ...]) -> Any:
    schema: Any = version.get("schema")
    for step in steps:
        schema = schema.get(step) if isinstance(schema, dict) else None
    return schema


def _schema_errors(version: Object, schema: Any, path: str, rules: RuleValidator | None) -> list[FieldError]:
    if schema is None:
        return []
    subresources = version.get("subresources")
    has_status = isinstance(subresources, dict) and subresources.get("status") is not None
    return definition_errors(schema, path, has_status=has_status, rules=rules)


def version_errors(version: Object, schema: Any, path: str) -> Iterator[FieldError]:
    """Validate a version except for name and schema. `schema` is its OpenAPI schema, if well-formed."""
    yield from _deprecation_errors(version, f"{path}.deprecationWarning")
    subresources = version.get("subresources")
    if isinstance(subresources, dict) and isinstance(subresources.get("scale"), dict):
        yield from _scale_errors(subresources["scale"], f"{path}.subresources.scale")
    columns = version.get("additionalPrinterColumns")
    for index, column in enumerate(columns if isinstance(columns, list) else ()):
        if isinstance(column, dict):
            yield from _column_errors(column, f"{path}.additionalPrinterColumns[{index}]")
    fields = version.get("selectableFields")
    if isinstance(fields, list) and fields and isinstance(schema, dict):
        yield from _selectable_errors(fields, schema, f"{path}.selectableFields")


def _deprecation_errors(version: Object, path: str) -> Iterator[FieldError]:
    warning = version.get("deprecationWarning")
    if not isinstance(warning, str):
        return
    if version.get("deprecated") is not True:
        yield invalid(path, warning, "can only be set for deprecated versions")
        return
    if len(warning.encode()) > 256:
        yield invalid(path, warning, "must be <= 256 characters long")
    if not warning:
        yield invalid(path, warning, "must not be an empty string")
    for index, char in enumerate(warning):
        if not _is_printable(char):
            at = len(warning[:index].encode())
            text = f"must only contain printable UTF-8 characters; non-printable character found at index {at}"
            yield invalid(path, warning, text)
            break


def _is_printable(char: str) -> bool:
    # Go prints no space but the plain one.
    return char == " " or unicodedata.category(char)[0] in "LMNPS"


def simple_path_error(path: Any, field: str) -> FieldError | None:
    """Return an error for a text that is not a JSON path with leading dot. Columns have no further rules."""
    if not path or not isinstance(path, str):
        return invalid(field, "", "must not be empty")
    return None if path[0] == "." else invalid(field, path, "must be a simple json path starting with .")


def _scale_errors(scale: Object, path: str) -> Iterator[FieldError]:
    places = (
        ("specReplicasPath", (".spec.",), "should be a json path under .spec"),
        ("statusReplicasPath", (".status.",), "should be a json path under .status"),
        ("labelSelectorPath", (".spec.", ".status."), "should be a json path under either .spec or .status"),
    )
    for name, prefixes, text in places:
        value, at = scale.get(name), f"{path}.{name}"
        if not value:
            if name != "labelSelectorPath":
                yield required(at)
        elif error := simple_path_error(value, at):
            yield error
        elif not value.startswith(prefixes):
            yield invalid(at, value, text)
        elif "[" in value:
            # Kubernetes accepts these and then finds no value at them.
            yield invalid(at, value, "must be a simple json path without array notation")


def _column_errors(column: Object, path: str) -> Iterator[FieldError]:
    if not column.get("name"):
        yield required(f"{path}.name")
    kind, text = column.get("type"), f"must be one of {','.join(_COLUMN_TYPES)}"
    if not kind:
        yield required(f"{path}.type", text)
    elif kind not in _COLUMN_TYPES:
        yield invalid(f"{path}.type", kind, text)
    form = column.get("format")
    if form and form not in _COLUMN_FORMATS:
        yield invalid(f"{path}.format", form, f"must be one of {','.join(_COLUMN_FORMATS)}")
    json_path = column.get("jsonPath")
    if not json_path:
        yield required(f"{path}.jsonPath")
    elif error := simple_path_error(json_path, f"{path}.jsonPath"):
        yield error


def _selectable_errors(fields: list[Any], schema: Object, path: str) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, field in enumerate(fields):
        value, at = field.get("jsonPath") if isinstance(field, dict) else None, f"{path}[{index}].jsonPath"
        if not value or not isinstance(value, str):
            yield required(at)
            continue
        found = _target(value, schema)
        if isinstance(found, str):
            yield invalid(at, value, f"is an invalid path: {found}")
            continue
        if value.split(".")[1] == "metadata":
            yield invalid(at, value, "must not point to fields in metadata")
        if found.get("type") not in ("string", "boolean", "integer"):
            text = "must point to a field of type string, boolean or integer."
            yield invalid(at, value, f"{text} Enum string fields and strings with formats are allowed.")
        if value in seen:
            yield duplicate(at, value)
        seen.add(value)
    if len(seen) > MAX_SELECTABLE_FIELDS:
        yield too_many(path, len(seen), MAX_SELECTABLE_FIELDS)


def _target(path: str, schema: Object) -> Object | str:
    """Return the schema at a dotted path, or the reason why there is none."""
    if "[" in path:
        return "array notation is not allowed"
    head, *names = path.split(".")
    if head:
        return f"expected [ or . but got: {head}"
    for name in names:
        properties, extra = schema.get("properties"), schema.get("additionalProperties")
        if not name:
            return "unexpected end of JSON path"
        below = properties.get(name) if isinstance(properties, dict) and properties else extra
        if not isinstance(below, dict):
            return "does not refer to a valid field"
        schema = below
    return schema
