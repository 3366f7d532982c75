"""Roles and ClusterRoles: rules, and cluster roles that aggregate the rules of others."""

from __future__ import annotations

from collections.abc import Iterator

from atoll.machinery.kinds.checks import items, mapping, objects, selector_errors
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.kinds.native import CREATED_AT, NAME, builtin, created_cell, name_cell, row
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import invalid, required

GROUP = "rbac.authorization.k8s.io"


def _rule_errors(rule: Object, field: str, *, is_namespaced: bool) -> Iterator[FieldError]:
    if not items(rule, "verbs"):
        yield required(f"{field}.verbs", "verbs must contain at least one value")
    if urls := items(rule, "nonResourceURLs"):
        if is_namespaced:
            detail = "namespaced rules cannot apply to non-resource URLs"
            yield invalid(f"{field}.nonResourceURLs", urls, detail)
        if any(items(rule, name) for name in ("apiGroups", "resources", "resourceNames")):
            detail = "rules cannot apply to both regular resources and non-resource URLs"
            yield invalid(f"{field}.nonResourceURLs", urls, detail)
        return
    if not items(rule, "apiGroups"):
        yield required(f"{field}.apiGroups", "resource rules must supply at least one api group")
    if not items(rule, "resources"):
        yield required(f"{field}.resources", "resource rules must supply at least one resource")


def _rules_errors(obj: Object, *, is_namespaced: bool) -> list[FieldError]:
    return [
        error
        for index, rule in objects(obj, "rules")
        for error in _rule_errors(rule, f"rules[{index}]", is_namespaced=is_namespaced)
    ]


def _validate_role(obj: Object) -> list[FieldError]:
    return _rules_errors(obj, is_namespaced=True)


def _validate_cluster_role(obj: Object) -> list[FieldError]:
    errors = _rules_errors(obj, is_namespaced=False)
    if not isinstance(obj.get("aggregationRule"), dict):
        return errors
    field = "aggregationRule.clusterRoleSelectors"
    selectors = items(mapping(obj, "aggregationRule"), "clusterRoleSelectors")
    if not selectors:
        detail = "at least one clusterRoleSelector required if aggregationRule is non-nil"
        errors.append(required(field, detail))
    for index, selector in enumerate(selectors):
        errors += selector_errors(selector, f"{field}[{index}]")
    return errors


ROLES = Kind(
    **builtin(GROUP, "Role", "roles"),
    update_creates=True,
    unconditional_update=True,
    name_rule="path-segment",
    columns=(NAME, CREATED_AT),
    cells=row(name_cell, created_cell),
    validate=_validate_role,
    validate_update=lambda obj, old: _validate_role(obj),
)

CLUSTERROLES = Kind(
    **builtin(GROUP, "ClusterRole", "clusterroles"),
    namespaced=False,
    update_creates=True,
    unconditional_update=True,
    name_rule="path-segment",
    columns=(NAME, CREATED_AT),
    cells=row(name_cell, created_cell),
    validate=_validate_cluster_role,
    validate_update=lambda obj, old: _validate_cluster_role(obj),
)
