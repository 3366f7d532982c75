"""Strategic merge patch: merge patch for kinds of Kubernetes' groups, whose schemas declare how lists merge.

The PATCH handler calls `strategic_merge` with the object in the request's version; the result goes on to defaulting
and validation. `lists` merges lists. Invariants: inputs are not modified, untouched parts are shared with the result,
and no directive reaches the result.
"""

from __future__ import annotations

from typing import Any

from atoll.machinery.meta.objects import Object
from atoll.machinery.patch.errors import UndecodablePatch
from atoll.machinery.patch.strategicmerge.lists import delete_primitives, list_of, merge_list, ordered
from atoll.machinery.patch.strategicmerge.paired_types import PairedSchema, PatchType
from atoll.machinery.patch.strategicmerge.values import DROPPED, PATCH, addition, is_directive, replacement
from atoll.machinery.patch.structuredmerge.topology import TypeSchema

RETAIN_KEYS = "$retainKeys"
_DELETE_PRIMITIVES = "$deleteFromPrimitiveList/"
_SET_ORDER = "$setElementOrder/"


def strategic_merge(document: Object, patch: object, schema: TypeSchema | PairedSchema) -> Object:
    """Merge the patch into the document by the patch strategies of its schema.

    Raises UndecodablePatch for unknown or malformed directives, PatchDoesNotApply for items without their merge key or
    out of the order that the patch itself requires.
    """
    if not isinstance(patch, dict):
        raise UndecodablePatch("error decoding patch: a strategic merge patch must be a JSON object")
    try:
        return merge_map(document, patch, schema.root)
    except RecursionError:
        raise UndecodablePatch("error decoding patch: exceeded max depth") from None


def merge_map(original: Object, patch: Object, type: PatchType | None) -> Object:
    """Merge one map. `type` is None where the schema declares nothing: maps merge, lists are replaced."""
    directive = patch.get(PATCH)
    if directive == "replace":
        replaced: Object = replacement(patch, type)
        return replaced
    if directive == "delete":
        return {}
    if directive is not None:
        raise UndecodablePatch(f"unknown patch type found: {directive!r}")
    out = dict(original)
    _retain_keys(out, patch)
    _check_directives(patch, type)
    for name, value in _directives(patch, _DELETE_PRIMITIVES):
        _delete_primitives(out, name, value)
    for name, value in patch.items():
        if not is_directive(name, type):
            _merge_field(out, name, value, type)
    for name, order in _directives(patch, _SET_ORDER):
        _set_order(out, name, order, patch, original, type)
    return out


def _merge_field(out: Object, name: str, value: Any, type: PatchType | None) -> None:
    """Set, merge or delete one field of `out`, in place."""
    field = type.field(name) if type is not None else None
    old = out.get(name)
    if value is None:
        out.pop(name, None)
    elif isinstance(value, dict) and isinstance(old, dict):
        replaces = field is not None and field.patch_replaces
        out[name] = replacement(value, field) if replaces else merge_map(old, value, field)
    elif isinstance(value, list) and isinstance(old, list):
        out[name] = merge_list(old, value, field, name, merge_map)
    elif (added := addition(value, field)) is not DROPPED:
        out[name] = added
    else:
        out.pop(name, None)


def _directives(patch: Object, prefix: str) -> list[tuple[str, Any]]:
    """Return field name and value of each directive with this prefix."""
    return [(name.removeprefix(prefix), value) for name, value in patch.items() if name.startswith(prefix)]


def _retain_keys(out: Object, patch: Object) -> None:
    """Drop the fields of `out` that `$retainKeys` does not list."""
    keep = patch.get(RETAIN_KEYS)
    if keep is None:
        return
    if not isinstance(keep, list) or not all(isinstance(name, str) for name in keep):
        raise UndecodablePatch("invalid patch format of retainKeys")
    if any(name not in keep for name, value in patch.items() if value is not None and name[:1] != "$"):
        raise UndecodablePatch("invalid patch format of retainKeys")
    for name in list(out):
        if name not in keep:
            del out[name]


def _check_directives(patch: Object, type: PatchType | None) -> None:
    for name in patch:
        known = name in (PATCH, RETAIN_KEYS) or name.startswith((_DELETE_PRIMITIVES, _SET_ORDER))
        if not known and is_directive(name, type):
            raise UndecodablePatch(f"unknown directive in strategic merge patch: {name}")


def _delete_primitives(out: Object, name: str, values: Any) -> None:
    values = list_of(values, "invalid patch format of primitive list")
    old = out.get(name)
    if isinstance(old, list):
        out[name] = delete_primitives(old, values)


def _set_order(out: Object, name: str, order: Any, patch: Object, original: Object, type: PatchType | None) -> None:
    """Sort a merged list into the order of its `$setElementOrder`."""
    order = list_of(order, "invalid patch format of setElementOrder list")
    merged, sent, old = out.get(name), patch.get(name), original.get(name)
    field = type.field(name) if type is not None else None
    if not isinstance(merged, list) or (field is not None and not field.patch_merges):
        return
    key = field.patch_key if field is not None else ""
    out[name] = ordered(merged, order, sent or [], old if isinstance(old, list) else [], key)
