"""Cells of Pods: how many containers are ready, why it waits or ended, and how often it was restarted."""

from __future__ import annotations

import msgspec

from atoll.machinery.kinds.checks import mapping, number, objects, text
from atoll.machinery.kinds.kubernetes.cells.common import NONE, Accessor, is_deleting
from atoll.machinery.meta.durations import human_duration
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.times import parse_time

_UNREACHABLE, _GATED = "NodeLost", "SchedulingGated"


class _Counts(msgspec.Struct):
    """What the containers of a Pod add up to."""

    total: int = 0
    ready: int = 0
    restarts: int = 0
    #: When a container was last terminated, in epoch seconds; 0 if never.
    last_s: float = 0.0
    reason: str = ""

    def restarted(self, status: Object) -> None:
        self.restarts += number(status, "restartCount") or 0
        ended = parse_time(text(status, "lastState", "terminated", "finishedAt"))
        self.last_s = max(self.last_s, ended or 0.0)


def _count(obj: Object) -> _Counts:
    found, sidecars = _Counts(reason=_phase_reason(obj)), _Counts()
    restartable = {
        text(each, "name")
        for _, each in objects(obj, "spec", "initContainers")
        if text(each, "restartPolicy") == "Always"
    }
    found.total = len(objects(obj, "spec", "containers")) + len(restartable)
    if not _initialize(obj, found, sidecars, restartable) or _condition(obj, "Initialized") == "True":
        found.restarts, found.last_s = sidecars.restarts, sidecars.last_s
        _run(obj, found)
    if is_deleting(obj):
        if text(obj, "status", "reason") == _UNREACHABLE:
            found.reason = "Unknown"
        elif text(obj, "status", "phase") not in ("Succeeded", "Failed"):
            found.reason = "Terminating"
    return found


def _phase_reason(obj: Object) -> str:
    conditions = objects(obj, "status", "conditions")
    if any(each.get("type") == "PodScheduled" and each.get("reason") == _GATED for _, each in conditions):
        return _GATED
    return text(obj, "status", "reason") or text(obj, "status", "phase")


def _initialize(obj: Object, found: _Counts, sidecars: _Counts, restartable: set[str]) -> bool:
    """Count the init containers up to the first that is not done; return whether there is one."""
    for index, status in objects(obj, "status", "initContainerStatuses"):
        is_sidecar = text(status, "name") in restartable
        found.restarted(status)
        if is_sidecar:
            sidecars.restarted(status)
        ended = status.get("state", {}).get("terminated") if isinstance(status.get("state"), dict) else None
        if isinstance(ended, dict) and not number(ended, "exitCode"):
            continue
        if is_sidecar and status.get("started") is True:
            found.ready += status.get("ready") is True
            continue
        waits = text(status, "state", "waiting", "reason")
        if isinstance(ended, dict):
            found.reason = "Init:" + _end(ended)
        elif waits and waits != "PodInitializing":
            found.reason = "Init:" + waits
        else:
            found.reason = f"Init:{index}/{len(objects(obj, 'spec', 'initContainers'))}"
        return True
    return False


def _end(terminated: Object) -> str:
    """Return why a container ended."""
    signal = number(terminated, "signal")
    other = f"Signal:{signal}" if signal else f"ExitCode:{number(terminated, 'exitCode') or 0}"
    return text(terminated, "reason") or other


def _run(obj: Object, found: _Counts) -> None:
    """Count the containers, the last one first: the reason is that of the first."""
    runs, failure = False, ""
    for _, status in reversed(objects(obj, "status", "containerStatuses")):
        found.restarted(status)
        state = mapping(status, "state")
        if waits := text(state, "waiting", "reason"):
            found.reason = waits
        elif isinstance(ended := state.get("terminated"), dict):
            found.reason = _end(ended)
            failure = found.reason if number(ended, "exitCode") else failure
        elif status.get("ready") is True and isinstance(state.get("running"), dict):
            runs = True
            found.ready += 1
    if found.reason == "Completed":
        if runs and _condition(obj, "Ready") == "True":
            found.reason = "Running"
        elif failure or runs:
            found.reason = failure or "NotReady"


def _condition(obj: Object, type: str) -> str:
    found = (each for _, each in objects(obj, "status", "conditions") if each.get("type") == type)
    return next((text(each, "status") for each in found), "")


def _ready(obj: Object, now_s: float) -> object:
    found = _count(obj)
    return f"{found.ready}/{found.total}"


def _status(obj: Object, now_s: float) -> object:
    return _count(obj).reason


def _restarts(obj: Object, now_s: float) -> object:
    found = _count(obj)
    if found.restarts and found.last_s:
        return f"{found.restarts} ({human_duration(now_s - found.last_s)} ago)"
    return str(found.restarts)


def _readiness_gates(obj: Object, now_s: float) -> object:
    gates = [text(each, "conditionType") for _, each in objects(obj, "spec", "readinessGates")]
    return f"{sum(_condition(obj, gate) == 'True' for gate in gates)}/{len(gates)}" if gates else NONE


ACCESSORS: dict[str, Accessor] = {
    "pod_readiness_gates": _readiness_gates,
    "pod_ready": _ready,
    "pod_restarts": _restarts,
    "pod_status": _status,
}
