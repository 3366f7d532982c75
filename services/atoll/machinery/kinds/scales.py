"""The Scale of an object: the form in which /scale shows it, and the object with the replicas of a changed one."""

from __future__ import annotations

from atoll.machinery.kinds.kind import Kind, Scale
from atoll.machinery.meta.objects import Object, fresh
from atoll.machinery.meta.status import InternalError

SCALE_VERSION = "autoscaling/v1"
_META = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def scale_paths(kind: Kind) -> Scale:
    """Return the paths of a kind's scale. Raises InternalError if it has none."""
    if kind.scale is None:
        raise InternalError(f"Internal error occurred: {kind.group_resource} has no scale")
    return kind.scale


def scale_form(kind: Kind, obj: Object) -> Object:
    """Return the Scale of an object; without a replicas field it has no replicas, which a write may add."""
    paths = scale_paths(kind)
    replicas = _read(obj, paths.spec_replicas)
    status: Object = {"replicas": _read(obj, paths.status_replicas) or 0}
    if paths.selector is not None:
        status["selector"] = paths.selector(obj)
    elif paths.label_selector:
        status["selector"] = _read(obj, paths.label_selector) or ""
    metadata = {name: obj["metadata"][name] for name in _META if name in obj["metadata"]}
    spec = {"replicas": replicas} if isinstance(replicas, int) else {}
    return {"kind": "Scale", "apiVersion": SCALE_VERSION, "metadata": metadata, "spec": spec, "status": status}


def scaled(kind: Kind, obj: Object, replicas: object) -> Object:
    """Return a copy of an object with so many replicas."""
    found = fresh(obj)
    holder = found
    *parents, leaf = scale_paths(kind).spec_replicas.removeprefix(".").split(".")
    for name in parents:
        holder = holder.setdefault(name, {})
    holder[leaf] = replicas
    return found


def _read(obj: Object, path: str) -> object:
    value: object = obj
    for name in path.removeprefix(".").split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value
