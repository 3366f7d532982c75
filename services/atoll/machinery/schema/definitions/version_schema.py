"""Validation of the schema of one version of a definition: types of keywords, keywords, structure, defaults.

`versions` calls it for every version of a CustomResourceDefinition or an APIResourceSchema. Invariant: a schema without
errors compiles with `structural_schema.compile_schema` to a schema that does what the definition declares.
"""

from __future__ import annotations

from typing import Any, Protocol

from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema import formats
from atoll.machinery.schema.definitions.defaults import DefaultValidator, default_errors
from atoll.machinery.schema.definitions.keyword_types import children, keyword_type_errors
from atoll.machinery.schema.definitions.keywords import has_unsupported, keyword_errors
from atoll.machinery.schema.definitions.structural_rules import is_set, structural_errors
from atoll.machinery.schema.fielderrors import forbidden, invalid

# Names of Go's fields, as in the error text of Kubernetes.
_ROOT_WITH_STATUS = (
    "Description",
    "Type",
    "Format",
    "Title",
    "Maximum",
    "ExclusiveMaximum",
    "Minimum",
    "ExclusiveMinimum",
    "MaxLength",
    "MinLength",
    "Pattern",
    "MaxItems",
    "MinItems",
    "UniqueItems",
    "MultipleOf",
    "Required",
    "Items",
    "Properties",
    "ExternalDocs",
    "Example",
    "XPreserveUnknownFields",
    "XValidations",
)
#: Maximum of schemas in one version, those in allOf, anyOf, oneOf and not included: far above the definitions of real
#: projects that tests read. Validating one takes about 0.1 ms of the event loop.
MAX_SCHEMAS = 20_000
_ROOT_KEYWORDS = frozenset(
    {
        *(name[0].lower() + name[1:] for name in _ROOT_WITH_STATUS if not name.startswith("X")),
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-validations",
    }
)


class RuleValidator(Protocol):
    """Validates the rules of a well-formed schema. An upper layer implements it, since it compiles expressions."""

    def pause(self) -> None:
        """Called between steps, which take long for large schemas."""

    def default_validator(self) -> DefaultValidator:
        """Return the validator of the defaults of one schema by the rules of their part of it."""

    def rule_errors(self, schema: Object, path: str, broken: list[FieldError]) -> list[FieldError]:
        """Return errors of rules that do not compile or cost too much, except in and below places with other errors."""


def definition_errors(
    schema: Any, path: str, *, has_status: bool, rules: RuleValidator | None = None
) -> list[FieldError]:
    """Validate the schema of a version, at the field `path`. `has_status`: status is a subresource.

    `rules` validates expressions; without it they are not validated.
    """
    pause = _no_pause if rules is None else rules.pause
    if _has_more_parts(schema, MAX_SCHEMAS):
        return [FieldError("FieldValueTooMany", path, f"Too many: must have at most {MAX_SCHEMAS} schemas")]
    pause()
    if errors := keyword_type_errors(schema, path):
        return errors
    pause()
    errors = _root_errors(schema, path, has_status)
    unsupported, structure_errors = has_unsupported(schema), list[FieldError]()
    if not unsupported:
        structure_errors = structural_errors(schema, path)
        pause()
        validator = rules.default_validator() if rules is not None else None
        structure_errors = structure_errors or default_errors(schema, path, validator)
        errors += structure_errors
    pause()
    keywords = keyword_errors(schema, path)
    errors += keywords
    if not unsupported and not structure_errors and rules is not None:
        errors += rules.rule_errors(schema, path, keywords)
    if unsupported and not errors:
        errors.append(invalid(path, "", "OpenAPIV3Schema 'schema' is not supported"))
    return errors


def _no_pause() -> None:
    return None


def _has_more_parts(schema: Any, limit: int) -> bool:
    count, todo = 0, [schema]
    while todo and count <= limit:
        item = todo.pop()
        if isinstance(item, dict):
            count += 1
            todo.extend(child for child, _ in children(item, ""))
    return count > limit


def _root_errors(schema: Object, path: str, has_status: bool) -> list[FieldError]:
    errors = []
    if has_status:
        odd = [key for key in schema if is_set(schema, key) and key not in _ROOT_KEYWORDS]
        if schema.get("type") and schema["type"] != "object":
            text = 'only "object" is allowed as the type at the root of the schema if the status subresource is enabled'
            errors.append(invalid(f"{path}.type", schema["type"], text))
        elif odd:
            known = " ".join(_ROOT_WITH_STATUS)
            text = f"only [{known}] fields are allowed at the root of the schema if the status subresource is enabled"
            errors.append(invalid(path, schema, text))
    if is_set(schema, "nullable"):
        errors.append(forbidden(f"{path}.nullable", "nullable cannot be true at the root"))
    return errors


def unrecognized_formats(schema: Object) -> list[str]:
    """List formats that are not defined for their type, each once, in document order. They are not validated."""
    found: dict[str, None] = {}
    todo: list[Any] = [schema]
    while todo:
        item = todo.pop()
        if not isinstance(item, dict):
            continue
        name, declared = item.get("format"), item.get("type") or ""
        if isinstance(name, str) and name and not formats.is_recognized(str(declared), name):
            found[name] = None
        todo.extend(reversed([child for child, _ in children(item, "")]))
    return list(found)
