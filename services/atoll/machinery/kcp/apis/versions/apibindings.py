"""APIBindings in both versions: their claims in spec and in status differ.

`convert` calls these functions.
"""

from __future__ import annotations

from typing import NamedTuple

from atoll.machinery.kcp.apis.versions import annotations as notes
from atoll.machinery.kcp.apis.versions import claims
from atoll.machinery.kcp.apis.versions.annotations import mapping, objects
from atoll.machinery.meta.objects import Object


class _Claims(NamedTuple):
    """One list of claims: its field, its annotations in each version, and whether its claims have selectors."""

    part: str
    field: str
    on_v1alpha1: str
    on_v1alpha2: str
    scoped: bool


_LISTS = (
    _Claims("spec", "permissionClaims", notes.ACCEPTABLE_CLAIMS, notes.OLD_CLAIMS, True),
    _Claims("status", "exportPermissionClaims", notes.EXPORT_CLAIMS, notes.OLD_EXPORT_CLAIMS, False),
    _Claims("status", "appliedPermissionClaims", notes.APPLIED_CLAIMS, notes.OLD_APPLIED_CLAIMS, True),
)


def to_v1alpha1(obj: Object) -> Object:
    """Convert an APIBinding from v1alpha2."""
    found, added = dict(obj), {}
    for each in _LISTS:
        recorded = notes.read(obj, each.on_v1alpha2)
        older = claims.to_v1alpha1(_claims_at(obj, each), recorded, scoped=each.scoped)
        _put(found, each, older.claims)
        added[each.on_v1alpha1] = older.kept
    found["metadata"] = notes.annotated(obj, (*notes.ON_V1ALPHA1, *notes.ON_V1ALPHA2), added)
    return found


def to_v1alpha2(obj: Object) -> Object:
    """Convert an APIBinding from v1alpha1."""
    found, added = dict(obj), {}
    for each in _LISTS:
        kept = notes.read(obj, each.on_v1alpha1)
        newer = claims.to_v1alpha2(_claims_at(obj, each), kept, scoped=each.scoped)
        _put(found, each, newer.claims)
        added[each.on_v1alpha2] = newer.kept
    found["metadata"] = notes.annotated(obj, notes.ON_V1ALPHA1, added)
    return found


def _claims_at(obj: Object, where: _Claims) -> list[Object]:
    return objects(mapping(obj.get(where.part)).get(where.field))


def _put(obj: Object, where: _Claims, converted: list[Object]) -> None:
    part = mapping(obj.get(where.part))
    if isinstance(part.get(where.field), list):
        obj[where.part] = {**part, where.field: converted}


def keep_status_annotations(obj: Object, old: Object) -> None:
    """Set, in place, the annotations of an APIBinding of v1alpha1 that belong to its status, as they are in `old`.

    Controllers own status, and clients replace annotations: a write of the spec must not remove them.
    """
    metadata = obj.get("metadata")
    given = mapping(metadata).get("annotations")
    if not isinstance(metadata, dict) or not isinstance(given, dict | None):
        return
    before = mapping(mapping(old.get("metadata")).get("annotations"))
    keys = (notes.EXPORT_CLAIMS, notes.APPLIED_CLAIMS)
    kept = {key: value for key, value in (given or {}).items() if key not in keys}
    kept.update({key: before[key] for key in keys if key in before})
    if kept or given:
        metadata["annotations"] = kept
