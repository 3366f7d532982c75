"""Volumes that containers mount, as folders or as devices.

A volume that has errors itself is not found by a mount, as in Kubernetes.
"""

from __future__ import annotations

from collections.abc import Mapping

from atoll.machinery.kinds.checks import mapping, objects, text
from atoll.machinery.kinds.kubernetes.validation.paths import descending
from atoll.machinery.kinds.kubernetes.validation.rules import Errors, not_empty
from atoll.machinery.meta.objects import Object
from atoll.machinery.schema.fielderrors import forbidden, invalid, not_found, not_supported

_PROPAGATIONS = ("Bidirectional", "HostToContainer", "None")
_READ_ONLY = ("Disabled", "Enabled", "IfPossible")
_DEVICES = ("persistentVolumeClaim", "ephemeral")


def mounts(container: Object, at: str, volumes: Mapping[str, Object]) -> Errors:
    """Check `volumeMounts` and `volumeDevices` of a container."""
    mounted, devices = objects(container, "volumeMounts"), objects(container, "volumeDevices")
    if mounted:
        yield from _mounts(container, f"{at}.volumeMounts", volumes, _places(devices, "devicePath"))
    if devices:
        yield from _devices(container, f"{at}.volumeDevices", volumes, _places(mounted, "mountPath"))


def _places(found: list[tuple[int, Object]], path: str) -> tuple[set[str], set[str]]:
    """Return the names and the paths."""
    return {text(each, "name") for _, each in found}, {text(each, path) for _, each in found}


def _mounts(container: Object, at: str, volumes: Mapping[str, Object], devices: tuple[set[str], set[str]]) -> Errors:
    paths = set[str]()
    for index, mount in objects(container, "volumeMounts"):
        field, name, path = f"{at}[{index}]", text(mount, "name"), text(mount, "mountPath")
        yield from not_empty(mount, field, "name", "mountPath")
        if name not in volumes and "name" in mount:
            yield not_found(f"{field}.name", name)
        if path in paths:
            yield invalid(f"{field}.mountPath", path, "must be unique")
        paths.add(path)
        if name in devices[0]:
            yield invalid(f"{field}.name", name, "must not already exist in volumeDevices")
        if path in devices[1]:
            yield invalid(f"{field}.mountPath", path, "must not already exist as a path in volumeDevices")
        # Kubernetes names these fields without the index of the mount.
        yield from descending(text(mount, "subPath"), f"{at}.subPath")
        if text(mount, "subPathExpr"):
            if text(mount, "subPath"):
                detail = "subPathExpr and subPath are mutually exclusive"
                yield invalid(f"{field}.subPathExpr", mount["subPathExpr"], detail)
            yield from descending(mount["subPathExpr"], f"{at}.subPathExpr")
        yield from _propagation(mount, container, f"{at}.mountPropagation")
        yield from _recursive_read_only(mount, f"{at}.recursiveReadOnly")


def _propagation(mount: Object, container: Object, field: str) -> Errors:
    value = mount.get("mountPropagation")
    if isinstance(value, str) and value not in _PROPAGATIONS:
        yield not_supported(field, value, _PROPAGATIONS)
    if value == "Bidirectional" and mapping(container, "securityContext").get("privileged") is not True:
        yield forbidden(field, "Bidirectional mount propagation is available only to privileged containers")


def _recursive_read_only(mount: Object, field: str) -> Errors:
    value = mount.get("recursiveReadOnly")
    if not isinstance(value, str):
        return
    if value not in _READ_ONLY:
        yield not_supported(field, value, _READ_ONLY)
    elif value != "Disabled":
        if mount.get("readOnly") is not True:
            yield forbidden(field, "may only be specified when readOnly is true")
        if mount.get("mountPropagation", "None") != "None":
            yield forbidden(field, "may only be specified when mountPropagation is None or not specified")


def _devices(container: Object, at: str, volumes: Mapping[str, Object], mounted: tuple[set[str], set[str]]) -> Errors:
    names, paths = set[str](), set[str]()
    for index, device in objects(container, "volumeDevices"):
        field, name, path = f"{at}[{index}]", text(device, "name"), text(device, "devicePath")
        yield from not_empty(device, field, "name", "devicePath")
        if name in names:
            yield invalid(f"{field}.name", name, "must be unique")
        if name in volumes:
            if not any(volumes[name].get(kind) is not None for kind in _DEVICES):
                detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
                yield invalid(f"{field}.name", name, detail)
        elif "name" in device:
            yield not_found(f"{field}.name", name)
        if path in paths:
            yield invalid(f"{field}.devicePath", path, "must be unique")
        if ".." in path.split("/"):
            yield invalid(f"{field}.devicePath", path, "can not contain backsteps ('..')")
        else:
            paths.add(path)
        if name in mounted[0]:
            yield invalid(f"{field}.name", name, "must not already exist in volumeMounts")
        if path in mounted[1]:
            yield invalid(f"{field}.devicePath", path, "must not already exist as a path in volumeMounts")
        if name:
            names.add(name)
