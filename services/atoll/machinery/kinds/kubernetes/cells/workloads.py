"""Cells of workloads: Deployments, Jobs, CronJobs, autoscalers."""

from __future__ import annotations

from atoll.machinery.kinds.checks import mapping, number, objects, text
from atoll.machinery.kinds.kubernetes.autoscaling import V1, to_v2
from atoll.machinery.kinds.kubernetes.cells.common import (
    NONE,
    UNKNOWN,
    Accessor,
    containers,
    count,
    cut,
    holds,
    images,
    is_deleting,
    labels,
    selector,
)
from atoll.machinery.meta.durations import human_duration
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.times import age, parse_time

_JOB = ("spec", "jobTemplate", "spec")
#: The first condition of a Job that holds names its state.
_JOB_STATES = (
    ("Complete", "Complete"),
    ("Failed", "Failed"),
    ("", "Terminating"),
    ("Suspended", "Suspended"),
    ("FailureTarget", "FailureTarget"),
    ("SuccessCriteriaMet", "SuccessCriteriaMet"),
)
#: Metrics of an autoscaler that are shown.
_METRICS = 2


def _ready_of_desired(obj: Object, now_s: float) -> object:
    return f"{number(obj, 'status', 'readyReplicas') or 0}/{number(obj, 'spec', 'replicas') or 0}"


def _job_status(obj: Object, now_s: float) -> object:
    for condition, state in _JOB_STATES:
        if holds(obj, condition) if condition else is_deleting(obj):
            return state
    return "Running"


def _job_completions(obj: Object, now_s: float) -> object:
    succeeded, wanted = number(obj, "status", "succeeded") or 0, number(obj, "spec", "completions")
    if wanted is not None:
        return f"{succeeded}/{wanted}"
    parallel = number(obj, "spec", "parallelism") or 0
    return f"{succeeded}/1 of {parallel}" if parallel > 1 else f"{succeeded}/1"


def _job_duration(obj: Object, now_s: float) -> object:
    began = parse_time(text(obj, "status", "startTime"))
    if began is None:
        return ""
    ended = parse_time(text(obj, "status", "completionTime"))
    return human_duration((now_s if ended is None else ended) - began)


def _last_schedule(obj: Object, now_s: float) -> object:
    last = mapping(obj, "status").get("lastScheduleTime")
    return age(last, now_s) if last else NONE


def _scale_target(obj: Object, now_s: float) -> object:
    target = mapping(obj, "spec", "scaleTargetRef")
    return f"{text(target, 'kind')}/{text(target, 'name')}"


def _metric_targets(obj: Object, now_s: float) -> object:
    if obj.get("apiVersion") == V1:
        obj = to_v2(obj)
    current = [each for _, each in objects(obj, "status", "currentMetrics")]
    specs = [each for _, each in objects(obj, "spec", "metrics")]
    found = [_metric(spec, current[at] if at < len(current) else {}) for at, spec in enumerate(specs)]
    return cut(found, _METRICS, ", ") or NONE


def _metric(spec: Object, status: Object) -> str:
    type = text(spec, "type")
    source = type[:1].lower() + type[1:]
    target, current = mapping(spec, source, "target"), mapping(status, source, "current")
    if type in ("Resource", "ContainerResource"):
        return f"{text(spec, source, 'name')}: {_of_resource(target, current)}"
    if type not in ("External", "Pods", "Object"):
        return "<unknown type>"
    if "averageValue" in target:
        suffix = "" if type == "Pods" else " (avg)"
        return f"{current.get('averageValue', UNKNOWN)}/{target['averageValue']}{suffix}"
    return f"{current.get('value', UNKNOWN)}/{target.get('value', '<nil>')}"


def _of_resource(target: Object, current: Object) -> str:
    if "averageValue" in target:
        return f"{current.get('averageValue', UNKNOWN)}/{target['averageValue']}"
    used, wanted = number(current, "averageUtilization"), number(target, "averageUtilization")
    return f"{UNKNOWN if used is None else f'{used}%'}/{'<auto>' if wanted is None else f'{wanted}%'}"


ACCESSORS: dict[str, Accessor] = {
    "active_jobs": count("status", "active"),
    "job_completions": _job_completions,
    "job_containers": containers(*_JOB, "template", "spec"),
    "job_duration": _job_duration,
    "job_images": images(*_JOB, "template", "spec"),
    "job_selector": selector(*_JOB, "selector"),
    "job_status": _job_status,
    "last_schedule": _last_schedule,
    "metric_targets": _metric_targets,
    "node_selector": labels("spec", "template", "spec", "nodeSelector"),
    "ready_of_desired": _ready_of_desired,
    "scale_target": _scale_target,
}
