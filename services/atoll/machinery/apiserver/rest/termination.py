"""Graceful deletion: when an object that is deleted has to be gone, and how long who runs it may take for that.

`rest.delete` asks. The time that is left can only become shorter; at zero, and without finalizers, the object goes.
Kinds without a grace period are given none, so their deletion begins now and is never shortened.
"""

from __future__ import annotations

import msgspec

from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import times
from atoll.machinery.meta.objects import Object


class Termination(msgspec.Struct, frozen=True):
    """`deletionTimestamp` and `deletionGracePeriodSeconds` of an object."""

    at: str
    period_s: int


def is_as_short(obj: Object, requested_s: int | None) -> bool:
    """Whether an object's deletion goes on as it began: it has a grace period, and no shorter one is asked for."""
    held_s = _held_s(obj)
    return held_s > 0 and (requested_s is None or _at_least(requested_s) >= held_s)


def termination(kind: Kind, obj: Object, requested_s: int | None, now: str) -> Termination | None:
    """Return when an object has to be gone; None where its deletion began before and is not shortened."""
    requested_s = requested_s if requested_s is None else _at_least(requested_s)
    if not obj["metadata"].get("deletionTimestamp"):
        period_s = kind.grace_period_s(obj, requested_s) if kind.grace_period_s is not None else 0
        return Termination(times.later(now, period_s), period_s)
    if requested_s is None or is_as_short(obj, requested_s) or not _held_s(obj):
        return None
    began = times.later(obj["metadata"]["deletionTimestamp"], -_held_s(obj))
    at = times.later(began, requested_s)
    if at < now:
        # The asked time is over already: who runs the object has a second, unless none is asked for.
        return Termination(now, min(requested_s, 1))
    return Termination(at, requested_s)


def _held_s(obj: Object) -> int:
    found = obj["metadata"].get("deletionGracePeriodSeconds")
    return _at_least(found) if isinstance(found, int) else 0


def _at_least(seconds: int) -> int:
    """Return a period; Kubernetes takes a negative one for a second."""
    return seconds if seconds >= 0 else 1
