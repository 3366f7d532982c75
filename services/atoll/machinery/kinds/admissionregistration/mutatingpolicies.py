"""MutatingAdmissionPolicies and their bindings."""

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
from atoll.machinery.kinds.checks import items, mapping, objects, strings, text
from atoll.machinery.kinds.kind import Column, Kind
from atoll.machinery.kinds.native import AGE, API_EXTENSIONS, NAME, age_cell, builtin, name_cell, row
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import invalid, not_supported, required

_OPERATIONS = ("CREATE", "UPDATE")
#: The field of each patch type.
_FORMS = {"ApplyConfiguration": "applyConfiguration", "JSONPatch": "jsonPatch"}


def _validate(obj: Object) -> list[FieldError]:
    spec = mapping(obj, "spec")
    errors = [*policy_errors(spec), *_operation_errors(spec)]
    if not items(spec, "mutations"):
        errors.append(required("spec.mutations", "mutations must contain at least one item"))
    for index, mutation in objects(spec, "mutations"):
        errors += _mutation_errors(mutation, f"spec.mutations[{index}]")
    if not text(spec, "reinvocationPolicy"):
        errors.append(required("spec.reinvocationPolicy"))
    return errors


def _operation_errors(spec: Object) -> Iterator[FieldError]:
    """A deletion cannot be mutated, and `*` would include it."""
    for _, rule in objects(spec, "matchConstraints", "resourceRules"):
        for operation in strings(rule, "operations"):
            if operation not in _OPERATIONS:
                yield not_supported("spec.matchConstraints.resourceRules.operations", operation, _OPERATIONS)


def _mutation_errors(mutation: Object, field: str) -> Iterator[FieldError]:
    patch_type = text(mutation, "patchType")
    for type_, form in _FORMS.items():
        if type_ == patch_type and mutation.get(form) is None:
            yield required(f"{field}.{form}", f"must be specified when patchType is {patch_type}")
        elif patch_type in _FORMS and type_ != patch_type and mutation.get(form) is not None:
            detail = f"must not be specified when patchType is {patch_type}"
            yield invalid(f"{field}.{form}", f"{{{form}}}", detail)
    for form in _FORMS.values():
        if isinstance(mutation.get(form), dict):
            given = {"expression": "", **mutation[form]}
            yield from blank_errors(given, ("expression",), f"{field}.{form}", "{} is not specified")


def _count_cell(obj: Object, now_s: float) -> object:
    return len(items(obj, "spec", "mutations"))


MUTATINGADMISSIONPOLICIES = Kind(
    **builtin(GROUP, "MutatingAdmissionPolicy", "mutatingadmissionpolicies"),
    categories=(API_EXTENSIONS,),
    namespaced=False,
    generation=True,
    columns=(
        NAME,
        Column("Mutations", "integer", "", "How many changes it makes."),
        Column("ParamKind", description="Kind of its parameters."),
        AGE,
    ),
    cells=row(name_cell, _count_cell, param_kind_cell, age_cell),
    validate=_validate,
    validate_update=lambda obj, old: _validate(obj),
)

MUTATINGADMISSIONPOLICYBINDINGS = Kind(
    **builtin(GROUP, "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings"),
    categories=(API_EXTENSIONS,),
    namespaced=False,
    generation=True,
    columns=BINDING_COLUMNS,
    cells=BINDING_CELLS,
    validate=binding_errors,
    validate_update=lambda obj, old: binding_errors(obj),
)
