"""Which finalizer holds which kind of storage, and which objects use which. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType

from atoll.machinery.kinds.checks import objects, text
from atoll.machinery.meta.objects import Object

CLAIMS, VOLUMES = ("", "persistentvolumeclaims"), ("", "persistentvolumes")
CLASSES, PODS = ("storage.k8s.io", "volumeattributesclasses"), ("", "pods")
#: By group and plural.
FINALIZERS = MappingProxyType(
    {
        CLAIMS: "kubernetes.io/pvc-protection",
        VOLUMES: "kubernetes.io/pv-protection",
        CLASSES: "kubernetes.io/vac-protection",
    }
)


def claims_of(pod: Object) -> Iterator[str]:
    """Yield the names of the claims that a Pod mounts, those that are made for it included."""
    for _, volume in objects(pod, "spec", "volumes"):
        if name := text(volume, "persistentVolumeClaim", "claimName"):
            yield name
        elif isinstance(volume.get("ephemeral"), dict):
            yield f"{pod['metadata']['name']}-{text(volume, 'name')}"


def is_running(pod: Object) -> bool:
    """Whether a Pod is on a node and has not ended: others are never started with a claim under deletion."""
    return bool(text(pod, "spec", "nodeName")) and text(pod, "status", "phase") not in ("Succeeded", "Failed")


def classes_of(obj: Object) -> Iterator[str]:
    """Yield the names of the VolumeAttributesClasses that a claim or a volume has, or is getting."""
    for path in (
        ("spec", "volumeAttributesClassName"),
        ("status", "currentVolumeAttributesClassName"),
        ("status", "modifyVolumeStatus", "targetVolumeAttributesClassName"),
    ):
        if name := text(obj, *path):
            yield name
