"""What a write through /resize or /ephemeralcontainers takes of a Pod; all else stays as it is stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from atoll.machinery.kinds.checks import items, mapping, text
from atoll.machinery.meta.objects import Object

_RESIZED = ("resources", "resizePolicy")


def _ephemeral_containers(obj: Object, old: Object) -> Object:
    """Return the stored Pod with the ephemeral containers of `obj`."""
    spec = dict(mapping(old, "spec"))
    _copy(spec, mapping(obj, "spec"), "ephemeralContainers")
    return {**old, "spec": spec}


def _resized(obj: Object, old: Object) -> Object:
    """Return the stored Pod with the resources of `obj`; with its containers where they are others, an error."""
    before, after = mapping(old, "spec"), mapping(obj, "spec")
    spec = dict(before)
    _copy(spec, after, "resources")
    for field in ("containers", "initContainers"):
        if _names(before, field) != _names(after, field):
            return {**old, "spec": after}
        if field in before:
            pairs = zip(items(before, field), items(after, field), strict=True)
            spec[field] = [_with_resources(container, changed) for container, changed in pairs]
    return {**old, "spec": spec}


def _names(spec: Object, field: str) -> list[str]:
    return [text(container, "name") for container in items(spec, field)]


def _with_resources(container: object, changed: object) -> Object:
    found = dict(mapping(container))
    for name in _RESIZED:
        _copy(found, mapping(changed), name)
    return found


def _copy(target: Object, source: Object, name: str) -> None:
    if name in source:
        target[name] = source[name]
    else:
        target.pop(name, None)


#: By subresource; each takes the object of the client and the stored one.
MERGES: Mapping[str, Callable[[Object, Object], Object]] = MappingProxyType(
    {"ephemeralcontainers": _ephemeral_containers, "resize": _resized}
)
