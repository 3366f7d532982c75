"""Merge an applied patch over the live object, and remove fields from an object.

`managedfields.apply` calls `merge`, `managedfields.pruning` calls `remove_items`. Invariant: inputs are not modified,
and an unchanged value is returned as the same object.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from atoll.machinery.meta.equality import same
from atoll.machinery.meta.objects import Object
from atoll.machinery.patch.fieldset import FieldSet, is_member
from atoll.machinery.patch.structuredmerge.items import elements_of
from atoll.machinery.patch.structuredmerge.topology import KEYED, MAP, OPEN, SET, Type
from atoll.machinery.process.time_slicing import checkpoint

_GRANULAR = (MAP, OPEN, SET, KEYED)


def merge(live: Any, patch: Any, type: Type) -> Any:
    """Merge the patch over the live value. Leaves are replaced, list items are matched by path element."""
    checkpoint()
    if same(live, patch):
        return live
    if isinstance(live, dict) and isinstance(patch, dict) and type.merge in (MAP, OPEN):
        return _merge_maps(live, patch, type)
    if isinstance(live, list) and isinstance(patch, list) and type.merge in (SET, KEYED):
        return _merge_lists(live, patch, type)
    # Null does not change a container with content, which others may own; it replaces an empty one or a scalar.
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
    live_elements, patch_elements = elements_of(live, type), elements_of(patch, type)
    if live_elements is None or patch_elements is None:
        return patch
    if live_elements == patch_elements and len(set(live_elements)) == len(live_elements):
        item_type = type.element
        out = [merge(old, new, item_type) for old, new in zip(live, patch, strict=True)]
    else:
        live_items = _unique(live_elements, live)
        patched = {
            element: merge(live_items[element], item, type.element) if element in live_items else item
            for element, item in zip(patch_elements, patch, strict=True)
        }
        out = _interleave(live, live_elements, patched)
    unchanged = len(out) == len(live) and all(a is b for a, b in zip(out, live, strict=True))
    return live if unchanged else out


def _unique(elements: list[str], items: list[Any]) -> dict[str, Any]:
    """Return items by element, without duplicates: a patch cannot address one of them."""
    counts = Counter(elements)
    return {element: item for element, item in zip(elements, items, strict=True) if counts[element] == 1}


def _interleave(live: list[Any], live_elements: list[str], patched: dict[str, Any]) -> list[Any]:
    """Combine the items of the live list with the patched items, which replace those of the same element.

    The order of `patched` decides among its items; any other item stays before the shared item that followed it.
    """
    order = list(patched)
    live_set = set(live_elements)
    shared = [element for element in order if element in live_set]
    out: list[Any] = []
    position, next_shared = 0, 0
    checkpoint()
    for element, item in zip(live_elements, live, strict=True):
        if element not in patched:
            out.append(item)
        elif next_shared < len(shared) and element == shared[next_shared]:
            # Items that the patch lists before the shared item precede it.
            end = order.index(element, position) + 1
            out.extend(patched[name] for name in order[position:end])
            position = end
            next_shared += 1
    out.extend(patched[name] for name in order[position:])
    return out


def remove_items(value: Any, fields: FieldSet, type: Type) -> Any:
    """Return the value without the members of the set and their descendants.

    Atomic values stay whole; a container that loses all its content, but is not a member itself, stays empty.
    """
    if not fields:
        return value
    if isinstance(value, dict) and type.merge in (MAP, OPEN):
        return _remove_fields(value, fields, type)
    if isinstance(value, list) and type.merge in (SET, KEYED):
        return _remove_list_items(value, fields, type)
    return value


def _remove_fields(value: Object, fields: FieldSet, type: Type) -> Object:
    checkpoint()
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
    checkpoint()
    out = []
    for element, item in zip(elements, value, strict=True):
        node = fields.get(element)
        if node is None:
            out.append(item)
        elif not is_member(node):
            out.append(remove_items(item, node, type.element))
    return out
