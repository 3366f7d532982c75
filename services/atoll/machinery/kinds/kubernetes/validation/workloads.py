"""Deployments, ReplicaSets, StatefulSets, DaemonSets, ReplicationControllers, PodTemplates, ControllerRevisions."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from atoll.machinery.kinds.checks import items, mapping, objects, text
from atoll.machinery.kinds.kubernetes.validation.annotations import cost_is_valid
from atoll.machinery.kinds.kubernetes.validation.checks_of_kind import Check, Entry, UpdateCheck
from atoll.machinery.kinds.kubernetes.validation.claims import spec_errors
from atoll.machinery.kinds.kubernetes.validation.plain_templates import is_plain_workload
from atoll.machinery.kinds.kubernetes.validation.podspec import pod_template
from atoll.machinery.kinds.kubernetes.validation.rules import (
    NEGATIVE,
    Errors,
    amount,
    at_most_all,
    integer,
    label,
    not_negative,
    number_or_percent,
    one_of_defaulted,
    same,
    unchanged,
)
from atoll.machinery.kinds.kubernetes.validation.scheduling import selector
from atoll.machinery.kinds.kubernetes.validation.tolerated import NOTHING, Tolerated, tolerated
from atoll.machinery.kinds.kubernetes.validation.volumes import claim_volume
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.selectors import SelectorError, compile_label_selector
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import forbidden, invalid, not_supported, required

_MISMATCH = "`selector` does not match template `labels`"
_TOO_MANY = "cannot be greater than status.replicas"
_SET_FIELDS = (
    "replicas",
    "template",
    "updateStrategy",
    "minReadySeconds",
    "ordinals",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
)
_SET_TEXT = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "
    "'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
)


def template_tolerated(template: Object) -> Tolerated:
    """Return what a change of a workload with this template may keep."""
    annotations = mapping(template, "metadata", "annotations")
    spec = mapping(template, "spec")
    return tolerated(spec, deletion_cost=not cost_is_valid(annotations))


def labels_match(chosen: object, labels: Object) -> bool:
    """Report whether a selector takes the labels of its template; one that is not valid is reported elsewhere."""
    if not isinstance(chosen, dict):
        return False
    try:
        return compile_label_selector(chosen).matches(labels)
    except (AttributeError, KeyError, TypeError, SelectorError):
        return True


def _selector(spec: Object, kind: str) -> Errors:
    chosen = spec.get("selector")
    if chosen is None:
        yield required("spec.selector")
    yield from selector(chosen, "spec.selector")
    if isinstance(chosen, dict) and not chosen.get("matchLabels") and not chosen.get("matchExpressions"):
        yield invalid("spec.selector", chosen, f"empty selector is invalid for {kind}")


def _mismatch(spec: Object) -> Errors:
    """Check that a selector takes the labels of its template; an absent one takes nothing, an empty one anything."""
    labels, chosen = mapping(spec, "template", "metadata", "labels"), spec.get("selector")
    if not labels_match(chosen, labels):
        yield invalid("spec.template.metadata.labels", labels, _MISMATCH)


def _runs_forever(template: Object, at: str, kind: str) -> Errors:
    spec = mapping(template, "spec")
    if text(spec, "restartPolicy") not in ("", "Always"):
        yield not_supported(f"{at}.spec.restartPolicy", spec["restartPolicy"], ("Always",))
    if spec.get("activeDeadlineSeconds") is not None:
        yield forbidden(f"{at}.spec.activeDeadlineSeconds", f"activeDeadlineSeconds in {kind} is not Supported")


def _matching_template(spec: Object, passed: Tolerated) -> Errors:
    if selector(spec.get("selector"), ""):
        yield invalid("spec.selector", spec["selector"], "invalid label selector")
        return
    template = mapping(spec, "template")
    yield from _mismatch(spec)
    yield from pod_template(template, "spec.template", passed)
    yield from _runs_forever(template, "spec.template", "ReplicaSet")


def _deployment_spec(spec: Object, passed: Tolerated) -> Errors:
    yield from not_negative(
        spec, "spec", "replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"
    )
    yield from _selector(spec, "deployment")
    yield from _matching_template(spec, passed)
    yield from _strategy(mapping(spec, "strategy"), "spec.strategy")
    deadline = integer(spec.get("progressDeadlineSeconds"))
    if deadline is not None and deadline <= (integer(spec.get("minReadySeconds")) or 0):
        yield invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds")


def _strategy(strategy: Object, at: str) -> Errors:
    kind, rolling = text(strategy, "type"), strategy.get("rollingUpdate")
    if kind == "Recreate":
        if rolling is not None:
            yield forbidden(f"{at}.rollingUpdate", "may not be specified when strategy `type` is 'Recreate'")
    elif kind == "RollingUpdate":
        limits = mapping(strategy, "rollingUpdate")
        fields = [(name, limits.get(name)) for name in ("maxUnavailable", "maxSurge")]
        for name, value in fields:
            yield from number_or_percent(value, f"{at}.rollingUpdate.{name}")
        if all(amount(value) == 0 for _, value in fields):
            detail = "may not be 0 when `maxSurge` is 0"
            yield invalid(f"{at}.rollingUpdate.maxUnavailable", fields[0][1], detail)
        yield from at_most_all(fields[0][1], f"{at}.rollingUpdate.maxUnavailable")
    elif kind:
        yield not_supported(at, strategy, ("Recreate", "RollingUpdate"))


def _replica_set_spec(spec: Object, passed: Tolerated) -> Errors:
    yield from not_negative(spec, "spec", "replicas", "minReadySeconds")
    yield from _selector(spec, "deployment")
    yield from _matching_template(spec, passed)


def _daemon_set_spec(spec: Object, passed: Tolerated) -> Errors:
    template = mapping(spec, "template")
    any_values = passed.selector_values
    yield from selector(spec.get("selector"), "spec.selector", any_values=any_values)
    chosen = spec.get("selector")
    yield from _mismatch(spec)
    if isinstance(chosen, dict) and not chosen.get("matchLabels") and not chosen.get("matchExpressions"):
        yield invalid("spec.selector", chosen, "empty selector is invalid for daemonset")
    yield from pod_template(template, "spec.template", passed)
    yield from _runs_forever(template, "spec.template", "DaemonSet")
    yield from not_negative(spec, "spec", "minReadySeconds", "revisionHistoryLimit")
    strategy = mapping(spec, "updateStrategy")
    if text(strategy, "type") == "RollingUpdate":
        yield from _rolling_daemons(mapping(strategy, "rollingUpdate"), "spec.updateStrategy.rollingUpdate")
    elif text(strategy, "type") not in ("", "OnDelete"):
        yield not_supported("spec.updateStrategy", strategy, ("RollingUpdate", "OnDelete"))


def _rolling_daemons(limits: Object, at: str) -> Errors:
    values = {name: limits.get(name) for name in ("maxUnavailable", "maxSurge")}
    for check in (number_or_percent, at_most_all):
        for name, value in values.items():
            yield from check(value, f"{at}.{name}")
    if all(map(amount, values.values())):
        yield invalid(f"{at}.maxSurge", values["maxSurge"], "may not be set when maxUnavailable is non-zero")
    if not any(map(amount, values.values())):
        yield required(f"{at}.maxUnavailable", "cannot be 0 when maxSurge is 0")


def _stateful_set_spec(
    spec: Object, passed: Tolerated, *, is_update: bool = False, checks_template: bool = True
) -> Errors:
    if text(spec, "podManagementPolicy") not in ("", "OrderedReady", "Parallel"):
        policy = spec["podManagementPolicy"]
        yield invalid("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'")
    yield from _set_strategy(mapping(spec, "updateStrategy"), "spec.updateStrategy")
    retention = mapping(spec, "persistentVolumeClaimRetentionPolicy")
    for name in ("whenDeleted", "whenScaled"):
        yield from one_of_defaulted(retention, "spec.persistentVolumeClaimRetentionPolicy", name, ("Retain", "Delete"))
    if not is_update:
        for index, claim in objects(spec, "volumeClaimTemplates"):
            yield from spec_errors(mapping(claim, "spec"), f"spec.volumeClaimTemplates[{index}].spec")
        yield from label(spec, "spec", "serviceName")
    yield from not_negative(spec, "spec", "replicas", "minReadySeconds")
    yield from not_negative({"ordinals.start": mapping(spec, "ordinals").get("start")}, "spec", "ordinals.start")
    yield from _selector(spec, "statefulset")
    template = mapping(spec, "template")
    if selector(spec.get("selector"), ""):
        yield invalid("spec.selector", spec["selector"], "")
    else:
        yield from _mismatch(spec)
        if checks_template:
            yield from pod_template(_with_claims(spec, template), "spec.template", passed)
    yield from _runs_forever(template, "spec.template", "StatefulSet")


def _with_claims(spec: Object, template: Object) -> Object:
    """Return the template with the volumes of the claims; its pods get names of their own."""
    inner = {name: value for name, value in mapping(template, "spec").items() if name not in ("hostname", "subdomain")}
    claims = {text(each, "metadata", "name") for _, each in objects(spec, "volumeClaimTemplates")}
    if claims:
        kept = [each for each in items(inner, "volumes") if not (isinstance(each, dict) and each.get("name") in claims)]
        inner["volumes"] = [*map(claim_volume, sorted(claims)), *kept]
    return {**template, "spec": inner}


def _set_strategy(strategy: Object, at: str) -> Errors:
    kind, rolling = text(strategy, "type"), strategy.get("rollingUpdate")
    if kind == "OnDelete":
        if rolling is not None:
            yield invalid(f"{at}.rollingUpdate", rolling, "only allowed for updateStrategy 'RollingUpdate'")
    elif kind == "RollingUpdate":
        field, limit = f"{at}.rollingUpdate.maxUnavailable", mapping(strategy, "rollingUpdate").get("maxUnavailable")
        yield from not_negative(mapping(strategy, "rollingUpdate"), f"{at}.rollingUpdate", "partition")
        if limit is not None:
            yield from number_or_percent(limit, field)
            if amount(limit) == 0:
                yield invalid(field, limit, "cannot be 0")
            yield from at_most_all(limit, field)
    elif kind:
        yield invalid(at, strategy, "must be 'RollingUpdate' or 'OnDelete'")


def _controller_spec(spec: Object, passed: Tolerated) -> Errors:
    yield from not_negative(spec, "spec", "minReadySeconds", "replicas")
    chosen, template = mapping(spec, "selector"), spec.get("template")
    if not chosen:
        yield required("spec.selector")
    if not isinstance(template, dict):
        yield required("spec.template")
        return
    labels = mapping(template, "metadata", "labels")
    if any(labels.get(key) != value for key, value in chosen.items()):
        yield invalid("spec.template.metadata.labels", labels, _MISMATCH)
    yield from pod_template(template, "spec.template", passed)
    yield from _runs_forever(template, "spec.template", "ReplicationController")


def _update(check: Callable[[Object, Tolerated], Errors]) -> UpdateCheck:
    """Return the check of an update of a workload whose selector stays."""

    def validate_update(obj: Object, old: Object) -> list[FieldError]:
        spec, before = mapping(obj, "spec"), mapping(old, "spec")
        errors = list(unchanged(spec, before, "spec", "selector"))
        if is_plain_workload(spec):
            return errors
        return [*check(spec, template_tolerated(mapping(before, "template"))), *errors]

    return validate_update


def _create(check: Callable[[Object, Tolerated], Errors]) -> Check:
    def validate(obj: Object) -> list[FieldError]:
        spec = mapping(obj, "spec")
        return [] if is_plain_workload(spec) else list(check(spec, NOTHING))

    return validate


def _stateful_set_update(obj: Object, old: Object) -> list[FieldError]:
    spec, before = mapping(obj, "spec"), mapping(old, "spec")
    passed = template_tolerated(mapping(before, "template"))
    was_valid = not any(True for _ in _stateful_set_spec(before, passed, is_update=True))
    errors = list(_stateful_set_spec(spec, passed, is_update=True, checks_template=was_valid))
    kept = [{name: value for name, value in each.items() if name not in _SET_FIELDS} for each in (spec, before)]
    if not same(*kept):
        errors.append(forbidden("spec", _SET_TEXT))
    return errors


def _counts(obj: Object, names: Iterable[str], below: Iterable[str], ready_text: str) -> Errors:
    """Check the counts in a status, and that some are not above the number of replicas."""
    status = mapping(obj, "status")
    yield from not_negative(status, "status", *names)
    total = integer(status.get("replicas")) or 0
    for name in below:
        if (integer(status.get(name)) or 0) > total:
            yield invalid(f"status.{name}", integer(status.get(name)) or 0, _TOO_MANY)
    available = integer(status.get("availableReplicas")) or 0
    if ready_text and available > (integer(status.get("readyReplicas")) or 0):
        yield invalid("status.availableReplicas", available, ready_text)


def _collisions(obj: Object, old: Object) -> Errors:
    count, before = mapping(obj, "status").get("collisionCount"), mapping(old, "status").get("collisionCount")
    if integer(before) is not None and (integer(count) is None or integer(count) < integer(before)):  # type: ignore[operator]
        yield invalid("status.collisionCount", integer(count) or 0, "cannot be decremented")


def _status(
    names: str, below: str, ready_text: str = "cannot be greater than readyReplicas", *, collides: bool = True
) -> dict[str, UpdateCheck]:
    """Return the check of a status by the names of its counts and of those that replicas bound."""

    def validate_status(obj: Object, old: Object) -> list[FieldError]:
        errors = list(_counts(obj, names.split(), below.split(), ready_text))
        return errors + list(_collisions(obj, old)) if collides else errors

    return {"status": validate_status}


def _revision_number(obj: Object) -> list[FieldError]:
    number = integer(obj.get("revision")) or 0
    return [invalid("revision", number, NEGATIVE)] if number < 0 else []


def _revision(obj: Object) -> list[FieldError]:
    data, errors = obj.get("data"), _revision_number(obj)
    if data is None:
        return [*errors, required("data", "data is mandatory")]
    return errors if isinstance(data, dict) else [*errors, required("data", "data must be a valid JSON object")]


def _revision_update(obj: Object, old: Object) -> list[FieldError]:
    return [*_revision_number(obj), *unchanged(obj, old, "", "data")]


def _template_update(obj: Object, old: Object) -> list[FieldError]:
    return pod_template(mapping(obj, "template"), "template", template_tolerated(mapping(old, "template")))


_REPLICAS = "replicas fullyLabeledReplicas readyReplicas availableReplicas observedGeneration"
_BELOW = "fullyLabeledReplicas readyReplicas availableReplicas"
DEPLOYMENT: Entry = (
    _create(_deployment_spec),
    _update(_deployment_spec),
    _status(
        "observedGeneration replicas updatedReplicas readyReplicas availableReplicas unavailableReplicas "
        "terminatingReplicas collisionCount",
        "updatedReplicas readyReplicas availableReplicas",
    ),
)
REPLICA_SET: Entry = (
    _create(_replica_set_spec),
    _update(_replica_set_spec),
    _status(f"{_REPLICAS} terminatingReplicas", _BELOW, collides=False),
)
DAEMON_SET: Entry = (
    _create(_daemon_set_spec),
    _update(_daemon_set_spec),
    _status(
        "currentNumberScheduled numberMisscheduled desiredNumberScheduled numberReady observedGeneration "
        "updatedNumberScheduled numberAvailable numberUnavailable collisionCount",
        "",
        "",
    ),
)
STATEFUL_SET: Entry = (
    _create(_stateful_set_spec),
    _stateful_set_update,
    _status(
        "replicas readyReplicas currentReplicas updatedReplicas availableReplicas observedGeneration collisionCount",
        "readyReplicas currentReplicas updatedReplicas availableReplicas",
        "cannot be greater than status.readyReplicas",
    ),
)


def _controller_update(obj: Object, old: Object) -> list[FieldError]:
    passed = template_tolerated(mapping(old, "spec", "template"))
    return list(_controller_spec(mapping(obj, "spec"), passed))


REPLICATION_CONTROLLER: Entry = (
    _create(_controller_spec),
    _controller_update,
    _status(_REPLICAS, _BELOW, collides=False),
)
POD_TEMPLATE: Entry = (lambda obj: pod_template(mapping(obj, "template"), "template"), _template_update, {})
CONTROLLER_REVISION: Entry = (_revision, _revision_update, {})
