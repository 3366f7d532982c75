"""What kube-apiserver sets and resets on writes of its kinds, by component: phases, counters, fields of a type.

`served_kinds` puts the functions into each Kind, as `prepare_create` and `prepare_update`. They take unvalidated
objects before pruning and defaults, with nulls, and change them in place; status of clients is gone already, but for a
Node's. What depends on defaults, on other objects or on a draw is admission's (`shard.admission`). Invariant: none
raises, and a second run changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from types import MappingProxyType

from atoll.machinery.kinds.checks import ensure, mapping, objects, text
from atoll.machinery.kinds.kubernetes.validation.devices import device_of
from atoll.machinery.kinds.kubernetes.validation.rules import same
from atoll.machinery.meta import wellknown
from atoll.machinery.meta.objects import Object

Create = Callable[[Object], None]
Update = Callable[[Object, Object], None]
Merge = Callable[[Object, Object], Object]

_JOB_UID = "batch.kubernetes.io/controller-uid"
#: The labels of the Pods of a Job, with the field of its metadata that each repeats.
_JOB_LABELS = {"job-name": "name", "batch.kubernetes.io/job-name": "name", "controller-uid": "uid", _JOB_UID: "uid"}
#: Sources of a volume's data that older versions take.
_OLD_SOURCES = frozenset({("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot")})


def _unchanged(obj: Object) -> None:
    return None


def _unchanged_update(obj: Object, old: Object) -> None:
    return None


def _pair_accounts(*path: str) -> Create:
    """Return what lets a Pod's service account have both of its names, at a path of specs."""

    def prepare(obj: Object) -> None:
        spec = mapping(obj, *path)
        name = text(spec, "serviceAccountName") or text(spec, "serviceAccount")
        if name:
            spec["serviceAccountName"] = spec["serviceAccount"] = name

    return prepare


def _select_pods(job: Object) -> None:
    """Let a Job select its own Pods by its uid, unless it says that it selects others."""
    spec = job.get("spec")
    if not isinstance(spec, dict) or spec.get("manualSelector") is True:
        return
    metadata = mapping(job, "metadata")
    labels = ensure(ensure(ensure(spec, "template"), "metadata"), "labels")
    for name, field in _JOB_LABELS.items():
        labels.setdefault(name, text(metadata, field))
    ensure(ensure(spec, "selector"), "matchLabels").setdefault(_JOB_UID, text(metadata, "uid"))


def _first_phase(obj: Object) -> None:
    obj["status"] = {"phase": "Pending"}


def _pair_sources(claim: Object) -> None:
    """Let the source of a volume's data have both of its names."""
    spec = mapping(claim, "spec")
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if isinstance(source, dict) and reference is None:
        spec["dataSourceRef"] = dict(source)
    elif isinstance(reference, dict) and source is None and not reference.get("namespace"):
        spec["dataSource"] = {field: reference[field] for field in reference if field != "namespace"}


def _drop_unknown_source(claim: Object) -> None:
    """Drop a source that older versions do not take, if nothing says that the client knows newer ones."""
    spec = mapping(claim, "spec")
    source = spec.get("dataSource")
    is_alone = isinstance(source, dict) and spec.get("dataSourceRef") is None
    if is_alone and (text(source, "apiGroup"), text(source, "kind")) not in _OLD_SOURCES:
        del spec["dataSource"]


def _prepare_claim(claim: Object, old: Object) -> None:
    if mapping(old, "spec").get("dataSource") is None and mapping(old, "spec").get("dataSourceRef") is None:
        _drop_unknown_source(claim)
    _pair_sources(claim)


def _count_annotations(deployment: Object, old: Object) -> None:
    """Count changed annotations as a generation: ReplicaSets repeat them."""
    if _annotations(deployment) != _annotations(old):
        _bump(deployment, old)


def _annotations(obj: Object) -> Object:
    found = mapping(obj, "metadata", "annotations")
    return {name: value for name, value in found.items() if name != wellknown.CLUSTER}


def _count_labels(obj: Object, old: Object) -> None:
    if mapping(obj, "metadata", "labels") != mapping(old, "metadata", "labels"):
        _bump(obj, old)


def _drop_topology(endpoint_slice: Object) -> None:
    """Drop labels of nodes that a former version had in its endpoints; their fields say the same."""
    for _, endpoint in objects(endpoint_slice, "endpoints"):
        endpoint.pop("deprecatedTopology", None)


def _prepare_slice(endpoint_slice: Object, old: Object) -> None:
    if not same(endpoint_slice.get("endpoints"), old.get("endpoints")):
        _drop_topology(endpoint_slice)
    _count_labels(endpoint_slice, old)


def _bump(obj: Object, old: Object) -> None:
    generation = mapping(old, "metadata").get("generation")
    mapping(obj, "metadata")["generation"] = (generation if isinstance(generation, int) else 0) + 1


def _drop_source(node: Object, old: Object | None = None) -> None:
    """Drop what a Node says of a kubelet's configuration, which only who stored that in a former version keeps."""
    for part, field in (("spec", "configSource"), ("status", "config")):
        if mapping(old, part).get(field) is None:
            mapping(node, part).pop(field, None)


def _node_status(node: Object, old: Object) -> Object:
    """Return the stored Node with the status of `node`, without what it says of a kubelet's configuration."""
    _drop_source(node, old)
    return {**old, "status": mapping(node, "status")}


def _claim_status(claim: Object, old: Object) -> Object:
    """Return the stored claim with the status of `claim`, without reports about devices that it no longer has."""
    status = dict(mapping(claim, "status"))
    released = _allocated(old) - _allocated(claim)
    if released and isinstance(status.get("devices"), list):
        kept = [each for each in status["devices"] if not isinstance(each, dict) or device_of(each) not in released]
        status["devices"] = kept
    return {**old, "status": status}


def _allocated(claim: Object) -> set[Hashable]:
    return {device_of(result) for _, result in objects(claim, "status", "allocation", "devices", "results")}


def _each(*steps: Create) -> Create:
    def prepare(obj: Object) -> None:
        for step in steps:
            step(obj)

    return prepare


def _as_update(*steps: Create, count: Update = _unchanged_update) -> Update:
    def prepare(obj: Object, old: Object) -> None:
        for step in steps:
            step(obj)
        count(obj, old)

    return prepare


_TEMPLATE = _pair_accounts("spec", "template", "spec")
#: Whose Pods are described where.
_PODS: Mapping[str, Create] = {
    "io.k8s.api.core.v1.Pod": _pair_accounts("spec"),
    "io.k8s.api.core.v1.PodTemplate": _pair_accounts("template", "spec"),
    "io.k8s.api.core.v1.ReplicationController": _TEMPLATE,
    "io.k8s.api.apps.v1.Deployment": _TEMPLATE,
    "io.k8s.api.apps.v1.DaemonSet": _TEMPLATE,
    "io.k8s.api.apps.v1.StatefulSet": _TEMPLATE,
    "io.k8s.api.apps.v1.ReplicaSet": _TEMPLATE,
    "io.k8s.api.batch.v1.Job": _TEMPLATE,
    "io.k8s.api.batch.v1.CronJob": _pair_accounts("spec", "jobTemplate", "spec", "template", "spec"),
}
_CREATE: Mapping[str, Create] = MappingProxyType(
    {
        **_PODS,
        "io.k8s.api.batch.v1.Job": _each(_TEMPLATE, _select_pods),
        "io.k8s.api.core.v1.Node": _drop_source,
        "io.k8s.api.discovery.v1.EndpointSlice": _drop_topology,
        "io.k8s.api.core.v1.PersistentVolumeClaim": _each(_first_phase, _drop_unknown_source, _pair_sources),
    }
)
_UPDATE: Mapping[str, Update] = MappingProxyType(
    {
        **{component: _as_update(pair) for component, pair in _PODS.items()},
        "io.k8s.api.apps.v1.Deployment": _as_update(_TEMPLATE, count=_count_annotations),
        "io.k8s.api.core.v1.Node": _drop_source,
        "io.k8s.api.discovery.v1.EndpointSlice": _prepare_slice,
        "io.k8s.api.core.v1.PersistentVolumeClaim": _prepare_claim,
    }
)


_MERGES: Mapping[str, Mapping[str, Merge]] = MappingProxyType(
    {
        "io.k8s.api.core.v1.Node": MappingProxyType({"status": _node_status}),
        "io.k8s.api.resource.v1.ResourceClaim": MappingProxyType({"status": _claim_status}),
    }
)


def merges(component: str) -> Mapping[str, Merge]:
    """Return what writes through the subresources of a component take of the body, given also the stored object."""
    return _MERGES.get(component, {})


def prepare_create(component: str) -> Create:
    """Return what is done to a new object of a component, such as `io.k8s.api.core.v1.Pod`."""
    return _CREATE.get(component, _unchanged)


def prepare_update(component: str) -> Update:
    """Return what is done to a changed object, with the stored one as second argument."""
    return _UPDATE.get(component, _unchanged_update)
