"""Merging an applied patch over the live object, and taking fields out again.

apply calls `merge` and prune `remove_items`; clients that build apply configurations use `extract_items`.
Invariant: inputs are not modified, and a value that stays as it was is returned as the same object.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from atoll.machinery.meta.objects import Object
from atoll.machinery.patch.equality import same
from atoll.machinery.patch.fieldset import FieldSet, is_member
from atoll.machinery.patch.structuredmerge.items import elements_of
from atoll.machinery.patch.structuredmerge.topology import KEYED, MAP, OPEN, SET, Type

_GRANULAR = (MAP, OPEN, SET, KEYED)


def merge(live: Any, patch: Any, type: Type) -> Any:
    """The live value with the patch laid over it. Leaves are replaced, items are matched by identity."""
    if same(live, patch):
        return live
    if isinstance(live, dict) and isinstance(patch, dict) and type.merge in (MAP, OPEN):
        return _merge_maps(live, patch, type)
    if isinstance(live, list) and isinstance(patch, list) and type.merge in (SET, KEYED):
        return _merge_lists(live, patch, type)
    # Null says nothing about what others put in a container; over an empty one, or a scalar, it is a change like any.
    return live if patch is None and live and live.__class__ in (dict, list) and type.merge in _GRANULAR else patch


def _merge_maps(live: Object, patch: Object, type: Type) -> Object:
    out = live
    for name, value in patch.items():
        if name in live:
            old = live[name]
            field = type.field(name)
            merged = value if field is None else merge(old, value, field)
            if merged is old:
                continue
        else:
            merged = value
        if out is live:
            out = dict(live)
        out[name] = merged
    return out


def _merge_lists(live: list[Any], patch: list[Any], type: Type) -> Any:
    mine, theirs = elements_of(live, type), elements_of(patch, type)
    if mine is None or theirs is None:
        return patch
    if mine == theirs and len(set(mine)) == len(mine):
        item_type = type.element
        out = [merge(old, new, item_type) for old, new in zip(live, patch, strict=True)]
    else:
        out = _merge_items(live, patch, mine, theirs, type)
    unchanged = len(out) == len(live) and all(a is b for a, b in zip(out, live, strict=True))
    return live if unchanged else out


def _merge_items(live: list[Any], patch: list[Any], mine: list[str], theirs: list[str], type: Type) -> list[Any]:
    known = _unique(mine, live)
    merged: dict[str, Any] = {}
    for element, item in zip(theirs, patch, strict=True):
        merged[element] = merge(known[element], item, type.element) if element in known else item
    return [merged[element] if index < 0 else live[index] for element, index in _order(mine, list(merged), merged)]


def _unique(elements: list[str], items: list[Any]) -> dict[str, Any]:
    """Items by element, without those that stand in the list more than once: none can tell them apart."""
    counts = Counter(elements)
    return {element: item for element, item in zip(elements, items, strict=True) if counts[element] == 1}


def _order(mine: list[str], theirs: list[str], patched: dict[str, Any]) -> list[tuple[str, int]]:
    """The order of the merged list, as (element, index in live or -1 for the patched item).

    The patch decides the order of its own items; the others stay before the shared item they stood before.
    """
    live = set(mine)
    shared = [element for element in theirs if element in live]
    out: list[tuple[str, int]] = []
    at, waiting = 0, 0
    for index, element in enumerate(mine):
        if element not in patched:
            out.append((element, index))
        elif waiting < len(shared) and element == shared[waiting]:
            # The next item both have: whatever the patch wants before it goes out first.
            while theirs[at] != element:
                out.append((theirs[at], -1))
                at += 1
            out.append((element, -1))
            at += 1
            waiting += 1
    out.extend((element, -1) for element in theirs[at:])
    return out


def remove_items(value: Any, fields: FieldSet, type: Type) -> Any:
    """The value without the members of the set and all beneath them.

    Atomic values stay whole; a container that loses all it held, but is no member itself, stays empty.
    """
    if not fields:
        return value
    if isinstance(value, dict) and type.merge in (MAP, OPEN):
        return _remove_fields(value, fields, type)
    if isinstance(value, list) and type.merge in (SET, KEYED):
        return _remove_list_items(value, fields, type)
    return value


def _remove_fields(value: Object, fields: FieldSet, type: Type) -> Object:
    out: Object = {}
    for name, child in value.items():
        node = fields.get("f:" + name)
        if node is None:
            out[name] = child
            continue
        if is_member(node):
            continue
        field = type.field(name)
        out[name] = child if field is None else remove_items(child, node, field)
    return out


def _remove_list_items(value: list[Any], fields: FieldSet, type: Type) -> list[Any]:
    elements = elements_of(value, type)
    if elements is None:
        return value
    out = []
    for element, item in zip(elements, value, strict=True):
        node = fields.get(element)
        if node is None:
            out.append(item)
        elif not is_member(node):
            out.append(remove_items(item, node, type.element))
    return out


def extract_items(value: Any, fields: FieldSet, type: Type) -> Any:
    """Only what the set names, with the key fields of the list items on the way. Atomic values come whole."""
    if isinstance(value, dict) and type.merge in (MAP, OPEN):
        return _extract_fields(value, fields, type)
    if isinstance(value, list) and type.merge in (SET, KEYED):
        return _extract_list_items(value, fields, type)
    return value


def _extract_fields(value: Object, fields: FieldSet, type: Type) -> Object:
    out: Object = {}
    for name, child in value.items():
        node, field = fields.get("f:" + name), type.field(name)
        if node is not None:
            out[name] = child if field is None else extract_items(child, node, field)
    return out


def _extract_list_items(value: list[Any], fields: FieldSet, type: Type) -> list[Any]:
    out = []
    for element, item in zip(elements_of(value, type) or (), value, strict=False):
        node = fields.get(element)
        if node is None:
            continue
        if isinstance(item, dict):
            keys = {name: item[name] for name in type.keys if name in item}
            out.append({**keys, **extract_items(item, node, type.element)})
        else:
            out.append(item)
    return out
