"""FlowSchemas and PriorityLevelConfigurations. They are stored, and steer nothing here."""

from __future__ import annotations

import math

from atoll.machinery.kinds.checks import invalid_values, mapping, objects, strings, text
from atoll.machinery.kinds.kubernetes.validation.rules import (
    Errors,
    integer,
    not_empty,
    one_of_required,
    required_label,
    within,
)
from atoll.machinery.meta.labels import dns_label_errors, dns_subdomain_errors
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import duplicate, forbidden, invalid, not_supported, required

_METHODS = ("ByNamespace", "ByUser")
_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch")
#: The field of each kind of subject.
_SUBJECTS = {"Group": "group", "ServiceAccount": "serviceAccount", "User": "user"}
_LAST_PRECEDENCE, _MAX_QUEUES, _MAX_HASH_BITS = 10_000, 10_000_000, 60
_NOT_NEGATIVE = "must be a non-negative integer"


def validate_schema(obj: Object) -> list[FieldError]:
    """Check a FlowSchema."""
    spec = mapping(obj, "spec")
    errors = list(_precedence(spec, text(obj, "metadata", "name")))
    method = spec.get("distinguisherMethod")
    if isinstance(method, dict) and "type" in method and text(method, "type") not in _METHODS:
        errors.append(not_supported("spec.distinguisherMethod.type", method, _METHODS))
    level, at = mapping(spec, "priorityLevelConfiguration"), "spec.priorityLevelConfiguration"
    name = text(level, "name")
    if "name" in level and not name:
        errors.append(required(f"{at}.name", "must reference a priority level"))
    elif name:
        errors += invalid_values(f"{at}.name", name, dns_subdomain_errors(name))
    for index, rule in objects(spec, "rules"):
        errors += _rule(rule, f"spec.rules[{index}]")
    return errors


def _precedence(spec: Object, name: str) -> Errors:
    field, value = "spec.matchingPrecedence", integer(spec.get("matchingPrecedence"))
    if value is not None and value <= 0:
        yield invalid(field, value, "must be a positive value")
    if value is not None and value > _LAST_PRECEDENCE:
        yield invalid(field, value, f"must not be greater than {_LAST_PRECEDENCE}")
    if value == 1 and name != "exempt":
        yield invalid(field, value, "only the schema named 'exempt' may have matchingPrecedence 1")


def _rule(rule: Object, at: str) -> Errors:
    subjects, resources, urls = (objects(rule, name) for name in ("subjects", "resourceRules", "nonResourceRules"))
    if not subjects:
        yield required(f"{at}.subjects", "subjects must contain at least one value")
    for index, subject in subjects:
        yield from _subject(subject, f"{at}.subjects[{index}]")
    if not resources and not urls:
        yield required(at, "at least one of resourceRules and nonResourceRules has to be non-empty")
    for index, each in resources:
        yield from _resource_rule(each, f"{at}.resourceRules[{index}]")
    for index, each in urls:
        field = f"{at}.nonResourceRules[{index}]"
        yield from _verbs(each, field)
        yield from _wildcard(each, field, "nonResourceURLs", "nonResourceURLs must contain at least one value")
        found = strings(each, "nonResourceURLs")
        for position, url in enumerate(found if "*" not in found else ()):
            yield from _url(url, f"{field}.nonResourceURLs[{position}]")


def _subject(subject: Object, at: str) -> Errors:
    kind = text(subject, "kind")
    if kind not in _SUBJECTS:
        if "kind" in subject:
            yield not_supported(f"{at}.kind", kind, sorted(_SUBJECTS))
        return
    name = _SUBJECTS[kind]
    part = subject.get(name)
    if part is None:
        yield required(f"{at}.{name}", f"{name} is required when subject kind is '{kind}'")
    elif kind == "ServiceAccount":
        account = mapping(subject, name)
        yield from not_empty(account, f"{at}.{name}", "name")
        if text(account, "name") not in ("", "*"):
            problems = dns_subdomain_errors(account["name"])
            yield from invalid_values(f"{at}.{name}.name", account["name"], problems)
        yield from required_label(account, f"{at}.{name}", "namespace")
    else:
        yield from not_empty(mapping(subject, name), f"{at}.{name}", "name")
    for other, field in _SUBJECTS.items():
        if other != kind and subject.get(field) is not None:
            yield forbidden(f"{at}.{field}", f"{field} is forbidden when subject kind is not '{other}'")


def _verbs(rule: Object, at: str) -> Errors:
    verbs = strings(rule, "verbs")
    yield from _wildcard(rule, at, "verbs", "verbs must contain at least one value")
    if "*" not in verbs and not set(verbs) <= set(_VERBS):
        yield not_supported(f"{at}.verbs", verbs, _VERBS)


def _wildcard(rule: Object, at: str, name: str, detail: str) -> Errors:
    """Check a list that has content, and nothing beside `*`."""
    values = strings(rule, name)
    if not values:
        yield required(f"{at}.{name}", detail)
    elif "*" in values and len(values) > 1:
        what = {"apiGroups": "api groups", "nonResourceURLs": "non-resource URLs"}.get(name, name)
        yield invalid(f"{at}.{name}", values, f"if '*' is present, must not specify other {what}")


def _resource_rule(rule: Object, at: str) -> Errors:
    yield from _verbs(rule, at)
    yield from _wildcard(rule, at, "apiGroups", "resource rules must supply at least one api group")
    yield from _wildcard(rule, at, "resources", "resource rules must supply at least one resource")
    namespaces, field = strings(rule, "namespaces"), f"{at}.namespaces"
    if not namespaces and rule.get("clusterScope") is not True:
        yield required(field, "resource rules that are not cluster scoped must supply at least one namespace")
    elif "*" in namespaces:
        if len(namespaces) > 1:
            yield invalid(field, namespaces, "if '*' is present, must not specify other namespaces")
    else:
        for index, name in enumerate(namespaces):
            for problem in dns_label_errors(name):
                detail = f"each member of this list must be '*' or a DNS-1123 label; {problem}"
                yield invalid(f"{field}[{index}]", name, detail)


def _url(url: str, field: str) -> Errors:
    if not url:
        yield invalid(field, url, "must not be empty")
    elif url == "/":
        return
    elif not url.startswith("/"):
        yield invalid(field, url, "must start with slash")
    elif " " in url:
        yield invalid(field, url, "must not contain white-space")
    elif "//" in url:
        yield invalid(field, url, "must not contain double slash")
    elif "*" in url[:-1] or (url.endswith("*") and not url.endswith("/*")):
        yield invalid(field, url, "wildcard can only do suffix matching")


def validate_level(obj: Object) -> list[FieldError]:
    """Check a PriorityLevelConfiguration."""
    spec, name = mapping(obj, "spec"), text(obj, "metadata", "name")
    errors = list[FieldError]()
    kind, limited, exempt = spec.get("type"), spec.get("limited"), spec.get("exempt")
    if kind is not None and (name == "exempt") != (kind == "Exempt"):
        errors.append(invalid("spec.type", kind, "must be 'Exempt' if and only if `name` is 'exempt'"))
    errors += one_of_required(spec, "spec", "type", ("Exempt", "Limited"))
    if kind == "Exempt":
        if limited is not None:
            errors.append(forbidden("spec.limited", "must be nil if the type is not Limited"))
        errors += _shares(mapping(spec, "exempt"), "spec.exempt")
    elif kind == "Limited":
        if exempt is not None:
            errors.append(forbidden("spec.exempt", "must be nil if the type is Limited"))
        if limited is None:
            errors.append(required("spec.limited", "must not be empty when type is Limited"))
        errors += _limited(mapping(spec, "limited"), "spec.limited")
    return errors


def _shares(part: Object, at: str) -> Errors:
    shares = integer(part.get("nominalConcurrencyShares"))
    if shares is not None and shares < 0:
        yield invalid(f"{at}.nominalConcurrencyShares", shares, _NOT_NEGATIVE)
    yield from within(part, at, "lendablePercent", 0, 100)


def _limited(limited: Object, at: str) -> Errors:
    yield from _shares(limited, at)
    borrowed = integer(limited.get("borrowingLimitPercent"))
    if borrowed is not None and borrowed < 0:
        yield invalid(f"{at}.borrowingLimitPercent", borrowed, f"if specified, {_NOT_NEGATIVE}")
    response, field = mapping(limited, "limitResponse"), f"{at}.limitResponse"
    yield from one_of_required(response, field, "type", ("Queue", "Reject"))
    queuing = response.get("queuing")
    if text(response, "type") == "Reject" and queuing is not None:
        yield forbidden(f"{field}.queuing", "must be nil if limited.limitResponse.type is not Limited")
    elif text(response, "type") == "Queue":
        if queuing is None:
            yield required(f"{field}.queuing", "must not be empty if limited.limitResponse.type is Limited")
        else:
            yield from _queuing(mapping(response, "queuing"), f"{field}.queuing")


def _queuing(queuing: Object, at: str) -> Errors:
    length, queues, hand = (integer(queuing.get(name)) or 0 for name in ("queueLengthLimit", "queues", "handSize"))
    if length <= 0:
        yield invalid(f"{at}.queueLengthLimit", length, "must be positive")
    if queues <= 0:
        yield invalid(f"{at}.queues", queues, "must be positive")
    elif queues > _MAX_QUEUES:
        yield invalid(f"{at}.queues", queues, f"must not be greater than {_MAX_QUEUES}")
    if hand <= 0:
        yield invalid(f"{at}.handSize", hand, "must be positive")
    elif hand > queues:
        yield invalid(f"{at}.handSize", hand, f"should not be greater than queues ({queues})")
    elif math.ceil(math.log2(queues) * hand) > _MAX_HASH_BITS:
        detail = f"required entropy bits of deckSize {queues} and handSize {hand} should not be greater than"
        yield invalid(f"{at}.handSize", hand, f"{detail} {_MAX_HASH_BITS}")


def validate_status(obj: Object, old: Object) -> list[FieldError]:
    """Check that the conditions of either kind are different."""
    errors, seen = list[FieldError](), set[str]()
    for index, condition in objects(obj, "status", "conditions"):
        field, kind = f"status.conditions[{index}].type", text(condition, "type")
        if kind in seen:
            errors.append(duplicate(field, kind))
        seen.add(kind)
        errors += [] if kind else [required(field)]
    return errors
