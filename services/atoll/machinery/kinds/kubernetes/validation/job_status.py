"""The status of Jobs, which controllers of other people may write too: what it says has to fit together.

A rule is checked when what it is about changes, so that a status that broke it before can still be written.
"""

from __future__ import annotations

from collections.abc import Callable

from atoll.machinery.kinds.checks import items, mapping, objects, text
from atoll.machinery.kinds.kubernetes.validation.indexes import count_indexes, overlap
from atoll.machinery.kinds.kubernetes.validation.rules import Errors, integer, not_negative, same
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import duplicate, invalid, required

_TERMINAL = ("Failed", "Complete", "FailureTarget")


def has_condition(obj: Object, kind: str, status: str = "True") -> bool:
    """Report whether a Job has a condition with this status."""
    conditions = objects(obj, "status", "conditions")
    return any(each.get("type") == kind and each.get("status") == status for _, each in conditions)


def _unvalued(detail: str) -> FieldError:
    """An error of the conditions, whose text does not repeat them."""
    return FieldError("FieldValueInvalid", "status.conditions", f"Invalid value: {detail}")


def validate_status(obj: Object, old: Object) -> list[FieldError]:
    """Check a status that replaces another."""
    return [*_uncounted(obj), *_counts(obj, old), *_indexes(obj, old), *_times(obj, old), *_conditions(obj, old)]


def _changes(obj: Object, old: Object, *names: str) -> bool:
    now, before = mapping(obj, "status"), mapping(old, "status")
    return any(not same(now.get(name) or None, before.get(name) or None) for name in names)


def _flips(obj: Object, old: Object, *kinds: str) -> bool:
    return any(has_condition(obj, kind) != has_condition(old, kind) for kind in kinds)


def _is_finished(obj: Object) -> bool:
    return has_condition(obj, "Complete") or has_condition(obj, "Failed")


def _uncounted(obj: Object) -> Errors:
    status, field, seen = mapping(obj, "status"), "status.uncountedTerminatedPods", set[str]()
    yield from not_negative(status, "status", "active", "succeeded", "failed", "ready", "terminating")
    for name in ("succeeded", "failed"):
        for index, uid in enumerate(items(status, "uncountedTerminatedPods", name)):
            if uid == "":
                yield invalid(f"{field}.{name}[{index}]", uid, "must not be empty")
            elif uid in seen:
                yield duplicate(f"{field}.{name}[{index}]", uid)
            elif isinstance(uid, str):
                seen.add(uid)


def _counts(obj: Object, old: Object) -> Errors:
    spec, status, before = mapping(obj, "spec"), mapping(obj, "status"), mapping(old, "status")
    is_done, is_new = _is_finished(obj), _is_finished(obj) != _is_finished(old)

    def number(name: str) -> int:
        return integer(status.get(name)) or 0

    for name in ("active", "terminating"):
        if is_done and number(name) > 0 and (is_new or _changes(obj, old, name)):
            yield invalid(f"status.{name}", number(name), f"{name}>0 is invalid for finished job")
    uncounted = mapping(status, "uncountedTerminatedPods")
    if is_done and any(uncounted.values()) and (is_new or _changes(obj, old, "uncountedTerminatedPods")):
        yield invalid("status.uncountedTerminatedPods", uncounted, "must be empty for finished job")
    if "ready" in status and number("ready") > number("active") and _changes(obj, old, "ready", "active"):
        yield invalid("status.ready", number("ready"), "cannot set more ready pods than active")
    may_shrink = text(spec, "completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism")
    for name in ("failed", "succeeded"):
        if number(name) < (integer(before.get(name)) or 0) and not (name == "succeeded" and may_shrink):
            yield invalid(f"status.{name}", number(name), f"cannot decrease the {name} counter")


def _indexes(obj: Object, old: Object) -> Errors:
    spec, status = mapping(obj, "spec"), mapping(obj, "status")
    completed, failed, total = (
        text(status, "completedIndexes"),
        status.get("failedIndexes"),
        integer(spec.get("completions")),
    )
    new_completed, new_failed = _changes(obj, old, "completedIndexes"), _changes(obj, old, "failedIndexes")
    shown = failed if isinstance(failed, str) else ""
    has_limit = spec.get("backoffLimitPerIndex") is not None
    if total is not None:
        checked = (("completedIndexes", completed, new_completed), ("failedIndexes", shown, new_failed and has_limit))
        for name, value, is_checked in checked:
            problem = count_indexes(value, total)[1] if is_checked else ""
            if problem:
                yield invalid(f"status.{name}", value, f"error parsing {name}: {problem}")
    if completed and text(spec, "completionMode") != "Indexed" and new_completed:
        detail = "cannot set non-empty completedIndexes when non-indexed completion mode"
        yield invalid("status.completedIndexes", completed, detail)
    if failed is not None and not has_limit and new_failed:
        detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
        yield invalid("status.failedIndexes", failed, detail)
    if total is not None and (new_completed or new_failed) and (problem := overlap(completed, shown, total)):
        yield invalid("status.failedIndexes", failed, problem)


def _times(obj: Object, old: Object) -> Errors:
    spec, status, before = mapping(obj, "spec"), mapping(obj, "status"), mapping(old, "status")
    start, end, is_complete = status.get("startTime"), status.get("completionTime"), has_condition(obj, "Complete")
    new_start, new_end = _changes(obj, old, "startTime"), _changes(obj, old, "completionTime")
    is_resumed = has_condition(old, "Suspended") and has_condition(obj, "Suspended", "False")
    is_empty = spec.get("suspend") is True and spec.get("completions") == 0
    if _flips(obj, old, "Complete") or new_end:
        if end is not None and not is_complete:
            detail = "cannot set completionTime when there is no Complete=True condition"
            yield invalid("status.completionTime", end, detail)
        if end is None and is_complete:
            yield required("status.completionTime", "completionTime is required for Complete jobs")
    if (new_start or new_end) and isinstance(start, str) and isinstance(end, str) and end < start:
        yield invalid("status.completionTime", end, "must be equal to or after `startTime`")
    is_new = _is_finished(obj) != _is_finished(old)
    if start is None and _is_finished(obj) and (is_new or new_start) and not is_empty:
        yield required("status.startTime", "startTime is required for finished job")
    if end is not None and before.get("completionTime") not in (None, end):
        yield invalid("status.completionTime", end, "field is immutable")
    if before.get("startTime") not in (None, start) and spec.get("suspend") is not True and not is_resumed:
        yield invalid("status.startTime", start, "field is immutable for unsuspended job once set")


def _conditions(obj: Object, old: Object) -> Errors:
    def has(kind: str) -> bool:
        return has_condition(obj, kind)

    def flips(*kinds: str) -> bool:
        return _flips(obj, old, *kinds)

    met, complete, failed = has("SuccessCriteriaMet"), has("Complete"), has("Failed")
    if complete and failed and flips("Complete", "Failed"):
        yield _unvalued("cannot set Complete=True and Failed=true conditions")
    if complete and has("FailureTarget") and flips("Complete", "FailureTarget"):
        yield _unvalued("cannot set Complete=True and FailureTarget=true conditions")
    if failed and not has("FailureTarget") and (flips("Failed") or _changes(obj, old, "failedIndexes")):
        yield _unvalued("cannot set Failed=True condition without the FailureTarget=true condition")
    if complete and not met and flips("Complete", "SuccessCriteriaMet"):
        yield _unvalued("cannot set Complete=True condition without the SuccessCriteriaMet=true condition")
    if met and failed:
        yield _unvalued("cannot set SuccessCriteriaMet=True and Failed=true conditions")
    if met and has("FailureTarget"):
        yield _unvalued("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions")
    if mapping(obj, "spec").get("successPolicy") is not None and complete and not met:
        detail = "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True"
        yield _unvalued(detail)
    yield from _kept(old, has)


def _kept(old: Object, has: Callable[[str], bool]) -> Errors:
    """Check that an end stays an end."""
    for kind in _TERMINAL:
        if has_condition(old, kind) and not has(kind):
            yield _unvalued(f"cannot disable the terminal {kind}=True condition")
    if has_condition(old, "SuccessCriteriaMet") and not has("SuccessCriteriaMet"):
        yield _unvalued("cannot disable the SuccessCriteriaMet=True condition")
    if has_condition(old, "Complete") and not has_condition(old, "SuccessCriteriaMet") and has("SuccessCriteriaMet"):
        yield _unvalued("cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions")
