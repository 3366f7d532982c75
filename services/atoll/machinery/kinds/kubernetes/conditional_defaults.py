"""Defaults of Kubernetes' kinds that depend on other fields of the object; the schema sets all others first.

`set_conditional_defaults` runs them by the component of a kind. They take unvalidated objects: a part of another type
than Kubernetes' is left alone, and the schema reports it. Invariant: a second run changes nothing.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

from atoll.machinery.kinds.checks import ensure, items, mapping, objects, text
from atoll.machinery.kinds.kubernetes.pod_resources import container_amounts
from atoll.machinery.meta.objects import Object

_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_LABEL = r"(?:[A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9-]*[A-Za-z0-9])"
_IMAGE = re.compile(
    rf"(?:(?:{_LABEL}(?:\.{_LABEL})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?/)?{_PART}(?:/{_PART})*"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?(?P<digest>@[A-Za-z][\w.+-]*:[0-9a-fA-F]{32,})?\Z"
)
_MAX_INT32 = 2**31 - 1
_OF_PODS, _HUGE_PAGES = ("cpu", "memory"), "hugepages-"
_CPU_METRIC: Object = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}
_DOUBLED: Object = {"type": "Percent", "value": 100, "periodSeconds": 15}
_SCALE_UP: Object = {
    "stabilizationWindowSeconds": 0,
    "selectPolicy": "Max",
    "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}, _DOUBLED],
}
_SCALE_DOWN: Object = {"selectPolicy": "Max", "policies": [_DOUBLED]}
#: An affinity to a client's address ends after three hours.
_CLIENT_AFFINITY: Object = {"clientIP": {"timeoutSeconds": 10800}}


def set_conditional_defaults(component: str, obj: Object) -> None:
    """Set them in place; nothing for a component without any."""
    for setter in _SETTERS.get(component, ()):
        setter(obj)


def _pod_spec(*path: str) -> Callable[[Object], None]:
    """Return the setter for the PodSpec at a path."""

    def set_defaults(obj: Object) -> None:
        spec = mapping(obj, *path)
        for field in ("containers", "initContainers", "ephemeralContainers"):
            for _, container in objects(spec, field):
                container.setdefault("imagePullPolicy", _pull_policy(text(container, "image")))
        for _, volume in objects(spec, "volumes"):
            if not volume.keys() - {"name"}:
                volume["emptyDir"] = {}
            if isinstance(volume.get("image"), dict):
                volume["image"].setdefault("pullPolicy", _pull_policy(text(volume, "image", "reference")))

    return set_defaults


def _pull_policy(image: str) -> str:
    """Pull an image again if its tag is, or for want of a tag and a digest would be, `latest`."""
    found = _IMAGE.match(image)
    is_latest = found is not None and (found["tag"] == "latest" or not (found["tag"] or found["digest"]))
    return "Always" if is_latest else "IfNotPresent"


def _pod(obj: Object) -> None:
    spec = mapping(obj, "spec")
    for field in ("containers", "initContainers"):
        for _, container in objects(spec, field):
            if limits := mapping(container, "resources", "limits"):
                requests = ensure(mapping(container, "resources"), "requests")
                requests.update({name: value for name, value in limits.items() if name not in requests})
            if spec.get("hostNetwork") is True:
                for _, port in objects(container, "ports"):
                    if not port.get("hostPort") and port.get("containerPort"):
                        port["hostPort"] = port["containerPort"]
    if spec:
        _whole_pod(spec)
        spec.setdefault("enableServiceLinks", True)


def _whole_pod(spec: Object) -> None:
    """Complete what a Pod says of its resources as a whole, from its containers and its own limits."""
    resources = mapping(spec, "resources")
    if not mapping(resources, "limits") and not mapping(resources, "requests"):
        return
    try:
        asked, allowed = container_amounts(spec, "requests"), container_amounts(spec, "limits")
    except ValueError:
        return
    limits, requests = dict(mapping(resources, "limits")), dict(mapping(resources, "requests"))
    for name, amount in allowed.items():
        if name.startswith(_HUGE_PAGES) and name not in requests:
            limits.setdefault(name, amount.text)
    if limits:
        resources["limits"] = limits
        requests = {name: asked[name].text for name in _OF_PODS if name in asked} | requests
        requests = {
            name: limits[name] for name in limits if name in _OF_PODS or name.startswith(_HUGE_PAGES)
        } | requests
        resources.update({"requests": requests} if requests else {})


def _service(obj: Object) -> None:
    spec = mapping(obj, "spec")
    kind = text(spec, "type")
    if text(spec, "sessionAffinity") == "ClientIP":
        if mapping(spec, "sessionAffinityConfig", "clientIP").get("timeoutSeconds") is None:
            spec["sessionAffinityConfig"] = copy.deepcopy(_CLIENT_AFFINITY)
    else:
        spec.pop("sessionAffinityConfig", None)
    for _, port in objects(spec, "ports"):
        if port.get("targetPort") in (None, 0, "") and "port" in port:
            port["targetPort"] = port["port"]
    if kind in ("LoadBalancer", "NodePort") or (kind == "ClusterIP" and items(spec, "externalIPs")):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if kind in ("LoadBalancer", "NodePort", "ClusterIP"):
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if kind == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
        for _, address in objects(obj, "status", "loadBalancer", "ingress"):
            if address.get("ip"):
                address.setdefault("ipMode", "VIP")


def _persistent_volume(obj: Object) -> None:
    """The same spec inside of a VolumeAttachment has none of these."""
    if spec := mapping(obj, "spec"):
        spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
        spec.setdefault("volumeMode", "Filesystem")


def _replication_controller(obj: Object) -> None:
    labels = mapping(obj, "spec", "template", "metadata", "labels")
    if labels:
        if not mapping(obj, "spec", "selector"):
            mapping(obj, "spec")["selector"] = dict(labels)
        _label(obj, labels)


def _label(obj: Object, labels: Object) -> None:
    if labels and not mapping(obj, "metadata", "labels"):
        ensure(obj, "metadata")["labels"] = dict(labels)


def _rolling(field: str, **values: Any) -> Callable[[Object], None]:
    """Return the setter of the limits of a rolling update, in the strategy at a field of the spec."""

    def set_defaults(obj: Object) -> None:
        strategy = mapping(obj, "spec", field)
        if text(strategy, "type") == "RollingUpdate":
            limits = ensure(strategy, "rollingUpdate")
            limits.update({name: value for name, value in values.items() if limits.get(name) is None})

    return set_defaults


def _stateful_set(obj: Object) -> None:
    strategy = mapping(obj, "spec", "updateStrategy")
    if "updateStrategy" in mapping(obj, "spec") and not text(strategy, "type"):
        strategy["type"] = "RollingUpdate"
        ensure(strategy, "rollingUpdate")
    if text(strategy, "type") == "RollingUpdate" and "rollingUpdate" in strategy:
        mapping(strategy, "rollingUpdate").setdefault("partition", 0)


def _job(obj: Object) -> None:
    spec = mapping(obj, "spec")
    if not spec:
        return
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 6 if spec.get("backoffLimitPerIndex") is None else _MAX_INT32)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("manualSelector", False)
    spec.setdefault("podReplacementPolicy", "TerminatingOrFailed" if spec.get("podFailurePolicy") is None else "Failed")
    _label(obj, mapping(spec, "template", "metadata", "labels"))


def _autoscaler(obj: Object) -> None:
    spec = mapping(obj, "spec")
    if spec and not items(spec, "metrics"):
        spec["metrics"] = [copy.deepcopy(_CPU_METRIC)]
    if isinstance(spec.get("behavior"), dict):
        for field, rules in (("scaleUp", _SCALE_UP), ("scaleDown", _SCALE_DOWN)):
            spec["behavior"][field] = copy.deepcopy(rules) | mapping(spec, "behavior", field)


def _network_policy(obj: Object) -> None:
    spec = mapping(obj, "spec")
    if spec and not items(spec, "policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if items(spec, "egress") else ["Ingress"]


def _limit_range(obj: Object) -> None:
    for _, item in objects(obj, "spec", "limits"):
        if text(item, "type") == "Container":
            limits = {**mapping(item, "max"), **mapping(item, "default")}
            requests = {**mapping(item, "min"), **limits, **mapping(item, "defaultRequest")}
            item.update({name: value for name, value in (("default", limits), ("defaultRequest", requests)) if value})


def _node(obj: Object) -> None:
    status = mapping(obj, "status")
    if capacity := mapping(status, "capacity"):
        status.setdefault("allocatable", dict(capacity))


def _claim(*path: str) -> Callable[[Object], None]:
    """Return the setter for the requests for devices at a path."""

    def set_defaults(obj: Object) -> None:
        for _, request in objects(obj, *path, "devices", "requests"):
            for each in (mapping(request, "exactly"), *(each for _, each in objects(request, "firstAvailable"))):
                if text(each, "allocationMode") == "ExactCount":
                    each.setdefault("count", 1)

    return set_defaults


_TEMPLATE = _pod_spec("spec", "template", "spec")
_SETTERS: dict[str, tuple[Callable[[Object], None], ...]] = {
    "io.k8s.api.core.v1.Pod": (_pod_spec("spec"), _pod),
    "io.k8s.api.core.v1.PodTemplate": (_pod_spec("template", "spec"),),
    "io.k8s.api.core.v1.ReplicationController": (_TEMPLATE, _replication_controller),
    "io.k8s.api.core.v1.PersistentVolume": (_persistent_volume,),
    "io.k8s.api.core.v1.Service": (_service,),
    "io.k8s.api.core.v1.LimitRange": (_limit_range,),
    "io.k8s.api.core.v1.Node": (_node,),
    "io.k8s.api.apps.v1.Deployment": (_TEMPLATE, _rolling("strategy", maxUnavailable="25%", maxSurge="25%")),
    "io.k8s.api.apps.v1.DaemonSet": (_TEMPLATE, _rolling("updateStrategy", maxUnavailable=1, maxSurge=0)),
    "io.k8s.api.apps.v1.StatefulSet": (_TEMPLATE, _stateful_set),
    "io.k8s.api.apps.v1.ReplicaSet": (_TEMPLATE,),
    "io.k8s.api.batch.v1.Job": (_TEMPLATE, _job),
    "io.k8s.api.batch.v1.CronJob": (_pod_spec("spec", "jobTemplate", "spec", "template", "spec"),),
    "io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler": (_autoscaler,),
    "io.k8s.api.networking.v1.NetworkPolicy": (_network_policy,),
    "io.k8s.api.resource.v1.ResourceClaim": (_claim("spec"),),
    "io.k8s.api.resource.v1.ResourceClaimTemplate": (_claim("spec", "spec"),),
}
