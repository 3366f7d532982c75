"""MutatingWebhookConfigurations and ValidatingWebhookConfigurations."""

from __future__ import annotations

from collections.abc import Iterator

from atoll.machinery.kinds.admissionregistration.clients import client_errors
from atoll.machinery.kinds.admissionregistration.matching import GROUP, condition_errors, rule_errors
from atoll.machinery.kinds.binary import join_lines
from atoll.machinery.kinds.checks import invalid_values, items, mapping, number, objects, selector_errors, strings, text
from atoll.machinery.kinds.kind import Column, Kind
from atoll.machinery.kinds.native import AGE, API_EXTENSIONS, NAME, age_cell, builtin, name_cell, row
from atoll.machinery.meta.labels import dns_1035_label_errors, dns_subdomain_errors
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import duplicate, invalid, required

_REVIEW_VERSIONS = ("v1", "v1beta1")
_SHORTEST_S, _LONGEST_S = 1, 30


def _prepare(obj: Object) -> None:
    for _, webhook in objects(obj, "webhooks"):
        join_lines(mapping(webhook, "clientConfig"), "caBundle")


def _validate(obj: Object) -> list[FieldError]:
    errors, names = list[FieldError](), set[str]()
    for index, webhook in objects(obj, "webhooks"):
        field, name = f"webhooks[{index}]", text(webhook, "name")
        errors += _webhook_errors(webhook, field)
        if name and name in names:
            errors.append(duplicate(f"{field}.name", name))
        names.add(name)
    return errors


def _webhook_errors(webhook: Object, field: str) -> Iterator[FieldError]:
    yield from _name_errors(text(webhook, "name"), f"{field}.name")
    for index, rule in objects(webhook, "rules"):
        yield from rule_errors(rule, f"{field}.rules[{index}]")
    timeout_s = number(webhook, "timeoutSeconds")
    if timeout_s is not None and not _SHORTEST_S <= timeout_s <= _LONGEST_S:
        detail = "the timeout value must be between 1 and 30 seconds"
        yield invalid(f"{field}.timeoutSeconds", timeout_s, detail)
    for name in ("namespaceSelector", "objectSelector"):
        yield from selector_errors(webhook.get(name), f"{field}.{name}")
    if isinstance(webhook.get("clientConfig"), dict):
        yield from client_errors(webhook["clientConfig"], f"{field}.clientConfig")
    yield from condition_errors(webhook, f"{field}.matchConditions")
    name = "admissionReviewVersions"
    if isinstance(webhook.get(name), list):
        yield from _version_errors(strings(webhook, name), f"{field}.{name}")


def _name_errors(name: str, field: str) -> list[FieldError]:
    if not name:
        return [required(field)]
    if problems := dns_subdomain_errors(name):
        return [invalid(field, name, ",".join(problems))]
    if name.count(".") < 2:
        detail = "should be a domain with at least three segments separated by dots"
        return [invalid(field, name, detail)]
    return []


def _version_errors(versions: list[str], field: str) -> Iterator[FieldError]:
    known = ", ".join(_REVIEW_VERSIONS)
    if not versions:
        yield required(field, f"must specify one of {known}")
        return
    seen = set()
    for index, version in enumerate(versions):
        if version in seen:
            yield invalid(f"{field}[{index}]", version, "duplicate version")
        seen.add(version)
        yield from invalid_values(f"{field}[{index}]", version, dns_1035_label_errors(version))
    if not seen & set(_REVIEW_VERSIONS):
        yield invalid(field, versions, f"must include at least one of {known}")


def _count_cell(obj: Object, now_s: float) -> object:
    return len(items(obj, "webhooks"))


_COLUMNS = (NAME, Column("Webhooks", "integer", "", "How many webhooks it holds."), AGE)

MUTATINGWEBHOOKCONFIGURATIONS = Kind(
    **builtin(GROUP, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
    categories=(API_EXTENSIONS,),
    namespaced=False,
    generation=True,
    columns=_COLUMNS,
    cells=row(name_cell, _count_cell, age_cell),
    prepare_create=_prepare,
    prepare_update=lambda obj, old: _prepare(obj),
    validate=_validate,
    validate_update=lambda obj, old: _validate(obj),
)

VALIDATINGWEBHOOKCONFIGURATIONS = Kind(
    **builtin(GROUP, "ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
    categories=(API_EXTENSIONS,),
    namespaced=False,
    generation=True,
    columns=_COLUMNS,
    cells=row(name_cell, _count_cell, age_cell),
    prepare_create=_prepare,
    prepare_update=lambda obj, old: _prepare(obj),
    validate=_validate,
    validate_update=lambda obj, old: _validate(obj),
)
