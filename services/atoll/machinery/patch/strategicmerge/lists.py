"""Lists of a strategic merge patch: matching by merge key, sets of primitives, element order.

`merge` calls it for every list. Invariant: the order is that of Kubernetes, where new items of the patch precede the
items that only the server has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.patch.errors import PatchDoesNotApply, UndecodablePatch
from atoll.machinery.patch.strategicmerge.paired_types import PatchType
from atoll.machinery.patch.strategicmerge.values import PATCH, replacement

MergeMap: TypeAlias = Callable[[Object, Object, PatchType | None], Object]


def list_of(value: Any, error: str) -> list[Any]:
    """Return the value if it is a list. Raises UndecodablePatch with this text otherwise."""
    if not isinstance(value, list):
        raise UndecodablePatch(error)
    return value


def delete_primitives(old: list[Any], values: list[Any]) -> list[Any]:
    """Return the list without these values."""
    deleted = {encode_json(value) for value in values}
    return [item for item in old if encode_json(item) not in deleted]


def merge_list(old: list[Any], patch: list[Any], type: PatchType | None, name: str, merge_map: MergeMap) -> list[Any]:
    """Merge a list as its schema declares; return the list of the patch where it does not merge."""
    if type is None or not type.patch_merges:
        replaced: list[Any] = replacement(patch, type)
        return replaced
    if not any(isinstance(item, dict) for item in (*old, *patch)):
        return _merge_primitives(old, patch)
    if not type.patch_key:
        raise PatchDoesNotApply(f"cannot merge lists without merge key for {name}")
    return _merge_items(old, patch, type, merge_map)


def _merge_primitives(old: list[Any], patch: list[Any]) -> list[Any]:
    merged: dict[bytes, Any] = {}
    for item in (*old, *patch):
        merged.setdefault(encode_json(item), item)
    return _weave(list(merged.values()), patch, old, "")


def _merge_items(old: list[Any], patch: list[Any], type: PatchType, merge_map: MergeMap) -> list[Any]:
    key = type.patch_key
    changes = _list_patch(patch, key)
    if changes.is_replacement:
        return [replacement(item, type.element) for item in changes.items]
    merged: dict[bytes, Any] = {}
    for item in old:
        identity = _identity(item, key)
        if identity not in changes.deleted:
            merged[identity] = item
    for item in changes.items:
        identity = _identity(item, key)
        existing = merged.get(identity)
        if existing is None:
            merged[identity] = replacement(item, type.element)
        else:
            merged[identity] = merge_map(existing, item, type.element)
    return _weave(list(merged.values()), changes.items, old, key)


class _ListPatch(NamedTuple):
    """A list of a patch: items to merge, identities to delete, and whether the list replaces the old one."""

    items: list[Any]
    deleted: set[bytes]
    is_replacement: bool


def _list_patch(patch: list[Any], key: str) -> _ListPatch:
    items: list[Any] = []
    deleted: set[bytes] = set()
    is_replacement = False
    for item in patch:
        directive = item.get(PATCH) if isinstance(item, dict) else None
        if directive == "delete":
            deleted.add(_identity(item, key))
        elif directive == "replace":
            is_replacement = True
        elif directive is None:
            items.append(item)
        else:
            raise UndecodablePatch(f"unknown patch type found: {directive!r}")
    return _ListPatch(items, deleted, is_replacement)


def _identity(item: Any, key: str) -> bytes:
    """Return the identity of an item: the value of its merge key, or the whole primitive if `key` is empty."""
    if not key:
        return encode_json(item)
    if not isinstance(item, dict) or item.get(key) is None:
        raise PatchDoesNotApply(f"{encode_json(item).decode()} does not contain declared merge key: {key}")
    return encode_json(item[key])


def ordered(merged: list[Any], order: list[Any], patch: list[Any], old: list[Any], key: str) -> list[Any]:
    """Sort a merged list by `$setElementOrder`, whose entries carry the merge key or are primitives.

    Raises PatchDoesNotApply when the patch's own items do not follow that order.
    """
    expected = iter([_identity(item, key) for item in order])
    for item in patch:
        is_absent = isinstance(item, dict) and item.get(PATCH) in ("delete", "replace")
        # Membership consumes the iterator, so each item must follow the one before it.
        if not is_absent and _identity(item, key) not in expected:
            raise PatchDoesNotApply("the order in patch list doesn't match $setElementOrder list")
    return _weave(merged, order, old, key)


def _weave(merged: list[Any], order: list[Any], old: list[Any], key: str) -> list[Any]:
    """Return the items of `order` in that order, interleaved with the others in the order of the server."""
    rank = {_identity(item, key): index for index, item in reversed(list(enumerate(order)))}
    place = {_identity(item, key): index for index, item in reversed(list(enumerate(old)))}
    pairs = [(_identity(item, key), item) for item in merged]
    first = sorted((pair for pair in pairs if pair[0] in rank), key=lambda pair: rank[pair[0]])
    others = sorted((pair for pair in pairs if pair[0] not in rank), key=lambda pair: place.get(pair[0], 0))
    out: list[Any] = []
    at = 0
    for identity, item in first:
        # An item of the server precedes an ordered one only if it did so before.
        while at < len(others) and place.get(others[at][0], len(old)) < place.get(identity, -1):
            out.append(others[at][1])
            at += 1
        out.append(item)
    out.extend(item for _, item in others[at:])
    return out
