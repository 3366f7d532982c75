"""Where Pods may run: tolerations, what their RuntimeClass adds, labels in their affinities; the taint of new Nodes.

Implements kube-apiserver's plug-ins DefaultTolerationSeconds, RuntimeClass and TaintNodesByCondition, with their texts,
and what it merges into the selectors of a new Pod.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from atoll.machinery.apiserver.admission.chain import Plugin, Review
from atoll.machinery.apiserver.call import errors
from atoll.machinery.kinds.checks import ensure, items, mapping, objects, strings, text
from atoll.machinery.meta.objects import Object, encode_json, labels_of
from atoll.machinery.meta.quantity import parse
from atoll.machinery.meta.status import Forbidden
from atoll.shard.admission.kubernetes.served import is_new, is_written, named, neighbour

PODS, NODES = ("", "pods"), ("", "nodes")
_NOT_READY, _UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
#: Seconds that a Pod stays on a Node that is not ready, or out of reach.
STAY_S = 300
_REQUIRED, _PREFERRED = (f"{how}DuringSchedulingIgnoredDuringExecution" for how in ("required", "preferred"))


class Tolerations(Plugin):
    """Lets Pods stay for a while on Nodes that are not ready, unless they say for how long."""

    resources = (PODS,)

    def mutate(self, review: Review) -> None:
        if not is_written(review):
            return
        spec = ensure(review.result, "spec")
        found = [each for _, each in objects(spec, "tolerations")]
        added = [_stay(key) for key in (_NOT_READY, _UNREACHABLE) if not any(_covers(each, key) for each in found)]
        if added:
            spec["tolerations"] = [*(spec.get("tolerations") or []), *added]


def _covers(toleration: Object, key: str) -> bool:
    return text(toleration, "key") in ("", key) and text(toleration, "effect") in ("", "NoExecute")


def _stay(key: str) -> Object:
    return {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": STAY_S}


class RuntimeClasses(Plugin):
    """Gives new Pods the overhead, selector and tolerations of their RuntimeClass."""

    resources = (PODS,)

    def mutate(self, review: Review) -> None:
        if not is_new(review):
            return
        spec, found = ensure(review.result, "spec"), _runtime_class(review)
        overhead = mapping(found, "overhead", "podFixed")
        if overhead:
            if spec.get("overhead") and not _is_same(spec["overhead"], overhead):
                raise _refusal(review, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
            spec["overhead"] = dict(overhead)
        scheduling = mapping(found, "scheduling")
        for key, value in mapping(scheduling, "nodeSelector").items():
            chosen = ensure(spec, "nodeSelector")
            if chosen.get(key, value) != value:
                said = f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                raise _refusal(review, said + f"pod.spec.nodeSelector[{key}] = {chosen[key]}")
            chosen[key] = value
        if added := _new_of(items(scheduling, "tolerations"), items(spec, "tolerations")):
            spec["tolerations"] = [*items(spec, "tolerations"), *added]

    def validate(self, review: Review) -> None:
        if not is_new(review):
            return
        found, given = (
            mapping(_runtime_class(review), "overhead", "podFixed"),
            ensure(review.result, "spec").get("overhead"),
        )
        if found and not _is_same(given or {}, found):
            raise _refusal(review, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
        if not found and given:
            said = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
            raise _refusal(review, said)


def _refusal(review: Review, said: str) -> Forbidden:
    return errors.forbidden(review.call.kind, review.name, said)


def _runtime_class(review: Review) -> Object:
    """Return the RuntimeClass of a new Pod; an empty object if it names none."""
    name = text(ensure(review.result, "spec"), "runtimeClassName")
    if not name:
        return {}
    found = named(review, neighbour(review, "node.k8s.io", "runtimeclasses"), name)
    if found is None:
        raise _refusal(review, f'pod rejected: RuntimeClass "{name}" not found')
    return found


def _is_same(amounts: Object, others: Object) -> bool:
    return {name: parse(value) for name, value in amounts.items()} == {
        name: parse(value) for name, value in others.items()
    }


class LabelKeys(Plugin):
    """Merges the labels that affinities and spread constraints of a new Pod name by key into their selectors."""

    resources = (PODS,)

    def mutate(self, review: Review) -> None:
        if not is_new(review):
            return
        labels = labels_of(review.result)
        for term in _terms(ensure(review.result, "spec")):
            selector = term.get("labelSelector")
            if not isinstance(selector, dict):
                continue
            rules = [
                {"key": key, "operator": operator, "values": [labels[key]]}
                for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
                for key in strings(term, field)
                if key in labels
            ]
            if added := _new_of(rules, items(selector, "matchExpressions")):
                selector["matchExpressions"] = [*items(selector, "matchExpressions"), *added]


def _new_of(values: list[Any], others: list[Any]) -> list[Any]:
    """Return the values that are not among others, in linear time."""
    known = {encode_json(each) for each in others}
    return [each for each in values if encode_json(each) not in known]


def _terms(spec: Object) -> Iterator[Object]:
    yield from (each for _, each in objects(spec, "topologySpreadConstraints"))
    for kind in ("podAffinity", "podAntiAffinity"):
        affinity = mapping(spec, "affinity", kind)
        yield from (each for _, each in objects(affinity, _REQUIRED))
        yield from (mapping(each, "podAffinityTerm") for _, each in objects(affinity, _PREFERRED))


class NodeTaints(Plugin):
    """Marks new Nodes as not ready."""

    resources = (NODES,)

    def mutate(self, review: Review) -> None:
        if not is_new(review):
            return
        spec = ensure(review.result, "spec")
        known = {(text(each, "key"), text(each, "effect")) for _, each in objects(spec, "taints")}
        if (_NOT_READY, "NoSchedule") not in known:
            spec["taints"] = [*(spec.get("taints") or []), {"key": _NOT_READY, "effect": "NoSchedule"}]
