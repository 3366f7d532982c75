"""Schemas with rules in one line, and validation of objects and definitions against them."""

from __future__ import annotations

from typing import Any

from atoll.machinery.kinds.kind import ValidationResult
from atoll.machinery.kinds.rules.definition import Checks
from atoll.machinery.kinds.rules.evaluation import rules_of
from atoll.machinery.meta.objects import Object
from atoll.machinery.schema.definitions.version_schema import definition_errors
from atoll.machinery.schema.structural.structural_schema import compile_schema

STRING: Object = {"type": "string"}
INTEGER: Object = {"type": "integer"}
RULES = "x-kubernetes-validations"


def ruled(schema: Object, *rules: str | Object) -> Object:
    """A schema with rules."""
    return {**schema, RULES: [{"rule": rule} if isinstance(rule, str) else rule for rule in rules]}


def struct(**properties: Object) -> Object:
    """An object schema of these fields; an underscore in front of a name makes the field absent."""
    return {"type": "object", "properties": properties}


def whole(spec: Object) -> Object:
    """The schema of a whole object around that of its spec."""
    return struct(spec=spec)


def thing(spec: Any, name: str = "a") -> Object:
    """An object with a spec."""
    return {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": name}, "spec": spec}


def validation_result(schema: Object, obj: Object, old: Object | None = None) -> ValidationResult:
    """The errors of schema and rules for an object."""
    compiled = compile_schema(schema)
    errors = compiled.validate(obj, old)
    found = rules_of(compiled)(obj, old, errors, lambda: None)
    return ValidationResult([*errors, *found.errors], found.warnings)


def refusals(spec: Object, value: Any, old: Any = None) -> list[str]:
    """The texts of all errors of an object with this spec; `old` is the spec before."""
    found = validation_result(whole(spec), thing(value), thing(old) if old is not None else None)
    return [str(error) for error in found.errors]


def complaints(schema: Object, **checks: Any) -> list[str]:
    """The texts of all errors of a definition's schema, at the field `s`."""
    return [str(error) for error in definition_errors(schema, "s", has_status=True, rules=Checks(**checks))]
