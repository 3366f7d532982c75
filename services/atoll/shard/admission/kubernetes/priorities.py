"""Priorities: a Pod's follows from its PriorityClass, of which at most one is the default.

Implements kube-apiserver's plug-in Priority with its texts. The two classes of the system exist in every workspace,
whether or not their objects do.
"""

from __future__ import annotations

from atoll.machinery.apiserver.admission.chain import Plugin, Review
from atoll.machinery.apiserver.call import errors
from atoll.machinery.kinds.checks import ensure, text
from atoll.machinery.kinds.kubernetes.cluster_defaults import SYSTEM_CLASSES
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import Forbidden
from atoll.shard.admission.kubernetes.served import every, is_written, named, neighbour

PODS, CLASSES = ("", "pods"), ("scheduling.k8s.io", "priorityclasses")
_ANY = "PreemptLowerPriority"
_KEPT = ("priority", "preemptionPolicy")


class Priorities(Plugin):
    """Sets the priority of new Pods and keeps it; checks PriorityClasses."""

    resources = (PODS, CLASSES)

    def mutate(self, review: Review) -> None:
        if review.group_resource != PODS or not is_written(review):
            return
        spec = ensure(review.result, "spec")
        if review.old is None:
            _set_priority(review, spec)
            return
        before = review.old.get("spec") or {}
        spec.update({field: before[field] for field in _KEPT if spec.get(field) is None and field in before})

    def validate(self, review: Review) -> None:
        if review.group_resource != CLASSES or not is_written(review) or not review.result.get("globalDefault"):
            return
        known = _default_class(review)
        if known is not None and known["metadata"]["name"] != review.name:
            name = known["metadata"]["name"]
            raise _refusal(review, f"PriorityClass {name} is already marked as default. Only one default can exist")


def _refusal(review: Review, said: str) -> Forbidden:
    return errors.forbidden(review.call.kind, review.name, said)


def _default_class(review: Review) -> Object | None:
    """Return the default class with the lowest value."""
    found = [each for each in every(review, neighbour(review, *CLASSES)) if each.get("globalDefault")]
    return min(found, key=lambda each: int(each.get("value") or 0), default=None)


def _class_of(review: Review, name: str) -> Object:
    """Return a class by name; without one the default class, or what is the case without any."""
    if not name:
        return _default_class(review) or {"metadata": {"name": ""}, "value": 0}
    found = named(review, neighbour(review, *CLASSES), name)
    if found is None and name in SYSTEM_CLASSES:
        return {"metadata": {"name": name}, "value": SYSTEM_CLASSES[name][0]}
    if found is None:
        raise _refusal(review, f"no PriorityClass with name {name} was found")
    return found


def _set_priority(review: Review, spec: Object) -> None:
    found = _class_of(review, text(spec, "priorityClassName"))
    value, policy = found.get("value") or 0, found.get("preemptionPolicy") or _ANY
    computed = "priority admission controller computed {} from the given PriorityClass name"
    if spec.get("priority") not in (None, value):
        said = f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; "
        raise _refusal(review, said + computed.format(value))
    if spec.get("preemptionPolicy") not in (None, policy):
        said = f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be provided in pod spec; "
        raise _refusal(review, said + computed.format(policy))
    if name := found["metadata"]["name"]:
        spec["priorityClassName"] = name
    spec["priority"], spec["preemptionPolicy"] = value, policy
