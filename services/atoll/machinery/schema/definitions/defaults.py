"""Validation of the defaults in a definition's schema against that schema, whole and unpruned.

`version_schema` calls it for structural schemas, so that a default never makes an object invalid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.definitions.structural_rules import is_set
from atoll.machinery.schema.fielderrors import invalid
from atoll.machinery.schema.structural import pruning
from atoll.machinery.schema.structural.compiler import compile_value
from atoll.machinery.schema.structural.node import Node
from atoll.machinery.schema.structural.object_meta import META_FIELDS, METADATA, embedded_errors
from atoll.machinery.schema.structural.validation import ErrorCollector, validate, validate_embedded

#: A step into a list; other steps are keys.
_ITEM = 0

Steps = tuple[str | int, ...]
DefaultValidator = Callable[[Object, str], list[FieldError]]


def default_errors(schema: Object, path: str, validator: DefaultValidator | None = None) -> list[FieldError]:
    """Validate every default: no unknown fields, valid by its schema. `path` is the field of the schema.

    `validator` validates the defaults without errors, with their part of the schema and their field.
    """
    root = {**schema, "x-kubernetes-embedded-resource": True}
    return list(_errors(root, path, (), validator, in_metadata=False))


def _errors(
    schema: Object, path: str, steps: Steps, validator: DefaultValidator | None, *, in_metadata: bool
) -> Iterator[FieldError]:
    embedded = is_set(schema, "x-kubernetes-embedded-resource")
    if embedded:
        in_metadata, steps = False, ()
    value = schema.get("default")
    if value is not None:
        check = _metadata_errors if in_metadata else _value_errors
        errors = list(check(schema, value, f"{path}.default", steps))
        yield from errors or (validator(schema, f"{path}.default") if validator is not None else ())
    if isinstance(schema.get("items"), dict):
        yield from _errors(schema["items"], f"{path}.items", (*steps, _ITEM), validator, in_metadata=in_metadata)
    for key, child in (schema.get("properties") or {}).items():
        inside = in_metadata or (embedded and key in META_FIELDS)
        yield from _errors(child, f"{path}.properties[{key}]", (*steps, key), validator, in_metadata=inside)


def _value_errors(schema: Object, value: Any, path: str, _: Steps) -> Iterator[FieldError]:
    node = compile_value(schema)
    if not pruning.is_clean(node, value):
        yield invalid(path, value, "must not have unknown fields")
    yield from _validation_errors(node, value, path)


def _validation_errors(node: Node, value: Any, path: str) -> list[FieldError]:
    out = ErrorCollector(path)
    validate(node, value, "", out)
    embedded: list[FieldError] = []
    validate_embedded(node, value, path, embedded)
    return [*embedded, *out.errors]


def _metadata_errors(schema: Object, value: Any, path: str, steps: Steps) -> Iterator[FieldError]:
    """Validate a default inside metadata as part of an object, since its own schema declares little."""
    obj: Any = value
    for step in reversed(steps):
        obj = [obj] if step == _ITEM else {step: obj}
    obj = {"apiVersion": "validation/v1", "kind": "Validation", **obj}
    problems: list[FieldError] = []
    if obj.get("metadata") is not None:
        problems = _validation_errors(compile_value(METADATA), obj["metadata"], "metadata")
    problems = problems or embedded_errors(obj, "")
    if problems:
        texts = [str(problem).removeprefix(".") for problem in problems]
        text = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
        yield invalid(path, value, f"must result in valid metadata: {text}")
    else:
        yield from _validation_errors(compile_value(schema), value, path)
