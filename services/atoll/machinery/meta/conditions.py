"""Conditions in `status`: kcp's kind (with severity, sorted) and Kubernetes' metav1 kind.

Controllers and the builders of bootstrap objects call these and put the result into an object's status. An
unchanged condition keeps its lastTransitionTime, so writing it again is a no-op for the store. Lists in arguments
are never modified; times are RFC 3339 texts of the shard's clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter

import msgspec

from atoll.machinery.meta.objects import Object

READY = "Ready"
TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"
ERROR, WARNING, INFO = "Error", "Warning", "Info"

#: Rank of a False condition in a summary; a missing severity counts as an error.
_LOUDNESS = {INFO: 0, WARNING: 1, ERROR: 2, "": 2}


class Condition(msgspec.Struct, frozen=True):
    """A condition without its time. `severity` is for kcp's conditions with status False only."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    severity: str = ""


def find(conditions: Iterable[Object], type_: str) -> Object | None:
    """Return the condition of this type, or None."""
    for condition in conditions:
        if condition.get("type") == type_:
            return condition
    return None


def is_true(conditions: Iterable[Object], type_: str) -> bool:
    """Whether the condition exists and is True."""
    condition = find(conditions, type_)
    return condition is not None and condition.get("status") == TRUE


def remove(conditions: Iterable[Object], type_: str) -> list[Object]:
    """Return the conditions without that of this type."""
    return [condition for condition in conditions if condition.get("type") != type_]


# --- kcp's conditions: conditions.kcp.io/v1alpha1, no observedGeneration ----------------------------------


def set_condition(conditions: Sequence[Object], new: Condition, now: str) -> list[Object]:
    """Return the conditions with `new` in place of the one of its type, sorted as kcp sorts them.

    lastTransitionTime stays when status, severity, reason and message are unchanged, and is `now` after any
    change (unlike metav1's, where only a change of status counts).
    """
    old = find(conditions, new.type)
    said = _kcp_condition(new)
    if old is not None and {k: v for k, v in old.items() if k != "lastTransitionTime" and v != ""} == said:
        return ordered(conditions)
    return ordered([*remove(conditions, new.type), {**said, "lastTransitionTime": now}])


def with_conditions(status: Object, now: str, *new: Condition) -> Object:
    """Return the status with the conditions; an equal one if it has them already."""
    conditions: list[Object] = status.get("conditions") or []
    for condition in new:
        conditions = set_condition(conditions, condition, now)
    return {**status, "conditions": conditions}


def ordered(conditions: Iterable[Object]) -> list[Object]:
    """kcp's order: Ready first, then by type."""
    found = sorted(conditions, key=itemgetter("type"))
    ready = find(found, READY)
    if ready is not None and ready is not found[0]:
        found.remove(ready)
        found.insert(0, ready)
    return found


def set_summary(conditions: Sequence[Object], of: Sequence[str], now: str) -> list[Object]:
    """Return the conditions with Ready set to the summary of the types in `of`.

    Absent ones are left out; with none present Ready is left as it is. Any False one makes it False, with the
    reason, severity and message of the most severe (the first in `of` among equals); else any Unknown makes it
    Unknown.
    """
    present = [found for type_ in of if (found := find(conditions, type_)) is not None]
    if not present:
        return ordered(conditions)
    return set_condition(conditions, _summary(present), now)


def _summary(present: Sequence[Object]) -> Condition:
    failed = [condition for condition in present if condition["status"] == FALSE]
    if failed:
        loudest = max(failed, key=lambda condition: _LOUDNESS[condition.get("severity", "")])
        return _of(loudest, FALSE, loudest.get("severity", ""))
    unknown = next((condition for condition in present if condition["status"] != TRUE), None)
    return _of(unknown, UNKNOWN, "") if unknown is not None else Condition(READY, TRUE)


def _of(source: Object, status: str, severity: str) -> Condition:
    return Condition(READY, status, source.get("reason", ""), source.get("message", ""), severity)


def _kcp_condition(new: Condition) -> Object:
    said: Object = {"type": new.type, "status": new.status}
    for name in ("reason", "message", "severity"):
        if value := getattr(new, name):
            said[name] = value
    if new.status != FALSE:
        said.pop("severity", None)
    return said


# --- Kubernetes' conditions: metav1.Condition and its older like ------------------------------------------


def set_status_condition(
    conditions: Sequence[Object], new: Condition, now: str, observed_generation: int | None = None
) -> list[Object]:
    """Return the conditions with `new` in place of the one of its type, or at the end.

    lastTransitionTime becomes `now` only when the status changes. observedGeneration is written if not None.
    """
    old = find(conditions, new.type)
    changed = old is None or old.get("status") != new.status
    entry: Object = {
        "type": new.type,
        "status": new.status,
        "lastTransitionTime": now if changed or old is None else old.get("lastTransitionTime", now),
        "reason": new.reason,
        "message": new.message,
    }
    if observed_generation is not None:
        entry["observedGeneration"] = observed_generation
    if old is None:
        return [*conditions, entry]
    return [entry if condition is old else condition for condition in conditions]
