"""Jobs and CronJobs."""

from __future__ import annotations

import copy

from atoll.machinery.kinds.checks import items, mapping, objects, text
from atoll.machinery.kinds.kubernetes.validation.domains import domain_path_errors
from atoll.machinery.kinds.kubernetes.validation.indexes import count_indexes
from atoll.machinery.kinds.kubernetes.validation.job_status import has_condition
from atoll.machinery.kinds.kubernetes.validation.podspec import pod_template
from atoll.machinery.kinds.kubernetes.validation.rules import (
    Errors,
    integer,
    label_key,
    names_of,
    not_negative,
    one_of,
    one_of_defaulted,
    one_of_required,
    same,
    shorter,
    unchanged,
)
from atoll.machinery.kinds.kubernetes.validation.schedules import schedule_problem, zone_errors
from atoll.machinery.kinds.kubernetes.validation.scheduling import selector
from atoll.machinery.kinds.kubernetes.validation.tolerated import NOTHING, Tolerated
from atoll.machinery.kinds.kubernetes.validation.workloads import labels_match, template_tolerated
from atoll.machinery.meta.labels import dns_label_errors
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import duplicate, invalid, not_supported, required, too_long, too_many

_NUMBERS = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
)
_MANY, _LIMIT_OF_MANY = 100_000, 10_000
_MANAGER_SIZE, _INDEXES_SIZE, _CRON_NAME_SIZE = 63, 64 * 1024, 52
_MAX_RULES, _MAX_EXIT_CODES, _MAX_PATTERNS = 20, 255, 20
_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_OPERATORS, _STATUSES = ("In", "NotIn"), ("False", "True", "Unknown")
_UID_LABELS = ("controller-uid", "batch.kubernetes.io/controller-uid")
_NAME_LABELS = ("job-name", "batch.kubernetes.io/job-name")


def _values(names: tuple[str, ...]) -> str:
    return "valid values: [" + " ".join(f'"{name}"' for name in names) + "]"


def _job_spec(spec: Object, at: str, passed: Tolerated) -> Errors:
    yield from not_negative(spec, at, *_NUMBERS)
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        yield required(f"{at}.backoffLimitPerIndex", "when maxFailedIndexes is specified")
    if isinstance(spec.get("managedBy"), str):
        yield from domain_path_errors(spec["managedBy"], f"{at}.managedBy")
        yield from shorter(spec, at, "managedBy", _MANAGER_SIZE)
    yield from one_of(spec, at, "completionMode", ("NonIndexed", "Indexed"))
    yield from _completion_mode(spec, at)
    if isinstance(spec.get("podFailurePolicy"), dict):
        yield from _failure_policy(spec, f"{at}.podFailurePolicy")
    if isinstance(spec.get("successPolicy"), dict):
        if text(spec, "completionMode") != "Indexed":
            yield invalid(f"{at}.successPolicy", spec["successPolicy"], "requires indexed completion mode")
        else:
            yield from _success_policy(spec, f"{at}.successPolicy")
    policies = ("Failed",) if spec.get("podFailurePolicy") is not None else ("Failed", "TerminatingOrFailed")
    yield from one_of(spec, at, "podReplacementPolicy", policies)
    template = mapping(spec, "template")
    yield from pod_template(template, f"{at}.template", passed)
    yield from _restart_policy(spec, text(template, "spec", "restartPolicy"), f"{at}.template.spec.restartPolicy")


def _restart_policy(spec: Object, policy: str, field: str) -> Errors:
    if policy in ("", "Always"):
        yield required(field, 'valid values: "OnFailure", "Never"')
    elif policy not in ("OnFailure", "Never"):
        yield not_supported(field, policy, ("OnFailure", "Never"))
    elif spec.get("podFailurePolicy") is not None and policy != "Never":
        yield invalid(field, policy, 'only "Never" is supported when podFailurePolicy is specified')


def _completion_mode(spec: Object, at: str) -> Errors:
    names = ("completions", "parallelism", "backoffLimitPerIndex", "maxFailedIndexes")
    completions, parallelism, per_index, failed = (integer(spec.get(name)) for name in names)
    if text(spec, "completionMode") == "NonIndexed":
        for name, value in ((names[2], per_index), (names[3], failed)):
            if value is not None:
                yield invalid(f"{at}.{name}", value, "requires indexed completion mode")
    if text(spec, "completionMode") != "Indexed":
        return
    if completions is None:
        yield required(f"{at}.completions", "when completion mode is Indexed")
    if parallelism is not None and parallelism > _MANY:
        detail = f"must be less than or equal to {_MANY} when completion mode is Indexed"
        yield invalid(f"{at}.parallelism", parallelism, detail)
    if failed is not None and completions is not None and failed > completions:
        yield invalid(f"{at}.maxFailedIndexes", failed, "must be less than or equal to completions")
    if failed is not None and failed > _MANY:
        yield invalid(f"{at}.maxFailedIndexes", failed, f"must be less than or equal to {_MANY}")
    if per_index is None or completions is None or completions <= _MANY:
        return
    if failed is None:
        yield required(f"{at}.maxFailedIndexes", f"must be specified when completions is above {_MANY}")
    limit = f"must be less than or equal to {_LIMIT_OF_MANY} when completions are above {_MANY}"
    for name, value in ((names[1], parallelism), (names[3], failed)):
        if value is not None and value > _LIMIT_OF_MANY:
            yield invalid(f"{at}.{name}", value, f"{limit} and used with backoff limit per index")


def _failure_policy(spec: Object, at: str) -> Errors:
    rules = objects(spec, "podFailurePolicy", "rules")
    if len(rules) > _MAX_RULES:
        yield too_many(f"{at}.rules", len(rules), _MAX_RULES)
    pod = mapping(spec, "template", "spec")
    names = names_of(pod, "containers") | names_of(pod, "initContainers")
    for index, rule in rules:
        field, action = f"{at}.rules[{index}]", text(rule, "action")
        if action == "FailIndex":
            if spec.get("backoffLimitPerIndex") is None:
                yield invalid(f"{field}.action", action, "requires the backoffLimitPerIndex to be set")
        else:
            yield from one_of_required(rule, field, "action", _ACTIONS, _values(_ACTIONS))
        codes, patterns = rule.get("onExitCodes"), objects(rule, "onPodConditions")
        if isinstance(codes, dict):
            yield from _exit_codes(codes, f"{field}.onExitCodes", names)
        yield from _patterns(patterns, f"{field}.onPodConditions")
        if codes is not None and patterns:
            yield _unvalued(field, "specifying both OnExitCodes and OnPodConditions is not supported")
        if codes is None and not patterns:
            yield _unvalued(field, "specifying one of OnExitCodes and OnPodConditions is required")


def _unvalued(field: str, detail: str) -> FieldError:
    """An error of a part that its text does not repeat."""
    return FieldError("FieldValueInvalid", field, f"Invalid value: {detail}")


def _patterns(patterns: list[tuple[int, Object]], at: str) -> Errors:
    if len(patterns) > _MAX_PATTERNS:
        yield too_many(at, len(patterns), _MAX_PATTERNS)
    for index, pattern in patterns:
        yield from label_key(f"{at}[{index}].type", pattern.get("type"))
        yield from one_of_defaulted(pattern, f"{at}[{index}]", "status", _STATUSES)


def _exit_codes(codes: Object, at: str, names: set[str]) -> Errors:
    operator, container, values = text(codes, "operator"), codes.get("containerName"), items(codes, "values")
    yield from one_of_required(codes, at, "operator", _OPERATORS, _values(_OPERATORS))
    if isinstance(container, str) and container not in names:
        detail = "must be one of the container or initContainer names in the pod template"
        yield invalid(f"{at}.containerName", container, detail)
    if not values:
        yield invalid(f"{at}.values", values, "at least one value is required")
    elif len(values) > _MAX_EXIT_CODES:
        yield too_many(f"{at}.values", len(values), _MAX_EXIT_CODES)
    seen, numbers = set[int](), [integer(value) or 0 for value in values]
    for index, number in enumerate(numbers):
        if operator == "In" and number == 0:
            yield invalid(f"{at}.values[{index}]", number, "must not be 0 for the In operator")
        if number in seen:
            yield duplicate(f"{at}.values[{index}]", number)
        seen.add(number)
    if numbers != sorted(numbers):
        yield invalid(f"{at}.values", values, "must be ordered")


def _success_policy(spec: Object, at: str) -> Errors:
    rules, completions = objects(spec, "successPolicy", "rules"), integer(spec.get("completions"))
    if not rules:
        detail = "at least one rules must be specified when the successPolicy is specified"
        yield required(f"{at}.rules", detail)
    if len(rules) > _MAX_RULES:
        yield too_many(f"{at}.rules", len(rules), _MAX_RULES)
    if completions is None:
        return
    for index, rule in rules:
        yield from _success_rule(rule, f"{at}.rules[{index}]", completions)


def _success_rule(rule: Object, at: str, completions: int) -> Errors:
    indexes, count, total = rule.get("succeededIndexes"), integer(rule.get("succeededCount")), 0
    if indexes is None and count is None:
        yield required(at, "at least one of succeededCount or succeededIndexes must be specified")
    if isinstance(indexes, str):
        if len(indexes.encode()) > _INDEXES_SIZE:
            yield too_long(f"{at}.succeededIndexes", _INDEXES_SIZE)
        total, problem = count_indexes(indexes, completions)
        if problem:
            detail = f"error parsing succeededIndexes: {problem}"
            yield invalid(f"{at}.succeededIndexes", indexes, detail)
    if count is None:
        return
    field, limit = f"{at}.succeededCount", "must be less than or equal to"
    yield from not_negative(rule, at, "succeededCount")
    if count > completions:
        yield invalid(field, count, f"{limit} {completions} (the number of specified completions)")
    if isinstance(indexes, str) and count > total:
        detail = f"{limit} {total} (the number of indexes in the specified succeededIndexes field)"
        yield invalid(field, count, detail)


def _own_labels(obj: Object, *, has_prefixed: bool = True) -> Errors:
    """Check the selector and labels that the server makes for a Job from its uid."""
    metadata, spec, uid = mapping(obj, "metadata"), mapping(obj, "spec"), text(obj, "metadata", "uid")
    if spec.get("manualSelector") is True or spec.get("selector") is None or not uid:
        return
    at, labels = "spec.template.metadata.labels", mapping(spec, "template", "metadata", "labels")
    count = 2 if has_prefixed else 1
    expected = dict.fromkeys(_UID_LABELS[:count], uid) | dict.fromkeys(_NAME_LABELS[:count], text(metadata, "name"))
    for key, value in expected.items():
        if key not in labels:
            yield required(f"{at}[{key}]", f"must be '{value}'")
        elif labels[key] != value:
            yield invalid(f"{at}[{key}]", labels, f"must be '{value}'")
    if not selector(spec["selector"], "") and not labels_match(spec["selector"], expected):
        yield invalid("spec.selector", spec["selector"], "`selector` not auto-generated")


def _job(obj: Object, passed: Tolerated, *, has_prefixed: bool = True) -> Errors:
    spec = mapping(obj, "spec")
    yield from _own_labels(obj, has_prefixed=has_prefixed)
    yield from _selected_spec(spec, passed)
    completions = integer(spec.get("completions")) or 0
    if text(spec, "completionMode") == "Indexed" and completions > 0:
        host = f"{text(obj, 'metadata', 'name')}-{completions - 1}"
        if dns_label_errors(host):
            detail = f"will not able to create pod with invalid DNS label: {host}"
            yield invalid("metadata.name", text(obj, "metadata", "name"), detail)


def _selected_spec(spec: Object, passed: Tolerated) -> Errors:
    yield from _job_spec(spec, "spec", passed)
    chosen, labels = spec.get("selector"), mapping(spec, "template", "metadata", "labels")
    if chosen is None:
        # Without a manual selector the server makes one.
        if spec.get("manualSelector") is True:
            yield required("spec.selector")
            yield invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
        return
    errors = selector(chosen, "spec.selector", any_values=passed.selector_values)
    yield from errors
    if not errors and not labels_match(chosen, labels):
        yield invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")


def validate(obj: Object) -> list[FieldError]:
    """Check a new Job."""
    return list(_job(obj, NOTHING))


def validate_update(obj: Object, old: Object) -> list[FieldError]:
    """Check that a Job does the same work as before; a suspended one that has not begun may change more."""
    spec, before = mapping(obj, "spec"), mapping(old, "spec")
    passed = template_tolerated(mapping(before, "template"))
    labels = mapping(before, "template", "metadata", "labels")
    has_prefixed = _UID_LABELS[1] in labels and _NAME_LABELS[1] in labels
    errors = list(_job(obj, passed, has_prefixed=has_prefixed))
    errors += _completion_changes(spec, before)
    errors += unchanged(spec, before, "spec", "selector")
    errors += _template_changes(obj, old)
    fixed = ("completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy")
    return errors + list(unchanged(spec, before, "spec", *fixed))


def _completion_changes(spec: Object, before: Object) -> Errors:
    if text(spec, "completionMode") != "Indexed":
        yield from unchanged(spec, before, "spec", "completions")
    elif spec.get("completions") not in (before.get("completions"), None, spec.get("parallelism")):
        detail = "can only be modified in tandem with spec.parallelism"
        yield invalid("spec.completions", spec["completions"], detail)


def _template_changes(obj: Object, old: Object) -> Errors:
    template, before = mapping(obj, "spec", "template"), copy.deepcopy(mapping(old, "spec", "template"))
    active = integer(mapping(old, "status").get("active")) or 0
    is_suspended = mapping(old, "spec").get("suspend") is True
    is_free = (
        is_suspended
        and active == 0
        and (mapping(old, "status").get("startTime") is None or has_condition(old, "Suspended"))
    )
    spec, old_spec = mapping(template, "spec"), mapping(before, "spec")
    if is_free:
        affinity = dict(mapping(old_spec, "affinity")) | {"nodeAffinity": mapping(spec, "affinity").get("nodeAffinity")}
        old_spec["affinity"] = affinity if any(value is not None for value in affinity.values()) else None
        for name in ("nodeSelector", "tolerations", "schedulingGates"):
            old_spec[name] = spec.get(name)
        kept = {name: mapping(template, "metadata").get(name) for name in ("annotations", "labels")}
        before["metadata"] = mapping(before, "metadata") | kept
    if not (is_free and is_suspended):
        if not same(template, before):
            yield invalid("spec.template", template, "field is immutable")
        return
    for name in ("containers", "initContainers"):
        pairs = list(zip(items(spec, name), items(old_spec, name), strict=False))
        if len(items(spec, name)) == len(items(old_spec, name)):
            for new, previous in pairs:
                if isinstance(new, dict) and isinstance(previous, dict) and new.get("name") == previous.get("name"):
                    previous["resources"] = new.get("resources")
    if not same(spec, old_spec):
        yield invalid("spec.template.spec", spec, "field is immutable")


def _cron_spec(spec: Object, before: Object | None, passed: Tolerated) -> Errors:
    schedule, zone = text(spec, "schedule"), spec.get("timeZone")
    if not schedule and "schedule" in spec:
        yield required("spec.schedule")
    elif schedule:
        yield from _schedule(schedule, zone, had_zone="TZ" in text(before, "schedule"))
    yield from not_negative(
        spec, "spec", "startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"
    )
    if isinstance(zone, str) and (before is None or before.get("timeZone") != zone):
        yield from zone_errors(zone, "spec.timeZone")
    yield from one_of_defaulted(spec, "spec", "concurrencyPolicy", ("Allow", "Forbid", "Replace"))
    job, at = mapping(spec, "jobTemplate", "spec"), "spec.jobTemplate.spec"
    yield from _job_spec(job, at, passed)
    if job.get("selector") is not None:
        yield invalid(f"{at}.selector", job["selector"], "`selector` will be auto-generated")
    if job.get("manualSelector") is True:
        yield not_supported(f"{at}.manualSelector", True, ("nil", "false"))


def _schedule(schedule: str, zone: object, *, had_zone: bool) -> Errors:
    field = "spec.schedule"
    if problem := schedule_problem(schedule):
        yield invalid(field, schedule, problem)
    if "TZ" not in schedule:
        return
    if not had_zone:
        yield invalid(field, schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead")
    elif zone is not None:
        yield invalid(field, schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule")


def validate_cron(obj: Object) -> list[FieldError]:
    """Check a new CronJob."""
    errors, name = list(_cron_spec(mapping(obj, "spec"), None, NOTHING)), text(obj, "metadata", "name")
    if len(name.encode()) > _CRON_NAME_SIZE:
        errors.append(invalid("metadata.name", name, f"must be no more than {_CRON_NAME_SIZE} characters"))
    return errors


def validate_cron_update(obj: Object, old: Object) -> list[FieldError]:
    """Check a CronJob that replaces another; all of it may change."""
    before = mapping(old, "spec")
    passed = template_tolerated(mapping(before, "jobTemplate", "spec", "template"))
    return list(_cron_spec(mapping(obj, "spec"), before, passed))
