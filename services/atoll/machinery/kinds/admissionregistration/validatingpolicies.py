"""ValidatingAdmissionPolicies and their bindings."""

from __future__ import annotations

from collections.abc import Iterator

from atoll.machinery.kinds.admissionregistration.matching import GROUP, blank_errors
from atoll.machinery.kinds.admissionregistration.policyspec import (
    BINDING_CELLS,
    BINDING_COLUMNS,
    binding_errors,
    param_kind_cell,
    policy_errors,
)
from atoll.machinery.kinds.checks import invalid_values, items, mapping, objects, strings, text
from atoll.machinery.kinds.kind import Column, Kind, Subresource
from atoll.machinery.kinds.native import AGE, API_EXTENSIONS, NAME, age_cell, builtin, name_cell, row
from atoll.machinery.meta.labels import label_key_errors
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import duplicate, invalid, not_supported, required

_REASONS = ("Forbidden", "Invalid", "RequestEntityTooLarge", "Unauthorized")
_MAX_AUDIT_ANNOTATIONS, _EXPRESSION_SIZE = 20, 5 * 1024


def _validate(obj: Object) -> list[FieldError]:
    spec = mapping(obj, "spec")
    errors = policy_errors(spec)
    if not items(spec, "validations") and not items(spec, "auditAnnotations"):
        detail = "validations or auditAnnotations must contain at least one item"
        errors += [required("spec.validations", detail), required("spec.auditAnnotations", detail)]
    for index, validation in objects(spec, "validations"):
        errors += _validation_errors(validation, f"spec.validations[{index}]")
    return errors + _annotations_errors(obj, spec)


def _validation_errors(validation: Object, field: str) -> Iterator[FieldError]:
    yield from blank_errors(validation, ("expression",), field, "{} is not specified")
    for name in ("message", "messageExpression"):
        value = text(validation, name)
        if value and not value.strip():
            yield invalid(f"{field}.{name}", value, "must be non-empty if specified")
    message = text(validation, "message")
    if "\n" in message.strip() or "\r" in message.strip():
        yield invalid(f"{field}.message", message, "must not contain line breaks")
    reason = validation.get("reason")
    if isinstance(reason, str) and reason not in _REASONS:
        yield not_supported(f"{field}.reason", reason, _REASONS)


def _annotations_errors(obj: Object, spec: Object) -> list[FieldError]:
    field, annotations = "spec.auditAnnotations", items(spec, "auditAnnotations")
    errors, keys = [], set[str]()
    if len(annotations) > _MAX_AUDIT_ANNOTATIONS:
        detail = f"must not have more than {_MAX_AUDIT_ANNOTATIONS} auditAnnotations"
        errors.append(invalid(field, annotations, detail))
    for index, annotation in objects(spec, "auditAnnotations"):
        at, key = f"{field}[{index}]", text(annotation, "key")
        full = f"{text(obj, 'metadata', 'name')}/{key}"
        errors += invalid_values(f"{at}.key", full, label_key_errors(full))
        errors += blank_errors(annotation, ("valueExpression",), at, "{} is not specified")
        if len(text(annotation, "valueExpression").strip().encode()) > _EXPRESSION_SIZE:
            errors.append(required(f"{at}.valueExpression", f"must not exceed {_EXPRESSION_SIZE} bytes in length"))
        if key in keys:
            errors.append(duplicate(f"{at}.key", key))
        keys.add(key)
    return errors


def _validate_binding(obj: Object) -> list[FieldError]:
    field, actions = "spec.validationActions", strings(obj, "spec", "validationActions")
    errors = binding_errors(obj)
    seen = set()
    for index, action in enumerate(actions):
        if action in seen:
            errors.append(duplicate(f"{field}[{index}]", action))
        seen.add(action)
    if "Deny" in actions and "Warn" in actions:
        detail = (
            "must not contain both Deny and Warn (repeating the same validation failure information in the "
            "API response and headers serves no purpose)"
        )
        errors.append(invalid(field, actions, detail))
    if items(obj, "spec", "validationActions") == [] and "validationActions" in mapping(obj, "spec"):
        errors.append(required(field, "at least one validation action is required"))
    return errors


def _count_cell(obj: Object, now_s: float) -> object:
    return len(items(obj, "spec", "validations"))


VALIDATINGADMISSIONPOLICIES = Kind(
    **builtin(GROUP, "ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
    categories=(API_EXTENSIONS,),
    namespaced=False,
    subresources=(Subresource("status", "ValidatingAdmissionPolicy", GROUP, "v1"),),
    has_status=True,
    resets={"status": ("spec", "metadata")},
    generation=True,
    columns=(
        NAME,
        Column("Validations", "integer", "", "How many expressions it checks."),
        Column("ParamKind", description="Kind of its parameters."),
        AGE,
    ),
    cells=row(name_cell, _count_cell, param_kind_cell, age_cell),
    validate=_validate,
    validate_update=lambda obj, old: _validate(obj),
)

VALIDATINGADMISSIONPOLICYBINDINGS = Kind(
    **builtin(GROUP, "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
    categories=(API_EXTENSIONS,),
    namespaced=False,
    generation=True,
    columns=BINDING_COLUMNS,
    cells=BINDING_CELLS,
    validate=_validate_binding,
    validate_update=lambda obj, old: _validate_binding(obj),
)
