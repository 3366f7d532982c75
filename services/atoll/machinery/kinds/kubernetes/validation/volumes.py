"""Volumes of pods. Those without an error are what containers may mount."""

from __future__ import annotations

from atoll.machinery.kinds.checks import invalid_values, mapping, objects, text
from atoll.machinery.kinds.kubernetes.validation.claims import template_errors
from atoll.machinery.kinds.kubernetes.validation.projected import keys, own_files, projected
from atoll.machinery.kinds.kubernetes.validation.rules import (
    Errors,
    amount_of,
    needed,
    one_of_defaulted,
    present,
    required_label,
    subdomain,
)
from atoll.machinery.kinds.kubernetes.validation.volume_sources import (
    driver_errors,
    second_source_field,
    source_errors,
    source_field,
)
from atoll.machinery.meta.labels import dns_subdomain_errors
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import duplicate, forbidden, required

PULL_POLICIES = ("Always", "IfNotPresent", "Never")
#: In the order in which Kubernetes looks for them.
_SOURCES = (
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
)


def volumes(
    spec: Object, at: str, pod: str | None, *, any_token_path: bool = False
) -> tuple[dict[str, Object], list[FieldError]]:
    """Return the usable volumes of a spec by name, and all errors; `pod` is the name of a pod, None in a template."""
    usable, errors = dict[str, Object](), list[FieldError]()
    for index, volume in objects(spec, "volumes"):
        field, name = f"{at}.volumes[{index}]", text(volume, "name")
        found = list(_volume(volume, field, name, pod, any_token_path))
        found += required_label(volume, field, "name")
        if name in usable:
            found.append(duplicate(f"{field}.name", name))
        if found or not name:
            errors += found
        else:
            usable[name] = volume
    return usable, errors


def _volume(volume: Object, at: str, name: str, pod: str | None, any_token_path: bool) -> Errors:
    found = present(volume, _SOURCES)
    if not found:
        yield required(at, "must specify a volume type")
        return
    kind = found[0]
    source, field = mapping(volume, kind), f"{at}.{source_field(kind)}"
    match kind:
        case "emptyDir":
            if (amount_of(source.get("sizeLimit")) or 0) < 0:
                yield forbidden(f"{field}.sizeLimit", "SizeLimit field must be a valid resource quantity")
        case "projected":
            yield from projected(source, field, any_token_path=any_token_path)
        case "downwardAPI":
            yield from own_files(source, field)
        case "csi":
            yield from _csi(source, field)
        case "ephemeral":
            yield from _ephemeral(source, field, name, pod)
        case "image":
            if pod is not None:
                yield from needed(source, field, "reference")
            yield from one_of_defaulted(source, field, "pullPolicy", PULL_POLICIES)
        case _:
            yield from source_errors(kind, source, field, name)
    if kind in ("secret", "configMap"):
        yield from keys(source, field)
    for extra in found[1:]:
        yield forbidden(f"{at}.{second_source_field(extra)}", "may not specify more than 1 volume type")


def _csi(source: Object, at: str) -> Errors:
    yield from driver_errors(source, at)
    secret = source.get("nodePublishSecretRef")
    if isinstance(secret, dict):
        if not text(secret, "name"):
            yield required(f"{at}.nodePublishSecretRef.name")
        # Kubernetes names the field without its parent.
        yield from subdomain(secret, at, "name")


def _ephemeral(source: Object, at: str, name: str, pod: str | None) -> Errors:
    template = source.get("volumeClaimTemplate")
    if isinstance(template, dict):
        yield from template_errors(template, f"{at}.volumeClaimTemplate")
    else:
        yield required(f"{at}.volumeClaimTemplate")
    if pod and name:
        claim = f"{pod}-{name}"
        details = [f'PVC name "{claim}": {problem}' for problem in dns_subdomain_errors(claim)]
        yield from invalid_values(f"{at.rpartition('.')[0]}.name", name, details)


def claim_volume(name: str) -> Object:
    """Return the volume that a StatefulSet adds for a claim."""
    return {"name": name, "persistentVolumeClaim": {"claimName": name}}
