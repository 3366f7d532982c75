"""Checks shared by validating and mutating policies: parameters, constraints, variables, bindings."""

from __future__ import annotations

import re
from collections.abc import Iterator

from atoll.machinery.cel.syntax.parser import RESERVED
from atoll.machinery.kinds.admissionregistration.matching import (
    blank_errors,
    condition_errors,
    has_rules,
    match_resources_errors,
)
from atoll.machinery.kinds.checks import invalid_values, mapping, objects, selector_errors, text
from atoll.machinery.kinds.kind import Column
from atoll.machinery.kinds.native import AGE, NAME, age_cell, name_cell, row, text_cell
from atoll.machinery.meta.labels import dns_1035_label_errors, dns_subdomain_errors, path_segment_errors
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.selectors import compile_label_selector
from atoll.machinery.meta.status import ApiError, FieldError
from atoll.machinery.schema.fielderrors import forbidden, invalid, not_supported, required

_IDENTIFIER = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*\Z")
_NOT_FOUND_ACTIONS = ("Deny", "Allow")


def policy_errors(spec: Object) -> list[FieldError]:
    """Return the errors in the part of a spec that both kinds of policies share."""
    errors: list[FieldError] = []
    if isinstance(spec.get("paramKind"), dict):
        errors += _param_kind_errors(spec["paramKind"], "spec.paramKind")
    match = spec.get("matchConstraints")
    if match is None:
        errors.append(required("spec.matchConstraints"))
    elif isinstance(match, dict):
        errors += match_resources_errors(match, "spec.matchConstraints")
        if not has_rules(match):
            errors.append(required("spec.matchConstraints.resourceRules"))
    errors += condition_errors(spec, "spec.matchConditions")
    for index, variable in objects(spec, "variables"):
        errors += _variable_errors(variable, f"spec.variables[{index}]")
    return errors


def _param_kind_errors(param: Object, field: str) -> Iterator[FieldError]:
    api_version, kind = text(param, "apiVersion"), text(param, "kind")
    group, slash, version = api_version.rpartition("/")
    if not api_version:
        yield required(f"{field}.apiVersion")
    elif "/" in group:
        yield invalid(f"{field}.apiVersion", api_version, f"unexpected GroupVersion string: {api_version}")
    else:
        if slash and (problems := dns_subdomain_errors(group)):
            yield invalid(f"{field}.apiVersion", group, ",".join(problems))
        if problems := dns_1035_label_errors(version):
            yield invalid(f"{field}.apiVersion", version, ",".join(problems))
    if not kind:
        yield required(f"{field}.kind")
    elif problems := dns_1035_label_errors(kind.lower()):
        detail = "may have mixed case, but should otherwise match: " + ",".join(problems)
        yield invalid(f"{field}.kind", kind, detail)


def _variable_errors(variable: Object, field: str) -> list[FieldError]:
    errors = blank_errors(variable, ("name", "expression"), field, "{} is not specified")
    name = text(variable, "name")
    if name.strip() and (not _IDENTIFIER.match(name) or name in RESERVED):
        errors.append(invalid(f"{field}.name", name, "must be a valid CEL identifier"))
    return errors


def binding_errors(obj: Object) -> list[FieldError]:
    """Return the errors in the part of a binding that both kinds of bindings share."""
    spec = mapping(obj, "spec")
    policy, errors = text(spec, "policyName"), list[FieldError]()
    if policy:
        errors += invalid_values("spec.policyName", policy, dns_subdomain_errors(policy))
    else:
        errors.append(required("spec.policyName"))
    if isinstance(spec.get("paramRef"), dict):
        errors += _param_ref_errors(spec["paramRef"], "spec.paramRef")
    if isinstance(spec.get("matchResources"), dict):
        errors += match_resources_errors(spec["matchResources"], "spec.matchResources")
    return errors


def _param_ref_errors(param: Object, field: str) -> Iterator[FieldError]:
    name, selector = text(param, "name"), param.get("selector")
    exclusive = "name and selector are mutually exclusive"
    if name:
        yield from invalid_values(f"{field}.name", name, path_segment_errors(name))
    if name and selector is not None:
        yield forbidden(f"{field}.name", exclusive)
        yield forbidden(f"{field}.selector", exclusive)
    if selector is not None:
        yield from selector_errors(selector, f"{field}.selector")
    if not name and selector is None:
        yield required(field, "one of name or selector must be specified")
    action = text(param, "parameterNotFoundAction")
    if not action:
        yield required(f"{field}.parameterNotFoundAction")
    elif action not in _NOT_FOUND_ACTIONS:
        yield not_supported(f"{field}.parameterNotFoundAction", action, _NOT_FOUND_ACTIONS)


def param_kind_cell(obj: Object, now_s: float) -> object:
    param = mapping(obj, "spec", "paramKind")
    return f"{text(param, 'apiVersion')}/{text(param, 'kind')}" if param else "<unset>"


def _param_ref_cell(obj: Object, now_s: float) -> object:
    param = mapping(obj, "spec", "paramRef")
    if name := text(param, "name"):
        # Whether the parameter kind is namespaced is unknown here.
        return f"{text(param, 'namespace') or '*'}/{name}"
    return _selector_text(param["selector"]) if isinstance(param.get("selector"), dict) else "<unset>"


def _selector_text(selector: Object) -> str:
    try:
        return str(compile_label_selector(selector)) or "<everything>"
    except (ApiError, KeyError, TypeError, AttributeError):
        return "<invalid>"


BINDING_COLUMNS = (
    NAME,
    Column("PolicyName", description="The policy that is bound."),
    Column("ParamRef", description="The objects handed to the policy as parameters."),
    AGE,
)
BINDING_CELLS = row(name_cell, text_cell("spec", "policyName"), _param_ref_cell, age_cell)
