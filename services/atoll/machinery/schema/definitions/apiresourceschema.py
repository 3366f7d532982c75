"""Validation of APIResourceSchemas. Errors name the fields of the object (`spec.versions[0].schema...`).

Kinds and admission of kcp call it in addition to the schema of the type itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.definitions.accessors import mapping
from atoll.machinery.schema.definitions.approval import approval_errors
from atoll.machinery.schema.definitions.conversion import conversion_errors
from atoll.machinery.schema.definitions.names import group_errors, names_errors, required_name_errors, scope_errors
from atoll.machinery.schema.definitions.version_schema import RuleValidator
from atoll.machinery.schema.definitions.versions import version_list_errors
from atoll.machinery.schema.fielderrors import invalid

_PREFIX = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?\Z")


def validate_resource_schema(obj: Object, *, rules: RuleValidator | None = None) -> list[FieldError]:
    """Validate an APIResourceSchema. Admission makes its spec immutable."""
    spec = mapping(obj, "spec")
    errors = list(_name_errors(obj, spec))
    group = spec.get("group")
    if group == "core":
        errors.append(invalid("spec.group", group, 'must be empty string for "core" resources'))
    elif isinstance(group, str) and group:
        errors += group_errors(group)
    errors += scope_errors(spec)
    errors += required_name_errors(spec)
    errors += names_errors(mapping(spec, "names"), "spec.names")
    errors += version_list_errors(obj, (), {}, rules)
    errors += _conversion_errors(spec)
    return [*errors, *approval_errors(obj, None)]


def _name_errors(obj: Object, spec: Object) -> Iterator[FieldError]:
    name = mapping(obj, "metadata").get("name") or ""
    rest = f"{mapping(spec, 'names').get('plural') or ''}.{spec.get('group') or 'core'}"
    if not isinstance(name, str) or not name.endswith("." + rest):
        yield invalid("metadata.name", name, f"must end in .{rest}")
    elif not _PREFIX.match(name.removesuffix("." + rest)):
        text = "must match ^[a-z]([-a-z0-9]*[a-z0-9])? in front of"
        yield invalid("metadata.name", name, f"{text} .{rest}")


def _conversion_errors(spec: Object) -> list[FieldError]:
    conversion = spec.get("conversion")
    if conversion is None:
        several = isinstance(spec.get("versions"), list) and len(spec["versions"]) > 1
        text = "Conversion must be specified when multiple versions exist"
        return [invalid("spec", "object", text)] if several else []
    return conversion_errors(conversion, "spec.conversion", allow_service=False)
