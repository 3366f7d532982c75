"""What follows from a finished object or the time: the status of new Pods and volumes, the generation of DaemonSets.

kube-apiserver sets these after admission; the plug-in is the last that mutates, and runs again after webhooks.
"""

from __future__ import annotations

from atoll.machinery.apiserver.admission.chain import Plugin, Review
from atoll.machinery.kinds.checks import items, mapping, text
from atoll.machinery.kinds.kubernetes.pod_resources import quality_of_service
from atoll.machinery.meta.objects import Object, annotations_of
from atoll.shard.admission.kubernetes.served import is_kubernetes_own

PODS, VOLUMES, DAEMON_SETS = ("", "pods"), ("", "persistentvolumes"), ("apps", "daemonsets")
_GENERATION = "deprecated.daemonset.template.generation"
_SINCE = "lastPhaseTransitionTime"


class FirstStatus(Plugin):
    """Sets phases of new Pods and volumes, the time of a volume's phase, the generation of a DaemonSet's template."""

    resources = (PODS, VOLUMES, DAEMON_SETS)

    def mutate(self, review: Review) -> None:
        if review.obj is None or review.call.whole or not is_kubernetes_own(review.call.kind):
            return
        if review.group_resource == DAEMON_SETS:
            _count_templates(review)
        elif review.operation == "create":
            review.obj["status"] = _of_pod(review) if review.group_resource == PODS else _of_volume(review)
        elif review.subresource == "status" and review.group_resource == VOLUMES:
            _keep_time(review)


def _of_pod(review: Review) -> Object:
    status: Object = {"phase": "Pending", "qosClass": quality_of_service(review.result)}
    if items(review.result, "spec", "schedulingGates"):
        message = "Scheduling is blocked due to non-empty scheduling gates"
        gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": message}
        status["conditions"] = [{**gated, "lastProbeTime": None, "lastTransitionTime": review.call.now}]
    return status


def _of_volume(review: Review) -> Object:
    return {"phase": "Pending", _SINCE: review.call.now}


def _keep_time(review: Review) -> None:
    """Note when the phase changed, unless the client says when."""
    assert review.old is not None
    status, before = review.result.get("status"), mapping(review.old, "status")
    if not isinstance(status, dict):
        return
    if text(status, "phase") == text(before, "phase"):
        if not status.get(_SINCE) and before.get(_SINCE):
            status[_SINCE] = before[_SINCE]
    elif not status.get(_SINCE) or status[_SINCE] == before.get(_SINCE):
        status[_SINCE] = review.call.now


def _count_templates(review: Review) -> None:
    """Count the templates of a DaemonSet in the annotation that stands for a field of older versions."""
    if review.subresource:
        return
    metadata = review.result["metadata"]
    given = annotations_of(review.result if review.old is None else review.old).get(_GENERATION, "")
    count = max(int(given), 1) if given.isdigit() else 1
    if review.old is not None and mapping(review.old, "spec", "template") != mapping(review.result, "spec", "template"):
        count += 1
    metadata["annotations"] = {**(metadata.get("annotations") or {}), _GENERATION: str(count)}
