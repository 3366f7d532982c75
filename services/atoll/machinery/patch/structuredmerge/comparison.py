"""Differences between two objects, as field sets.

`managedfields` calls `compare` to attribute changes and to find conflicts. Invariant: the three sets are disjoint, and
all are empty exactly when no field differs (the order of items in a set or keyed list is not a field).
"""

from __future__ import annotations

from typing import Any

import msgspec

from atoll.machinery.meta.equality import same
from atoll.machinery.meta.objects import Object
from atoll.machinery.patch.fieldset import EMPTY, LEAF, SELF, FieldSet, from_paths, join, union
from atoll.machinery.patch.structuredmerge.fieldset_builder import UNOWNED_METADATA, whole_node
from atoll.machinery.patch.structuredmerge.items import by_element, grouped
from atoll.machinery.patch.structuredmerge.topology import KEYED, MAP, OPEN, SET, Type
from atoll.machinery.process.time_slicing import PART, checkpoint, in_parts

#: Fields that no manager owns: type, identity, and those that the server writes.
UNOWNED_FIELDS = from_paths(
    [("f:apiVersion",), ("f:kind",), ("f:metadata",), *(("f:metadata", f"f:{name}") for name in UNOWNED_METADATA)]
)


class Comparison(msgspec.Struct, frozen=True):
    """Fields only the new object has, fields whose value differs, fields only the old object had."""

    added: FieldSet
    modified: FieldSet
    removed: FieldSet

    @property
    def touched(self) -> FieldSet:
        """The fields that the new object sets differently: added and modified."""
        return union(self.added, self.modified)


NOTHING = Comparison(EMPTY, EMPTY, EMPTY)


def compare(old: Object, new: Object, root: Type) -> Comparison:
    """Compare two objects of one type."""
    return NOTHING if old is new else _maps(_with_structs(old, root), _with_structs(new, root), root)


def compare_owned(old: Object, new: Object, root: Type) -> Comparison:
    """Compare two objects of one type in the fields that a manager can own."""
    return NOTHING if old is new else _maps(_owned(old, root), _owned(new, root), root)


def _owned(obj: Object, root: Type) -> Object:
    """Return the object without UNOWNED_FIELDS, with the struct fields that its kind always has."""
    out = dict(obj)
    out.pop("apiVersion", None)
    out.pop("kind", None)
    metadata = obj.get("metadata") or {}
    if metadata.__class__ is dict:
        # Of an object without labels and the like nothing is left.
        owned = out["metadata"] = {}
        for name in metadata.keys() - UNOWNED_METADATA:
            owned[name] = metadata[name]
    for name in root.structs:
        if out.get(name) is None:
            out[name] = EMPTY
    return out


def _with_structs(obj: Object, root: Type) -> Object:
    """Return the object with the struct fields that its kind always has."""
    absent = [name for name in root.structs if obj.get(name) is None]
    return {**obj, **dict.fromkeys(absent, EMPTY)} if absent else obj


def _maps(old: Object, new: Object, type: Type) -> Comparison:
    checkpoint()
    out = Comparison({}, {}, {})
    for name, value in new.items() if len(new) <= PART else in_parts(new.items()):
        if name not in old:
            out.added["f:" + name] = whole_node(value, type.field(name))
            continue
        before = old[name]
        if before is value:
            continue
        if value.__class__ is str and before.__class__ is str:
            if before != value:
                out.modified["f:" + name] = LEAF
        elif not same(before, value):
            _pair(before, value, type.field(name), "f:" + name, out)
    for name, value in old.items() if len(old) <= PART else in_parts(old.items()):
        if name not in new:
            out.removed["f:" + name] = whole_node(value, type.field(name))
    return out


def _pair(old: Any, new: Any, type: Type | None, element: str, out: Comparison) -> None:
    """Record under `element` how two unequal values of one place differ."""
    inner: Comparison | None = None
    # A null in place of a container is an empty one; two different empty values are a modified leaf.
    if type is not None and (old or new):
        if type.merge in (MAP, OPEN):
            inner = _both(old, new, type, dict, _maps)
        elif type.merge in (SET, KEYED):
            inner = _both(old, new, type, list, _lists)
    if inner is None:
        _replaced(old, new, type, element, out)
        return
    for fields, node in ((out.added, inner.added), (out.modified, inner.modified), (out.removed, inner.removed)):
        if node:
            fields[element] = node


def _replaced(old: Any, new: Any, type: Type | None, element: str, out: Comparison) -> None:
    """Record that one value replaces another. Without a schema, the content of a replaced map is removed with it."""
    if type is None or type.merge != OPEN:
        out.modified[element] = LEAF
        return
    out.modified[element] = whole_node(new, type)
    if below := {name: node for name, node in whole_node(old, type).items() if name != SELF}:
        out.removed[element] = below


def _both(old: Any, new: Any, type: Type, kind: Any, walk: Any) -> Comparison | None:
    if (old is None or isinstance(old, kind)) and (new is None or isinstance(new, kind)):
        inner: Comparison | None = walk(old or kind(), new or kind(), type)
        return inner
    return None


def _lists(old: list[Any], new: list[Any], type: Type) -> Comparison | None:
    checkpoint()
    before, after = by_element(old, type), by_element(new, type)
    if before is None or after is None:
        return _repeating_lists(old, new, type)
    out = Comparison({}, {}, {})
    for element, item in after.items():
        if element not in before:
            out.added[element] = join(True, whole_node(item, type.element))
        elif not same(before[element], item):
            _pair(before[element], item, type.element, element, out)
    for element, item in before.items():
        if element not in after:
            out.removed[element] = join(True, whole_node(item, type.element))
    return out


def _repeating_lists(old: list[Any], new: list[Any], type: Type) -> Comparison | None:
    """Compare lists with duplicate items; None where an item has no path element."""
    before, after = grouped(old, type), grouped(new, type)
    if before is None or after is None:
        return None
    out = Comparison({}, {}, {})
    for element, items in after.items():
        old_items = before.get(element)
        if old_items is None:
            out.added[element] = _item_node(items, type)
        elif not same(old_items, items):
            if len(old_items) == len(items) == 1:
                _pair(old_items[0], items[0], type.element, element, out)
            else:
                out.modified[element] = LEAF
    for element, items in before.items():
        if element not in after:
            out.removed[element] = _item_node(items, type)
    return out


def _item_node(items: list[Any], type: Type) -> FieldSet:
    return join(True, whole_node(items[0], type.element)) if len(items) == 1 else LEAF
