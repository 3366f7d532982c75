"""ownerReferences as the garbage collector reads them, from decoded objects and from stored JSON.

Invariant: of a stored object only the references are decoded, and nothing where it has none.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from atoll.machinery.meta import rawscan
from atoll.machinery.meta.objects import Object, owner_references_of
from atoll.machinery.meta.partial import Partial

_OWNED = rawscan.member("ownerReferences")


class Reference(msgspec.Struct, frozen=True):
    """One ownerReference."""

    apiVersion: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    blockOwnerDeletion: bool | None = None


class _Owned(msgspec.Struct, frozen=True, gc=False):
    ownerReferences: tuple[Reference, ...] | None = None


_decode = msgspec.json.Decoder(Partial[_Owned]).decode


def references(obj: Object) -> list[Reference]:
    """Return the ownerReferences of an object."""
    return [msgspec.convert(each, Reference) for each in owner_references_of(obj)]


def stored_references(value: bytes) -> tuple[Reference, ...]:
    """Return the ownerReferences in an object's JSON; empty for an empty value."""
    return (_decode(value).metadata.ownerReferences or ()) if _OWNED in value else ()


def blocking(found: Iterable[Reference]) -> dict[str, Reference]:
    """Return the references that a foreground deletion of their owner waits for, by uid."""
    return {reference.uid: reference for reference in found if reference.blockOwnerDeletion}


def without_owners(obj: Object, uids: set[str]) -> Object:
    """Return an object without the references to these uids."""
    metadata = dict(obj["metadata"])
    left = [each for each in owner_references_of(obj) if each.get("uid") not in uids]
    if left:
        metadata["ownerReferences"] = left
    else:
        metadata.pop("ownerReferences", None)
    return {**obj, "metadata": metadata}


def without_blocking(obj: Object) -> Object:
    """Return an object whose references block the deletion of no owner."""
    kept = [
        {**each, "blockOwnerDeletion": False} if each.get("blockOwnerDeletion") else each
        for each in owner_references_of(obj)
    ]
    return {**obj, "metadata": {**obj["metadata"], "ownerReferences": kept}}
