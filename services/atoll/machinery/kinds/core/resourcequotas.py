"""ResourceQuotas: limits of the content of a namespace, as exact quantities in canonical form."""

from __future__ import annotations

from collections.abc import Callable

from atoll.machinery.kinds.checks import invalid_values, items, mapping, objects, strings, text
from atoll.machinery.kinds.kind import Column, Kind, Subresource
from atoll.machinery.kinds.native import AGE, NAME, Cell, age_cell, builtin, name_cell, row
from atoll.machinery.meta import quantity
from atoll.machinery.meta.labels import label_key_errors
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import invalid, required, too_many

#: Resources whose objects are counted; all others of the standard ones are amounts.
COUNTED = frozenset(
    {
        "pods",
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    }
)
_COMPUTE = frozenset({"cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"})
_STANDARD = (
    COUNTED
    | _COMPUTE
    | {"ephemeral-storage", "requests.storage", "requests.ephemeral-storage", "limits.ephemeral-storage"}
)
_HUGE_PAGES = ("hugepages-", "requests.hugepages-")
_REQUESTS = "requests."

#: Entries of `spec.hard`: the store counts the objects of each in the transaction that writes the quota.
MAX_AMOUNTS = 1000

_POD_SCOPE = _COMPUTE | {"pods"}
#: The standard resources that each scope may limit.
_SCOPES = {
    "Terminating": _POD_SCOPE,
    "NotTerminating": _POD_SCOPE,
    "NotBestEffort": _POD_SCOPE,
    "PriorityClass": _POD_SCOPE,
    "CrossNamespacePodAffinity": _POD_SCOPE,
    "BestEffort": frozenset({"pods"}),
    "VolumeAttributesClass": frozenset({"persistentvolumeclaims", "requests.storage"}),
}
_OPPOSITES = (frozenset({"BestEffort", "NotBestEffort"}), frozenset({"Terminating", "NotTerminating"}))
_EXISTS_ONLY = frozenset(_SCOPES) - {"PriorityClass", "VolumeAttributesClass"}


def _prepare(obj: Object) -> None:
    hard = mapping(obj, "spec", "hard")
    for name, value in hard.items():
        if _is_quantity(value):
            hard[name] = quantity.canonical(value)


def _is_quantity(value: object) -> bool:
    return not _quantity_problem(value)


def _quantity_problem(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return "quantities must be strings or numbers"
    try:
        quantity.parse(value)
    except ValueError as error:
        return str(error)
    return ""


def _is_standard(name: str) -> bool:
    return name in _STANDARD or name.startswith(_HUGE_PAGES)


def _is_whole(name: str) -> bool:
    """Report whether the resource is counted in whole objects, as is every qualified name outside kubernetes.io."""
    if "/" not in name:
        return name in COUNTED
    return "kubernetes.io/" not in name and not name.startswith(_REQUESTS)


def _amount_errors(amounts: Object, field: str) -> list[FieldError]:
    """Return the errors of a map of resource names to quantities."""
    errors = []
    for name, value in amounts.items():
        path = f"{field}[{name}]"
        errors += invalid_values(path, name, label_key_errors(name))
        if "/" not in name and not _is_standard(name):
            errors.append(invalid(path, name, "must be a standard resource for quota"))
        errors += _value_errors(name, value, path)
    return errors


def _value_errors(name: str, value: str | int | float, path: str) -> list[FieldError]:
    if problem := _quantity_problem(value):
        return [invalid(path, value, problem)]
    number = quantity.parse(value)
    if number < 0:
        return [invalid(path, value, "must be greater than or equal to 0")]
    if _is_whole(name) and number != number.to_integral_value():
        return [invalid(path, value, "must be an integer")]
    return []


def _scope_errors(spec: Object) -> list[FieldError]:
    scopes, field = strings(spec, "scopes"), "spec.scopes"
    errors = []
    if not set(scopes) <= _SCOPES.keys():
        errors.append(invalid(field, scopes, "unsupported scope"))
    if not all(_covers(scope, spec) for scope in _SCOPES.keys() & scopes):
        errors.append(invalid(field, scopes, "unsupported scope applied to resource"))
    return errors + _conflict_errors(scopes, spec)


def _covers(scope: str, spec: Object) -> bool:
    """Report whether the scope can limit all standard resources of the quota."""
    return all(name in _SCOPES[scope] for name in mapping(spec, "hard") if _is_standard(name))


def _conflict_errors(scopes: list[str], spec: Object) -> list[FieldError]:
    conflicts = [pair for pair in _OPPOSITES if pair <= set(scopes)]
    return [invalid("spec.scopes", items(spec, "scopes"), "conflicting scopes") for _ in conflicts]


def _selector_errors(spec: Object) -> list[FieldError]:
    errors, scopes = [], []
    for _, requirement in objects(spec, "scopeSelector", "matchExpressions"):
        scopes.append(text(requirement, "scopeName"))
        errors += _requirement_errors(requirement, spec)
    return errors + _conflict_errors(scopes, spec)


def _requirement_errors(requirement: Object, spec: Object) -> list[FieldError]:
    field = "spec.scopeSelector.matchExpressions"
    scope, operator = text(requirement, "scopeName"), text(requirement, "operator")
    values, errors = items(requirement, "values"), list[FieldError]()
    if scope not in _SCOPES:
        errors.append(invalid(f"{field}.scopeName", scope, "unsupported scope"))
    elif not _covers(scope, spec):
        errors.append(invalid(f"{field}.scopeName", scope, "unsupported scope applied to resource"))
    if scope in _EXISTS_ONLY and operator != "Exists":
        errors.append(invalid(f"{field}.operator", operator, f"must be 'Exists' when scope is {scope}"))
    if operator in ("In", "NotIn"):
        if not values:
            detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
            errors.append(required(f"{field}.values", detail))
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
            errors.append(invalid(f"{field}.values", values, detail))
    else:
        errors.append(invalid(f"{field}.operator", operator, "not a valid selector operator"))
    return errors


def _validate(obj: Object) -> list[FieldError]:
    spec = mapping(obj, "spec")
    if len(mapping(spec, "hard")) > MAX_AMOUNTS:
        count = len(mapping(spec, "hard"))
        return [too_many("spec.hard", count, MAX_AMOUNTS)]
    return [
        *_amount_errors(mapping(spec, "hard"), "spec.hard"),
        *_scope_errors(spec),
        *_selector_errors(spec),
        *_amount_errors(mapping(obj, "status", "hard"), "status.hard"),
        *_amount_errors(mapping(obj, "status", "used"), "status.used"),
    ]


def _validate_update(obj: Object, old: Object) -> list[FieldError]:
    errors = _validate(obj)
    if set(strings(obj, "spec", "scopes")) != set(strings(old, "spec", "scopes")):
        errors.append(invalid("spec.scopes", items(obj, "spec", "scopes"), "field is immutable"))
    return errors


def _used_cell(takes: Callable[[str], bool]) -> Cell:
    """Return a cell with `name: used/hard` of the selected resources."""

    def cell(obj: Object, now_s: float) -> object:
        hard, used = mapping(obj, "status", "hard"), mapping(obj, "status", "used")
        shown = (f"{name}: {used.get(name, '0')}/{hard[name]}" for name in sorted(hard) if takes(name))
        return ", ".join(shown)

    return cell


def _is_limit(name: str) -> bool:
    return name.startswith("limits.")


RESOURCEQUOTAS = Kind(
    **builtin("", "ResourceQuota", "resourcequotas"),
    short_names=("quota",),
    subresources=(Subresource("status", "ResourceQuota", "", "v1"),),
    has_status=True,
    resets={"status": ("spec",)},
    unconditional_update=True,
    returns_deleted=True,
    columns=(
        NAME,
        Column("Request", description="What is used and allowed of each counted resource."),
        Column("Limit", description="What is used and allowed of each limit of running programs."),
        AGE,
    ),
    cells=row(name_cell, _used_cell(lambda name: not _is_limit(name)), _used_cell(_is_limit), age_cell),
    prepare_create=_prepare,
    prepare_update=lambda obj, old: _prepare(obj),
    validate=_validate,
    validate_update=_validate_update,
)
