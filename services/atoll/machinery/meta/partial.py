"""Partial decodes of stored objects: only the fields that a struct declares are built, the others are skipped.

Look-ups, filters, controllers and replication use the structs and functions, or inherit from the structs for a further
field. Invariant: an absent field has its default; the functions raise msgspec.DecodeError for what is not an object's
JSON, of which the store has none.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

M = TypeVar("M")


class Partial(msgspec.Struct, Generic[M], frozen=True, gc=False):
    """An object, reduced to metadata of type M."""

    metadata: M


class ObjectName(msgspec.Struct, frozen=True, gc=False):
    """Metadata, reduced to the name."""

    name: str = ""
    namespace: str = ""


class ObjectIdentity(ObjectName, frozen=True, gc=False):
    """Metadata, reduced to name and uid."""

    uid: str = ""


class Labels(msgspec.Struct, frozen=True, gc=False):
    """Metadata, reduced to the labels."""

    labels: dict[str, str] | None = None


class Annotations(msgspec.Struct, frozen=True, gc=False):
    """Metadata, reduced to the annotations."""

    annotations: dict[str, str] = {}


class SomeAnnotations(msgspec.Struct, Generic[M], frozen=True, gc=False):
    """Metadata, reduced to the annotations that M declares."""

    annotations: M | None = None


class Phase(msgspec.Struct, frozen=True, gc=False):
    """Status, reduced to the phase."""

    phase: str = ""


class _Finalizers(msgspec.Struct, frozen=True, gc=False):
    finalizers: tuple[str, ...] | None = None


class _Phased(msgspec.Struct, frozen=True, gc=False):
    status: Phase = Phase()


_name = msgspec.json.Decoder(Partial[ObjectName]).decode
_identity = msgspec.json.Decoder(Partial[ObjectIdentity]).decode
_labels = msgspec.json.Decoder(Partial[Labels]).decode
_finalizers = msgspec.json.Decoder(Partial[_Finalizers]).decode
_phase = msgspec.json.Decoder(_Phased).decode


def name(value: bytes) -> ObjectName:
    """Return name and namespace of an object."""
    return _name(value).metadata


def identity(value: bytes) -> ObjectIdentity:
    """Return name, namespace and uid of an object."""
    return _identity(value).metadata


def labels(value: bytes) -> dict[str, str]:
    """Return the labels of an object."""
    return _labels(value).metadata.labels or {}


def finalizers(value: bytes) -> tuple[str, ...]:
    """Return the finalizers of an object."""
    return _finalizers(value).metadata.finalizers or ()


def phase(value: bytes) -> str:
    """Return the phase in the status of an object; empty without one."""
    return _phase(value).status.phase
