"""PersistentVolumes, also inside of VolumeAttachments."""

from __future__ import annotations

import posixpath

from atoll.machinery.kinds.checks import mapping, text
from atoll.machinery.kinds.kubernetes.validation.claims import VOLUME_MODES, access_modes
from atoll.machinery.kinds.kubernetes.validation.resources import basic_amount
from atoll.machinery.kinds.kubernetes.validation.rules import (
    Errors,
    amount_of,
    not_empty,
    one_of,
    one_of_defaulted,
    present,
    quantity_text,
    required_label,
    required_subdomain,
    same,
    subdomain,
    unchanged,
)
from atoll.machinery.kinds.kubernetes.validation.scheduling import node_selector
from atoll.machinery.kinds.kubernetes.validation.volume_sources import (
    driver_errors,
    second_source_field,
    source_errors,
    source_field,
)
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import forbidden, invalid, not_supported, required

#: In the order in which Kubernetes looks for them.
SOURCES = (
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
)
_SECRETS = ("controllerPublishSecretRef", "controllerExpandSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef")
_INLINE = "may not be specified in the context of inline volumes"
_SOURCE_TEXT = "spec.persistentvolumesource is immutable after creation\n"


def validate(obj: Object) -> list[FieldError]:
    """Check a new volume."""
    return list(volume_spec(mapping(obj, "spec"), "spec", text(obj, "metadata", "name")))


def validate_update(obj: Object, old: Object) -> list[FieldError]:
    """Check that the source of a volume stays; a secret to expand it with may be added."""
    spec, before = mapping(obj, "spec"), mapping(old, "spec")
    required_nodes = mapping(before, "nodeAffinity").get("required")
    any_nodes = isinstance(required_nodes, dict) and any(True for _ in node_selector(required_nodes, ""))
    errors = list(volume_spec(spec, "spec", text(obj, "metadata", "name"), any_nodes=any_nodes))
    sources = [{name: each.get(name) for name in SOURCES} for each in (spec, before)]
    if mapping(before, "csi") and mapping(before, "csi").get("controllerExpandSecretRef") is None:
        sources[0]["csi"] = {**mapping(spec, "csi"), "controllerExpandSecretRef": None}
    if not same(*sources):
        errors.append(forbidden("spec.persistentvolumesource", _SOURCE_TEXT))
    errors += unchanged(spec, before, "", "volumeMode")
    if before.get("nodeAffinity") is not None and not same(spec.get("nodeAffinity"), before["nodeAffinity"]):
        detail = "field is immutable, except for updating from beta label to GA"
        errors.append(invalid("nodeAffinity", spec.get("nodeAffinity"), detail))
    name = "volumeAttributesClassName"
    if before.get(name) is not None and spec.get(name) is None:
        errors.append(forbidden(f"spec.{name}", "update from non-nil value to nil is forbidden"))
    return errors


def volume_spec(spec: Object, at: str, name: str, *, is_inline: bool = False, any_nodes: bool = False) -> Errors:
    """Check the spec of a volume; an inline one is part of an attachment."""
    if not spec.get("accessModes"):
        yield required(f"{at}.accessModes")
    yield from access_modes(spec, at)
    yield from _inline(spec, at) if is_inline else _capacity(spec, at)
    nodes = spec.get("nodeAffinity")
    if isinstance(nodes, dict) and not is_inline:
        if isinstance(nodes.get("required"), dict):
            yield from node_selector(nodes["required"], f"{at}.nodeAffinity.required", any_values=any_nodes)
        else:
            yield required(f"{at}.nodeAffinity.required", "must specify required node constraints")
    yield from _sources(spec, at, name, has_nodes=isinstance(nodes, dict) and not is_inline)
    policy, mode = text(spec, "persistentVolumeReclaimPolicy"), spec.get("volumeMode")
    path = mapping(spec, "hostPath").get("path")
    if policy == "Recycle" and isinstance(path, str) and posixpath.normpath(path) in ("/", "//"):
        detail = "may not be 'recycle' for a hostPath mount of '/'"
        yield forbidden(f"{at}.persistentVolumeReclaimPolicy", detail)
    if is_inline:
        if text(spec, "storageClassName"):
            yield forbidden(f"{at}.storageClassName", _INLINE)
        if mode not in (None, "Filesystem"):
            detail = "may not specify volumeMode other than Filesystem in the context of inline volumes"
            yield forbidden(f"{at}.volumeMode", detail)
        return
    yield from subdomain(spec, at, "storageClassName")
    yield from one_of(spec, at, "volumeMode", VOLUME_MODES)
    if spec.get("volumeAttributesClassName") is not None:
        if spec["volumeAttributesClassName"] == "":
            yield required(f"{at}.volumeAttributesClassName", "an empty string is disallowed")
        yield from subdomain(spec, at, "volumeAttributesClassName")
        if spec.get("csi") is None:
            yield required(f"{at}.csi", "has to be specified when using volumeAttributesClassName")


def _inline(spec: Object, at: str) -> Errors:
    for name in ("claimRef", "capacity", "nodeAffinity"):
        if spec.get(name):
            yield forbidden(f"{at}.{name}", _INLINE)
    if spec.get("csi") is None:
        yield required(f"{at}.csi", "has to be specified in the context of inline volumes")
    if text(spec, "persistentVolumeReclaimPolicy") not in ("", "Retain"):
        yield forbidden(f"{at}.persistentVolumeReclaimPolicy", "may only be Retain in the context of inline volumes")


def _capacity(spec: Object, at: str) -> Errors:
    capacity, field = mapping(spec, "capacity"), f"{at}.capacity"
    if not capacity:
        yield required(field)
    if capacity.keys() != {"storage"}:
        yield not_supported(field, capacity, ("storage",))
    for name, value in capacity.items():
        yield from basic_amount(value, f"{field}[{name}]")
        number = amount_of(value)
        if number is not None and number <= 0:
            yield invalid(f"{field}[{name}]", quantity_text(value), "must be greater than zero")
    policies = ("Delete", "Recycle", "Retain")
    yield from one_of_defaulted(spec, at, "persistentVolumeReclaimPolicy", policies)


def _sources(spec: Object, at: str, owner: str, *, has_nodes: bool) -> Errors:
    found = present(spec, SOURCES)
    if not found:
        yield required(at, "must specify a volume type")
        return
    kind = found[0]
    source, field = mapping(spec, kind), f"{at}.{source_field(kind)}"
    if kind == "csi":
        yield from driver_errors(source, field)
        yield from not_empty(source, field, "volumeHandle")
        for name in _SECRETS:
            if isinstance(source.get(name), dict):
                yield from _secret(source[name], f"{field}.{name}")
    else:
        yield from source_errors(kind, source, field, owner, is_persistent=True)
    if kind == "local" and not has_nodes:
        yield required(f"{at}.nodeAffinity", "Local volume requires node affinity")
    for extra in found[1:]:
        yield forbidden(f"{at}.{second_source_field(extra)}", "may not specify more than 1 volume type")


def _secret(secret: Object, at: str) -> Errors:
    for name in ("name", "namespace"):
        if not text(secret, name):
            yield required(f"{at}.{name}")
    yield from required_subdomain({"name": text(secret, "name") or None}, at, "name")
    yield from required_label({"namespace": text(secret, "namespace") or None}, at, "namespace")
