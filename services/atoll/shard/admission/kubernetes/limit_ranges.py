"""LimitRanges: defaults of the containers of a new Pod, and bounds of Pods and PersistentVolumeClaims.

Implements kube-apiserver's plug-in LimitRanger with its texts. Invariant: an object in a namespace without LimitRanges
is not looked at.
"""

from __future__ import annotations

from atoll.machinery.apiserver.admission.chain import Plugin, Review
from atoll.machinery.apiserver.call import errors
from atoll.machinery.kinds.checks import ensure, mapping, objects, text
from atoll.machinery.meta.objects import Object
from atoll.shard.admission.kubernetes.limit_bounds import claim_violations, pod_violations
from atoll.shard.admission.kubernetes.served import every, is_kubernetes_own, neighbour

PODS, CLAIMS = ("", "pods"), ("", "persistentvolumeclaims")
ANNOTATION = "kubernetes.io/limit-ranger"


class LimitRanges(Plugin):
    """Sets defaults of new Pods, and of resized ones; checks these and PersistentVolumeClaims."""

    resources = (PODS, CLAIMS)

    def mutate(self, review: Review) -> None:
        if review.group_resource == PODS and _is_limited(review):
            for limit_range in _limit_ranges(review):
                set_defaults(review.result, limit_range)

    def validate(self, review: Review) -> None:
        if not _is_limited(review):
            return
        check = pod_violations if review.group_resource == PODS else claim_violations
        for limit_range in _limit_ranges(review):
            found = list(dict.fromkeys(check(review.result, limit_range)))
            if found:
                said = found[0] if len(found) == 1 else f"[{', '.join(found)}]"
                raise errors.forbidden(review.call.kind, review.name, said)


def _is_limited(review: Review) -> bool:
    """A Pod when it is new or resized; a claim at every write. An object under deletion is free."""
    if review.obj is None or not is_kubernetes_own(review.call.kind):
        return False
    if review.old is not None and review.old["metadata"].get("deletionTimestamp"):
        return False
    if review.group_resource == PODS:
        return review.subresource == ("resize" if review.operation == "update" else "")
    return not review.subresource


def _limit_ranges(review: Review) -> list[Object]:
    return every(review, neighbour(review, "", "limitranges"), review.call.info.namespace)


def set_defaults(pod: Object, limit_range: Object) -> None:
    """Set what the LimitRange says of containers where a container does not say it, and note that on the Pod."""
    requests: Object = {}
    limits: Object = {}
    for _, item in objects(limit_range, "spec", "limits"):
        if text(item, "type") == "Container":
            requests.update(mapping(item, "defaultRequest"))
            limits.update(mapping(item, "default"))
    notes: list[str] = []
    for field, kind in (("containers", "container"), ("initContainers", "init container")):
        for _, container in objects(pod, "spec", field):
            for name, values, what in (("requests", requests, "request"), ("limits", limits, "limit")):
                if added := _add(container, name, values):
                    notes.append(f"{', '.join(added)} {what} for {kind} {text(container, 'name')}")
    if notes:
        metadata = pod["metadata"]
        note = "LimitRanger plugin set: " + "; ".join(notes)
        metadata["annotations"] = {**(metadata.get("annotations") or {}), ANNOTATION: note}


def _add(container: Object, name: str, values: Object) -> list[str]:
    """Add missing amounts to the requests or limits of a container. Return their names, sorted."""
    added = sorted(values.keys() - mapping(container, "resources", name).keys())
    if added:
        ensure(ensure(container, "resources"), name).update({resource: values[resource] for resource in added})
    return added
