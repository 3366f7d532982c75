"""Cells of storage's kinds: volumes and claims, classes, drivers."""

from __future__ import annotations

from atoll.machinery.kinds.checks import items, mapping, objects, strings, text
from atoll.machinery.kinds.kubernetes.cells.common import NONE, UNSET, Accessor, count, is_deleting
from atoll.machinery.meta.objects import Object

_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
#: What named the class of a volume before it had a field.
_OLD_CLASS = "volume.beta.kubernetes.io/storage-class"


def _modes(found: list[str]) -> str:
    return ",".join(short for mode, short in _MODES.items() if mode in found)


def _access_modes(obj: Object, now_s: float) -> object:
    return _modes(strings(obj, "spec", "accessModes"))


def _claim_access_modes(obj: Object, now_s: float) -> object:
    return _modes(strings(obj, "status", "accessModes")) if text(obj, "spec", "volumeName") else ""


def _claim_capacity(obj: Object, now_s: float) -> object:
    if not text(obj, "spec", "volumeName"):
        return ""
    return str(mapping(obj, "status", "capacity").get("storage", "0"))


def _volume_claim(obj: Object, now_s: float) -> object:
    claim = mapping(obj, "spec").get("claimRef")
    return f"{text(claim, 'namespace')}/{text(claim, 'name')}" if isinstance(claim, dict) else ""


def _storage_class(obj: Object, now_s: float) -> object:
    return text(obj, "metadata", "annotations", _OLD_CLASS) or text(obj, "spec", "storageClassName")


def _token_audiences(obj: Object, now_s: float) -> object:
    if "tokenRequests" not in mapping(obj, "spec"):
        return UNSET
    return ",".join(text(each, "audience") for _, each in objects(obj, "spec", "tokenRequests"))


def _lifecycle_modes(obj: Object, now_s: float) -> object:
    return ",".join(strings(obj, "spec", "volumeLifecycleModes")) or NONE


def _claim_state(obj: Object, now_s: float) -> object:
    """Return the state of a claim of devices."""
    states = ["deleted"] if is_deleting(obj) else []
    if "allocation" in mapping(obj, "status"):
        states += ["allocated", *(["reserved"] if items(obj, "status", "reservedFor") else [])]
    elif not states:
        states = ["pending"]
    return ",".join(states)


ACCESSORS: dict[str, Accessor] = {
    "access_modes": _access_modes,
    "claim_access_modes": _claim_access_modes,
    "claim_capacity": _claim_capacity,
    "claim_state": _claim_state,
    "drivers": count("spec", "drivers"),
    "lifecycle_modes": _lifecycle_modes,
    "storage_class": _storage_class,
    "token_audiences": _token_audiences,
    "volume_claim": _volume_claim,
}
