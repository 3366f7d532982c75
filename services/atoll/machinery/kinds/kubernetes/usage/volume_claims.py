"""What a PersistentVolumeClaim uses: itself and its storage, in all and of its class."""

from __future__ import annotations

from decimal import ROUND_CEILING

import msgspec

from atoll.machinery.kinds.kubernetes.usage.charge import Amount, Charge, Quantities, totals

STORAGE, CLAIMS = "requests.storage", "persistentvolumeclaims"
COUNTS: dict[str, Amount] = {f"count/{CLAIMS}": 1, CLAIMS: 1}
NAMES = frozenset({STORAGE})
#: Of a class: its name, this, and one of both names.
OF_CLASS = ".storageclass.storage.k8s.io/"
SCOPE = "VolumeAttributesClass"


class _Annotations(msgspec.Struct, frozen=True, gc=False):
    storage_class: str | None = msgspec.field(default=None, name="volume.beta.kubernetes.io/storage-class")


class _Metadata(msgspec.Struct, frozen=True, gc=False):
    annotations: _Annotations | None = None


class _Resources(msgspec.Struct, frozen=True, gc=False):
    requests: Quantities | None = None


class _Spec(msgspec.Struct, frozen=True, gc=False):
    resources: _Resources | None = None
    storageClassName: str | None = None
    volumeAttributesClassName: str | None = None


class _Modification(msgspec.Struct, frozen=True, gc=False):
    targetVolumeAttributesClassName: str | None = None


class _Status(msgspec.Struct, frozen=True, gc=False):
    allocatedResources: Quantities | None = None
    currentVolumeAttributesClassName: str | None = None
    modifyVolumeStatus: _Modification | None = None


class _VolumeClaim(msgspec.Struct, frozen=True, gc=False):
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()
    status: _Status | None = None


_volume_claim = msgspec.json.Decoder(_VolumeClaim).decode


def charge(value: bytes) -> Charge:
    try:
        claim = _volume_claim(value)
    except msgspec.DecodeError:
        return Charge(COUNTS)
    status = claim.status or _Status()
    amounts: dict[str, Amount] = dict(COUNTS)
    requests = totals(claim.spec.resources.requests if claim.spec.resources is not None else None)
    if "storage" in requests:
        # A claim that could not be shrunk again still has what was allocated. Bytes are whole.
        most = max(requests["storage"], totals(status.allocatedResources).get("storage", requests["storage"]))
        amounts[STORAGE] = most.to_integral_value(ROUND_CEILING)
    if of_class := _storage_class(claim):
        amounts |= {f"{of_class}{OF_CLASS}{name}": amounts[name] for name in (CLAIMS, STORAGE) if name in amounts}
    changed = status.modifyVolumeStatus or _Modification()
    named = (
        claim.spec.volumeAttributesClassName,
        status.currentVolumeAttributesClassName,
        changed.targetVolumeAttributesClassName,
    )
    classes = tuple(sorted({name for name in named if name}))
    return Charge(amounts, {SCOPE: classes or None}, claim.spec)


def _storage_class(claim: _VolumeClaim) -> str:
    """Return the class of a claim: by the annotation from before the field, which counts first."""
    annotations = claim.metadata.annotations
    if annotations is not None and annotations.storage_class is not None:
        return annotations.storage_class
    return claim.spec.storageClassName or ""
