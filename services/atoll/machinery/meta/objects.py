"""Kubernetes objects as open JSON, and the one way they become stored bytes.

Stored bytes are what a GET or a LIST sends: compact JSON, keys sorted at every level, and a hole of 16
digits where `metadata.resourceVersion` stands. Verb handlers encode; the store's writer fills the hole.
"""

from __future__ import annotations

import secrets
from typing import Any

import msgspec

#: Open JSON. The only alias through which `Any` enters the code.
Object = dict[str, Any]

HOLE_SIZE = 16
_HOLE_LEAD = b'"resourceVersion":"'
# Random for each process and secret, so that no client can write the same digits into an object.
_TOKEN = "".join(secrets.choice("0123456789") for _ in range(HOLE_SIZE))
_MARK = _HOLE_LEAD + _TOKEN.encode() + b'"'
_ZEROES = b"0" * HOLE_SIZE

_encoder = msgspec.json.Encoder(order="sorted")


def encode(obj: Object) -> tuple[bytes, int]:
    """Encode an object for the store.

    Returns the bytes and the offset of the first of the 16 zero digits of its resourceVersion. The value
    that `metadata.resourceVersion` had is ignored; obj itself is left unchanged.
    """
    metadata = obj["metadata"]
    data = _encoder.encode({**obj, "metadata": {**metadata, "resourceVersion": _TOKEN}})
    hole = data.index(_MARK) + len(_HOLE_LEAD)
    return data[:hole] + _ZEROES + data[hole + HOLE_SIZE :], hole


def encode_json(value: Any) -> bytes:
    """Encode any JSON value with sorted keys."""
    return _encoder.encode(value)


def splice(data: bytes, hole: int, revision: int) -> bytes:
    """Fill the hole at offset `hole` with a revision (0 gives the zeroed form that checksums cover)."""
    return data[:hole] + b"%016d" % revision + data[hole + HOLE_SIZE :]


def fresh(obj: Object) -> Object:
    """Return a deep copy, except for `metadata.managedFields`: it is large and never modified in place."""
    metadata = obj["metadata"]
    entries = metadata.get("managedFields")
    if not entries:
        return _copied(obj)
    copy = _copied({**obj, "metadata": {name: value for name, value in metadata.items() if name != "managedFields"}})
    copy["metadata"]["managedFields"] = entries
    return copy


def _copied(obj: Object) -> Object:
    copy: Object = msgspec.to_builtins(obj)
    return copy


def decode(data: bytes) -> Object:
    """Decode stored bytes. They were valid when stored, so an error is a defect of the store."""
    value: Object = msgspec.json.decode(data)
    return value


# --- Optional fields: an absent or null one reads as a new empty value, which is not part of the object ----


def spec_of(obj: Object) -> Object:
    """Return `spec`."""
    return obj.get("spec") or {}


def status_of(obj: Object) -> Object:
    """Return `status`."""
    return obj.get("status") or {}


def conditions_of(obj: Object) -> list[Object]:
    """Return `status.conditions`."""
    return (obj.get("status") or {}).get("conditions") or []


def labels_of(obj: Object) -> dict[str, str]:
    """Return `metadata.labels`."""
    return obj["metadata"].get("labels") or {}


def annotations_of(obj: Object) -> dict[str, str]:
    """Return `metadata.annotations`."""
    return obj["metadata"].get("annotations") or {}


def finalizers_of(obj: Object) -> list[str]:
    """Return `metadata.finalizers`."""
    return obj["metadata"].get("finalizers") or []


def owner_references_of(obj: Object) -> list[Object]:
    """Return `metadata.ownerReferences`."""
    return obj["metadata"].get("ownerReferences") or []
