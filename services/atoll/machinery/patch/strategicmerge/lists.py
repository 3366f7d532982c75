"""Lists in a strategic merge patch: matching by merge key, sets of primitives, element order.

strategic calls it for every list it meets. Invariant: the order is Kubernetes' own, where items of the patch
that the server does not know yet come before those that only the server has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.patch.errors import PatchDoesNotApply, UndecodablePatch
from atoll.machinery.patch.strategicmerge.values import PATCH, raw
from atoll.machinery.patch.structuredmerge.topology import Type

MergeMap: TypeAlias = Callable[[Object, Object, Type | None], Object]


def list_of(value: Any, complaint: str) -> list[Any]:
    """The value if it is a list, else UndecodablePatch with that text."""
    if not isinstance(value, list):
        raise UndecodablePatch(complaint)
    return value


def delete_primitives(old: list[Any], values: list[Any]) -> list[Any]:
    """The list without these values."""
    gone = {encode_json(value) for value in values}
    return [item for item in old if encode_json(item) not in gone]


def merge_list(old: list[Any], patch: list[Any], type: Type | None, name: str, merge_map: MergeMap) -> list[Any]:
    """Merge a list as its schema says, or take the patch's where it does not merge."""
    if type is None or not type.patch_merges:
        replaced: list[Any] = raw(patch, type)
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
    return _arranged(list(merged.values()), patch, old, "")


def _merge_items(old: list[Any], patch: list[Any], type: Type, merge_map: MergeMap) -> list[Any]:
    key = type.patch_key
    normal, deleted, is_replacement = _sorted_out(patch, key)
    if is_replacement:
        return [raw(item, type.element) for item in normal]
    merged: dict[bytes, Any] = {}
    for item in old:
        identity = _identity(item, key)
        if identity not in deleted:
            merged[identity] = item
    for item in normal:
        identity = _identity(item, key)
        known = merged.get(identity)
        if known is None:
            merged[identity] = raw(item, type.element)
        else:
            merged[identity] = merge_map(known, item, type.element)
    return _arranged(list(merged.values()), normal, old, key)


def _sorted_out(patch: list[Any], key: str) -> tuple[list[Any], set[bytes], bool]:
    """Items to merge, identities to delete, and whether an item says that the list replaces the old one."""
    normal: list[Any] = []
    deleted: set[bytes] = set()
    is_replacement = False
    for item in patch:
        directive = item.get(PATCH) if isinstance(item, dict) else None
        if directive == "delete":
            deleted.add(_identity(item, key))
        elif directive == "replace":
            is_replacement = True
        elif directive is None:
            normal.append(item)
        else:
            raise UndecodablePatch(f"unknown patch type found: {directive!r}")
    return normal, deleted, is_replacement


def _identity(item: Any, key: str) -> bytes:
    """What tells an item from the others: its merge key's value, or the whole of a primitive (no key)."""
    if not key:
        return encode_json(item)
    if not isinstance(item, dict) or item.get(key) is None:
        raise PatchDoesNotApply(f"{encode_json(item).decode()} does not contain declared merge key: {key}")
    return encode_json(item[key])


def ordered(merged: list[Any], order: list[Any], patch: list[Any], old: list[Any], key: str) -> list[Any]:
    """A merged list in the order of `$setElementOrder`, whose entries carry the merge key or are primitives.

    PatchDoesNotApply when the patch's own items do not follow the order it asks for.
    """
    wanted = [_identity(item, key) for item in order]
    asked = iter(wanted)
    for item in patch:
        is_absent = isinstance(item, dict) and item.get(PATCH) in ("delete", "replace")
        # Membership consumes the iterator, so each item must come after the one before it.
        if not is_absent and _identity(item, key) not in asked:
            raise PatchDoesNotApply("the order in patch list doesn't match $setElementOrder list")
    return _arranged(merged, order, old, key)


def _arranged(merged: list[Any], order: list[Any], old: list[Any], key: str) -> list[Any]:
    """Items named by `order` in that order, woven with the others in the order the server had them."""
    rank = {_identity(item, key): index for index, item in reversed(list(enumerate(order)))}
    place = {_identity(item, key): index for index, item in reversed(list(enumerate(old)))}
    pairs = [(_identity(item, key), item) for item in merged]
    first = sorted((pair for pair in pairs if pair[0] in rank), key=lambda pair: rank[pair[0]])
    others = sorted((pair for pair in pairs if pair[0] not in rank), key=lambda pair: place.get(pair[0], 0))
    out: list[Any] = []
    at = 0
    for identity, item in first:
        # A server's item goes first only before a known one that stood behind it.
        while at < len(others) and place.get(others[at][0], len(old)) < place.get(identity, -1):
            out.append(others[at][1])
            at += 1
        out.append(item)
    out.extend(item for _, item in others[at:])
    return out
