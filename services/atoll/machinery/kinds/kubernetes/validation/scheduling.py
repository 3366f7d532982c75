"""Where pods may run: node selectors, affinity, tolerations, spreading over topologies."""

from __future__ import annotations

from collections.abc import Sequence

from atoll.machinery.kinds.checks import items, mapping, objects, selector_errors, strings, text
from atoll.machinery.kinds.kubernetes.validation.rules import Errors, integer, label_key, one_of, positive
from atoll.machinery.meta.labels import dns_label_errors, dns_subdomain_errors, label_value_errors
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import duplicate, forbidden, invalid, not_supported, required

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_WEIGHT_TEXT = "must be in the range 1-100"
_NOT_AN_OPERATOR = "not a valid selector operator"


def selector(value: object, field: str, *, any_values: bool = False) -> list[FieldError]:
    """Return the errors of a LabelSelector; with any_values its expressions may have values that are no labels."""
    found = selector_errors(value, field)
    return [each for each in found if not (any_values and ".values[" in each.field)] if found else []


def node_selector(value: Object, at: str, *, any_values: bool = False) -> Errors:
    """Check a selector of nodes."""
    if value.get("nodeSelectorTerms") in (None, []):
        yield required(f"{at}.nodeSelectorTerms", "must have at least one node selector term")
    for index, term in objects(value, "nodeSelectorTerms"):
        yield from _node_term(term, f"{at}.nodeSelectorTerms[{index}]", any_values)


def _node_term(term: Object, at: str, any_values: bool) -> Errors:
    for index, expression in objects(term, "matchExpressions"):
        field, values = f"{at}.matchExpressions[{index}]", items(expression, "values")
        yield from _values(text(expression, "operator"), values, field, "operator" in expression)
        yield from label_key(f"{field}.key", expression.get("key"))
        if not any_values:
            for position, value in enumerate(strings(expression, "values")):
                for problem in label_value_errors(value):
                    yield invalid(f"{field}.values[{position}]", value, problem)
    for index, expression in objects(term, "matchFields"):
        yield from _node_field(expression, f"{at}.matchFields[{index}]")


def _values(operator: str, values: Sequence[object], at: str, is_present: bool) -> Errors:
    if operator in ("In", "NotIn"):
        if not values:
            yield required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            yield forbidden(f"{at}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            yield required(f"{at}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
    elif is_present:
        yield invalid(f"{at}.operator", operator, _NOT_AN_OPERATOR)


def _node_field(expression: Object, at: str) -> Errors:
    operator, values, key = text(expression, "operator"), strings(expression, "values"), text(expression, "key")
    if operator in ("In", "NotIn"):
        if len(values) != 1:
            detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
            yield required(f"{at}.values", detail)
    elif "operator" in expression:
        yield invalid(f"{at}.operator", operator, _NOT_AN_OPERATOR)
    if key == "metadata.name":
        for index, value in enumerate(values):
            for problem in dns_subdomain_errors(value):
                yield invalid(f"{at}.values[{index}]", value, problem)
    elif "key" in expression:
        yield invalid(f"{at}.key", key, "not a valid field selector key")


def _weight(term: Object, at: str) -> Errors:
    weight = integer(term.get("weight"))
    if weight is not None and not 0 < weight <= 100:
        yield invalid(f"{at}.weight", weight, _WEIGHT_TEXT)


def affinity(spec: Object, at: str, *, any_selector_values: bool = False, any_node_values: bool = False) -> Errors:
    """Check which nodes a pod wants, and which pods it wants beside it or not."""
    wanted, field = mapping(spec, "affinity"), f"{at}.affinity"
    nodes, at_nodes = mapping(wanted, "nodeAffinity"), f"{field}.nodeAffinity"
    if isinstance(nodes.get(REQUIRED), dict):
        yield from node_selector(nodes[REQUIRED], f"{at_nodes}.{REQUIRED}", any_values=any_node_values)
    for index, term in objects(nodes, PREFERRED):
        preference = f"{at_nodes}.{PREFERRED}[{index}]"
        yield from _weight(term, preference)
        yield from _node_term(mapping(term, "preference"), f"{preference}.preference", any_values=True)
    for name in ("podAffinity", "podAntiAffinity"):
        pods = mapping(wanted, name)
        for index, term in objects(pods, REQUIRED):
            yield from _pod_term(term, f"{field}.{name}.{REQUIRED}[{index}]", any_selector_values)
        for index, term in objects(pods, PREFERRED):
            weighted = f"{field}.{name}.{PREFERRED}[{index}]"
            yield from _weight(term, weighted)
            inner = mapping(term, "podAffinityTerm")
            yield from _pod_term(inner, f"{weighted}.podAffinityTerm", any_selector_values)


def _pod_term(term: Object, at: str, any_values: bool) -> Errors:
    for name in ("labelSelector", "namespaceSelector"):
        yield from selector(term.get(name), f"{at}.{name}", any_values=any_values)
    for name in strings(term, "namespaces"):
        for problem in dns_label_errors(name):
            yield invalid(f"{at}.namespace", name, problem)
    yield from match_label_keys(term, at)
    if term.get("topologyKey") == "":
        yield required(f"{at}.topologyKey", "can not be empty")
    yield from label_key(f"{at}.topologyKey", term.get("topologyKey"))


def match_label_keys(term: Object, at: str) -> Errors:
    """Check the keys whose values come from the labels of the pod itself."""
    keys, others = strings(term, "matchLabelKeys"), strings(term, "mismatchLabelKeys")
    chosen = term.get("labelSelector")
    for name, found in (("matchLabelKeys", keys), ("mismatchLabelKeys", others)):
        if found and not isinstance(chosen, dict):
            yield forbidden(f"{at}.{name}", "must not be specified when labelSelector is not set")
        elif found:
            for index, key in enumerate(found):
                yield from label_key(f"{at}.{name}[{index}]", key)
    indexes, seen = {key: index for index, key in enumerate(keys)}, set(mapping(chosen, "matchLabels"))
    for _, expression in objects(chosen, "matchExpressions"):
        key = text(expression, "key")
        if key in indexes and key in seen:
            yield invalid(f"{at}[{indexes[key]}]", key, "exists in both matchLabelKeys and labelSelector")
        seen.add(key)
    excluded = set(others)
    for index, key in enumerate(keys):
        if key in excluded:
            detail = "exists in both matchLabelKeys and mismatchLabelKeys"
            yield invalid(f"{at}.matchLabelKeys[{index}]", key, detail)


def _spread_label_keys(constraint: Object, at: str) -> Errors:
    """Check the keys of a constraint as former versions did."""
    keys, chosen = strings(constraint, "matchLabelKeys"), constraint.get("labelSelector")
    if keys and not isinstance(chosen, dict):
        yield forbidden(f"{at}.matchLabelKeys", "must not be specified when labelSelector is not set")
    used = set(mapping(chosen, "matchLabels")) | {text(each, "key") for _, each in objects(chosen, "matchExpressions")}
    for index, key in enumerate(keys):
        yield from label_key(f"{at}.matchLabelKeys[{index}]", key)
        if key in used:
            yield invalid(f"{at}.matchLabelKeys[{index}]", key, "exists in both matchLabelKeys and labelSelector")


def tolerations(values: list[tuple[int, Object]], at: str, *, comparisons: bool = False) -> Errors:
    """Check tolerations of taints."""
    for index, toleration in values:
        field, key, operator = f"{at}[{index}]", text(toleration, "key"), text(toleration, "operator")
        if key:
            yield from label_key(f"{field}.key", key)
        elif operator != "Exists":
            detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            yield invalid(f"{field}.operator", operator, detail)
        if toleration.get("tolerationSeconds") is not None and text(toleration, "effect") != "NoExecute":
            detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            yield invalid(f"{field}.effect", text(toleration, "effect"), detail)
        yield from _toleration_value(toleration, field, operator, comparisons)
        if text(toleration, "effect"):
            yield from one_of(toleration, field, "effect", EFFECTS)


def _toleration_value(toleration: Object, at: str, operator: str, comparisons: bool) -> Errors:
    value = text(toleration, "value")
    if operator in ("Equal", ""):
        if problems := label_value_errors(value):
            yield invalid(f"{at}.operator", value, ";".join(problems))
    elif operator == "Exists":
        if value:
            yield invalid(f"{at}.operator", value, "value must be empty when `operator` is 'Exists'")
    elif operator not in ("Lt", "Gt"):
        yield not_supported(f"{at}.operator", operator, ("Equal", "Exists"))
    elif not comparisons:
        yield not_supported(f"{at}.operator", operator, ("Equal", "Exists", "Lt", "Gt"))


def spread_constraints(spec: Object, at: str, *, any_selectors: bool = False, former_keys: bool = False) -> Errors:
    """Check how a pod is spread over topologies."""
    constraints = objects(spec, "topologySpreadConstraints")
    last = {_spread_key(each): index for index, each in constraints}
    for index, constraint in constraints:
        field, key = f"{at}.topologySpreadConstraints[{index}]", _spread_key(constraint)
        yield from positive(constraint, field, "maxSkew")
        if constraint.get("topologyKey") == "":
            yield required(f"{field}.topologyKey", "can not be empty")
        yield from one_of(constraint, field, "whenUnsatisfiable", ("DoNotSchedule", "ScheduleAnyway"))
        if last[key] != index:
            yield duplicate(f"{field}.{{topologyKey, whenUnsatisfiable}}", f"{{{key[0]}, {key[1]}}}")
        yield from positive(constraint, field, "minDomains")
        if constraint.get("minDomains") is not None and key[1] != "DoNotSchedule":
            detail = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {key[1]}"
            yield invalid(f"{field}.minDomains", constraint["minDomains"], detail)
        for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            yield from one_of(constraint, field, name, ("Honor", "Ignore"))
        yield from (_spread_label_keys if former_keys else match_label_keys)(constraint, field)
        if not any_selectors:
            yield from selector(constraint.get("labelSelector"), f"{field}.labelSelector")


def _spread_key(constraint: Object) -> tuple[str, str]:
    return text(constraint, "topologyKey"), text(constraint, "whenUnsatisfiable")


def gates(spec: Object, at: str) -> Errors:
    """Check readiness gates and scheduling gates."""
    for index, gate in objects(spec, "readinessGates"):
        yield from label_key(f"{at}.readinessGates[{index}].conditionType", gate.get("conditionType"))
    seen = set[str]()
    for index, gate in objects(spec, "schedulingGates"):
        field, name = f"{at}.schedulingGates[{index}]", text(gate, "name")
        yield from label_key(field, gate.get("name"))
        if name in seen:
            yield duplicate(field, name)
        seen.add(name)
