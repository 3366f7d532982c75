"""Checks of request matching: rules, match conditions and selectors.

Webhook configurations and both kinds of policies share these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from atoll.machinery.kinds.checks import invalid_values, items, mapping, objects, selector_errors, strings, text
from atoll.machinery.meta.labels import label_key_errors, path_segment_errors
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import duplicate, invalid, required, too_many

GROUP = "admissionregistration.k8s.io"

_MAX_CONDITIONS = 64


def match_resources_errors(match: Object, field: str) -> list[FieldError]:
    """Return the errors of the MatchResources of a policy or binding."""
    errors = []
    for name in ("namespaceSelector", "objectSelector"):
        errors += selector_errors(match.get(name), f"{field}.{name}")
    for name in ("resourceRules", "excludeResourceRules"):
        for index, rule in objects(match, name):
            at = f"{field}.{name}[{index}]"
            errors += [*_resource_name_errors(rule, f"{at}.resourceNames"), *rule_errors(rule, at)]
    return errors


def _resource_name_errors(rule: Object, field: str) -> Iterator[FieldError]:
    seen = set()
    for index, name in enumerate(strings(rule, "resourceNames")):
        yield from invalid_values(f"{field}[{index}]", name, path_segment_errors(name))
        if name in seen:
            yield duplicate(f"{field}[{index}]", name)
        seen.add(name)


def rule_errors(rule: Object, field: str) -> list[FieldError]:
    """Return the errors of the operations, groups, versions and resources of a rule."""
    errors = [*_list_errors(rule, "operations", field, "operations")]
    errors += _list_errors(rule, "apiGroups", field, "API groups")
    errors += _list_errors(rule, "apiVersions", field, "API versions")
    for index, version in enumerate(strings(rule, "apiVersions")):
        if not version:
            errors.append(required(f"{field}.apiVersions[{index}]"))
    return errors + list(_resource_errors(strings(rule, "resources"), f"{field}.resources"))


def _list_errors(rule: Object, name: str, field: str, words: str) -> Iterator[FieldError]:
    values = items(rule, name)
    if not values:
        yield required(f"{field}.{name}")
    if len(values) > 1 and "*" in values:
        yield invalid(f"{field}.{name}", values, f"if '*' is present, must not specify other {words}")


def _resource_errors(resources: list[str], field: str) -> Iterator[FieldError]:
    """Resources may not repeat what a wildcard covers."""
    if not resources:
        yield required(field)
    parents, subresources = set[str](), set[str]()
    for index, resource in enumerate(resources):
        name, _, subresource = resource.partition("/")
        if not resource:
            yield required(f"{field}[{index}]")
        if resource in ("", "*/*") or not subresource:
            continue
        if name in parents:
            detail = f"if '{name}/*' is present, must not specify {resource}"
            yield invalid(f"{field}[{index}]", resource, detail)
        if subresource in subresources:
            detail = f"if '*/{subresource}' is present, must not specify {resource}"
            yield invalid(f"{field}[{index}]", resource, detail)
        if subresource == "*":
            parents.add(name)
        if name == "*":
            subresources.add(subresource)
    if len(resources) > 1 and "*/*" in resources:
        yield invalid(field, resources, "if '*/*' is present, must not specify other resources")
    if "*" in resources and any(each != "*" and "/" not in each for each in resources):
        detail = "if '*' is present, must not specify other resources without subresources"
        yield invalid(field, resources, detail)


def condition_errors(owner: Object, field: str) -> list[FieldError]:
    """Return the errors of the matchConditions of a webhook or policy, except those of their CEL."""
    errors, names = [], set[str]()
    conditions = items(owner, "matchConditions")
    if len(conditions) > _MAX_CONDITIONS:
        errors.append(too_many(field, len(conditions), _MAX_CONDITIONS))
    for index, condition in objects(owner, "matchConditions"):
        at, name = f"{field}[{index}]", text(condition, "name")
        errors += blank_errors(condition, ("expression",), at)
        if not name:
            errors.append(required(f"{at}.name"))
            continue
        errors += invalid_values(f"{at}.name", name, label_key_errors(name))
        if name in names:
            errors.append(duplicate(f"{at}.name", name))
        names.add(name)
    return errors


def blank_errors(owner: Object, names: Iterable[str], field: str, detail: str = "") -> list[FieldError]:
    """Return errors for blank texts; the schema reports absent ones."""
    return [
        required(f"{field}.{name}", detail.format(name))
        for name in names
        if isinstance(owner.get(name), str) and not owner[name].strip()
    ]


def has_rules(match: Object) -> bool:
    """Report whether a MatchResources has resource rules."""
    return bool(items(mapping(match), "resourceRules"))
