"""The schema of one version of a definition, judged whole: form, keywords, structure, defaults.

`crd` asks for every version of a CustomResourceDefinition or an APIResourceSchema. An empty answer means that
`structural.compile_schema` gives a schema that does what the definition says.
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

# Kubernetes lists them by the names of Go's fields.
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
#: Schemas in one version, junctors included: far above the definitions of real projects that tests read. Each costs
#: the loop about 0.1 ms when it is judged.
MAX_SCHEMAS = 20_000
_ROOT_KEYWORDS = frozenset(
    {
        *(name[0].lower() + name[1:] for name in _ROOT_WITH_STATUS if not name.startswith("X")),
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-validations",
    }
)


class RuleValidator(Protocol):
    """What judges the rules of a schema that is well-formed: expressions are known above this package."""

    def pause(self) -> None:
        """Called between steps, none of which is short where the schema is large."""

    def default_validator(self) -> DefaultValidator:
        """What judges the defaults of one schema: by the rules of their own part of it."""

    def rule_errors(self, schema: Object, path: str, broken: list[FieldError]) -> list[FieldError]:
        """Rules that do not compile or cost too much, but for parts in or below which errors were found."""


def definition_errors(
    schema: Any, path: str, *, has_status: bool, rules: RuleValidator | None = None
) -> list[FieldError]:
    """Every reason to refuse a version's schema, at the field `path`; `has_status` says if status is a subresource.

    `rules` judges expressions; without it they are taken as they are.
    """
    pause = _go_on if rules is None else rules.pause
    if _has_more_parts(schema, MAX_SCHEMAS):
        return [FieldError("FieldValueTooMany", path, f"Too many: must have at most {MAX_SCHEMAS} schemas")]
    pause()
    if errors := keyword_type_errors(schema, path):
        return errors
    pause()
    errors = _root_errors(schema, path, has_status)
    unsupported, unsound = has_unsupported(schema), list[FieldError]()
    if not unsupported:
        unsound = structural_errors(schema, path)
        pause()
        judge = rules.default_validator() if rules is not None else None
        unsound = unsound or default_errors(schema, path, judge)
        errors += unsound
    pause()
    keywords = keyword_errors(schema, path)
    errors += keywords
    if not unsupported and not unsound and rules is not None:
        errors += rules.rule_errors(schema, path, keywords)
    if unsupported and not errors:
        errors.append(invalid(path, "", "OpenAPIV3Schema 'schema' is not supported"))
    return errors


def _go_on() -> None:
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
    """Formats that mean nothing for their type, each once, in document order; they are kept and not checked."""
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
