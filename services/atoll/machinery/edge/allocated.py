"""Values that a server allocates: addresses, ports, bindings, selectors of Jobs. They belong to one cluster.

Projection takes them from a copy unless somebody wrote them, which managedFields say: a server's own values have no
owner. Invariant: an object without managedFields keeps all of them, as nothing says that nobody wrote them; so what is
projected once stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from atoll.machinery.meta.objects import Object, spec_of
from atoll.machinery.patch.fieldset import FieldSet
from atoll.machinery.patch.path_elements import FIELD, KEY

_HEADLESS = "None"
_SPEC_FIELDS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("v1", "Service"): ("clusterIP", "clusterIPs", "healthCheckNodePort", "ipFamilies", "ipFamilyPolicy"),
    ("v1", "PersistentVolumeClaim"): ("volumeName",),
    ("v1", "Pod"): ("nodeName",),
    ("v1", "Namespace"): ("finalizers",),
}
_JOB_UID = "batch.kubernetes.io/controller-uid"
#: Labels that a server makes, by the field of a Job's metadata that each repeats.
_JOB_LABELS = {"controller-uid": "uid", _JOB_UID: "uid", "job-name": "name", "batch.kubernetes.io/job-name": "name"}


def without_allocated(obj: Object) -> Object:
    """Return an object without the allocated values of its spec that no field manager owns."""
    entries = obj["metadata"].get("managedFields")
    type = (obj["apiVersion"], obj["kind"])
    if not entries or not isinstance(obj.get("spec"), dict):
        return obj
    owned = [each.get("fieldsV1", {}).get("f:spec", {}) for each in entries if not each.get("subresource")]
    spec = spec_of(obj)
    if type == ("batch/v1", "Job"):
        return _job(obj, owned)
    removed = {name for name in _SPEC_FIELDS.get(type, ()) if name in spec and not _is_owned(owned, name)}
    if spec.get("clusterIP") == _HEADLESS:
        removed -= {"clusterIP", "clusterIPs"}
    kept = {name: value for name, value in spec.items() if name not in removed}
    if type == ("v1", "Service") and kept.get("ports"):
        kept["ports"] = [_port(port, owned) for port in kept["ports"]]
    if not kept:
        return {name: value for name, value in obj.items() if name != "spec"}
    return {**obj, "spec": kept}


def _is_owned(owned: list[FieldSet], name: str) -> bool:
    return any(FIELD + name in fields for fields in owned)


def _port(port: Object, owned: list[FieldSet]) -> Object:
    """Return a port of a Service without its node port, unless somebody wrote that."""
    for fields in owned:
        ports = fields.get("f:ports")
        if ports is not None and any("f:nodePort" in node for node in _items(ports, port)):
            return port
    return {name: value for name, value in port.items() if name != "nodePort"}


def _items(fields: FieldSet, item: Object) -> Iterator[FieldSet]:
    for element, node in fields.items():
        if element.startswith(KEY):
            keys: dict[str, Any] = msgspec.json.decode(element[len(KEY) :])
            if all(item.get(name) == value for name, value in keys.items()):
                yield node


def _job(obj: Object, owned: list[FieldSet]) -> Object:
    """Return a Job without the selector and the labels that a server makes of its uid.

    Whoever is their owner: nobody can write the uid of an object that is not there yet, and it means nothing elsewhere.
    """
    spec, metadata = spec_of(obj), obj["metadata"]
    selected = (spec.get("selector") or {}).get("matchLabels") or {}
    is_made = selected == {_JOB_UID: metadata.get("uid")}
    if spec.get("manualSelector") or (_is_owned(owned, "selector") and not is_made):
        return obj
    template = spec.get("template") or {}
    written = [fields.get("f:template", {}).get("f:metadata", {}).get("f:labels", {}) for fields in owned]
    kept = _without_job_labels(metadata, template.get("metadata") or {}, written)
    changed = {**template, "metadata": kept} if kept else {k: v for k, v in template.items() if k != "metadata"}
    rest = {name: value for name, value in spec.items() if name != "selector"}
    return {**obj, "metadata": _without_job_labels(metadata, metadata, ()), "spec": {**rest, "template": changed}}


def _without_job_labels(job: Object, metadata: Object, written: Sequence[FieldSet]) -> Object:
    """Return metadata without the labels that repeat those of a Job, and without those of others that nobody wrote."""
    labels = {
        name: value
        for name, value in (metadata.get("labels") or {}).items()
        if name not in _JOB_LABELS
        or (value != job.get(_JOB_LABELS[name]) and (not written or any(FIELD + name in each for each in written)))
    }
    rest = {name: value for name, value in metadata.items() if name != "labels"}
    return {**rest, "labels": labels} if labels else rest
