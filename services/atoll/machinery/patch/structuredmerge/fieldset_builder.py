"""Field sets of values: the fields that an applied patch sets, and those that a new subtree adds.

`managedfields` calls `typed_set` and `to_set` with patches and objects and `created_set` with new objects; `comparison`
calls `whole_node` with added and removed subtrees. Invariant: every place is reached through its Type, so a leaf in one
function is a leaf in all.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from atoll.machinery.meta.objects import Object
from atoll.machinery.patch.fieldset import LEAF, SELF, FieldSet, join, without_self
from atoll.machinery.patch.structuredmerge.items import by_element, elements_of, grouped
from atoll.machinery.patch.structuredmerge.topology import KEYED, MAP, OPEN, SET, Type
from atoll.machinery.patch.structuredmerge.validation import validation_errors
from atoll.machinery.process.time_slicing import PART, checkpoint, in_parts

#: Fields of metadata that no manager owns: the server's own, and the object's identity.
UNOWNED_METADATA = frozenset(
    {
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    }
)


#: No tuple, which is compared type by type for each scalar.
_CONTAINERS = frozenset((dict, list))
#: Fields of an object whose node is shared with others of the same fields.
_FEW = 8


class SchemaMismatch(Exception):
    """A value does not fit its schema; `validation.typed_patch_error` says why."""


def to_set(value: Object, type: Type) -> FieldSet:
    """Return the fields that a value sets, as apply owns them: leaves, list items, map entries, empty containers.

    A struct or list with content is not a member itself, so that several appliers can share it; an empty list that
    merges has no member at all, as in Kubernetes. A value that does not fit its schema is a leaf.
    """
    return _set_node(value, type, False) or {}


def typed_set(value: Object, type: Type) -> FieldSet:
    """Return `to_set` of a value that fits its schema in every place. Raises SchemaMismatch for any other."""
    return _set_node(value, type, True) or {}


def _set_node(value: Any, type: Type, is_strict: bool, is_member: bool = False) -> FieldSet | None:
    """Return the node of one place, None without members. `is_member`: the place itself is a member too."""
    merge = type.merge
    if merge in (MAP, OPEN):
        if value and value.__class__ is dict:
            return _set_fields(value, type, is_strict, is_member)
    elif merge in (KEYED, SET) and value.__class__ is list:
        if not value:
            return None
        items = _set_items(value, type, is_strict)
        if items is not None:
            return join(is_member, items)
    if is_strict and value is not None and value.__class__ is not type.plain and validation_errors(value, type):
        raise SchemaMismatch
    return LEAF


def _set_fields(value: Object, type: Type, is_strict: bool, is_member: bool) -> FieldSet | None:
    checkpoint()
    out: FieldSet = {SELF: LEAF} if is_member else {}
    known = type.declared_fields.get
    for name, child in value.items() if len(value) <= PART else in_parts(value.items()):
        element, field, plain, is_declared = known(name) or type.field_info(name)
        if child.__class__ is plain:
            out[element] = LEAF
        elif field is None:
            if is_strict:
                raise SchemaMismatch
            out[element] = LEAF
        elif is_declared:
            node = _set_node(child, field, is_strict)
            if node is not None:
                out[element] = node
        else:
            # An entry of a map is a member itself; a declared field is one only through its content.
            out[element] = _set_node(child, field, is_strict, True) or LEAF
    return out if len(out) > is_member else None


def _set_items(value: list[Any], type: Type, is_strict: bool) -> FieldSet | None:
    """Return the node of a non-empty list; None where an item has no path element."""
    items, element = by_element(value, type), type.element
    checkpoint()
    if items is not None:
        return {key: _set_node(item, element, is_strict, True) or LEAF for key, item in items.items()}
    if is_strict:
        raise SchemaMismatch
    groups = grouped(value, type)
    if groups is None:
        return None
    return {
        key: _set_node(items[0], element, False, True) or LEAF if len(items) == 1 else LEAF
        for key, items in groups.items()
    }


def whole_node(value: Any, type: Type | None) -> FieldSet:
    """Return the node of a subtree that is added or removed as a whole: every container is a member too."""
    if type is None or not value:
        return LEAF
    if type.merge in (MAP, OPEN):
        if value.__class__ is dict:
            if len(value) <= _FEW:
                for child in value.values():
                    if child and child.__class__ in _CONTAINERS:
                        break
                else:
                    return _node_of_scalars(tuple(value))
            return _whole_fields(value, type)
    elif type.merge in (SET, KEYED) and value.__class__ is list:
        elements = elements_of(value, type)
        if elements is not None:
            return _whole_items(value, elements, type.element)
    return LEAF


@lru_cache(maxsize=1024)
def _node_of_scalars(names: tuple[str, ...]) -> FieldSet:
    """Return the node of an object of scalars. Objects repeat their fields, in lists above all."""
    return {SELF: LEAF, **{"f:" + name: LEAF for name in names}}


def _whole_fields(value: Object, type: Type) -> FieldSet:
    checkpoint()
    out: FieldSet = {SELF: LEAF}
    known = type.declared_fields.get
    for name, child in value.items() if len(value) <= PART else in_parts(value.items()):
        # Most values are scalars; they need no call.
        if child and child.__class__ in _CONTAINERS:
            element, field, _, _ = known(name) or type.field_info(name)
            out[element] = whole_node(child, field)
        else:
            out["f:" + name] = LEAF
    return out


def _whole_items(value: list[Any], elements: list[str], type: Type) -> FieldSet:
    """Return the node of a list by the path elements of its items; an item that is there twice is a leaf."""
    node: FieldSet = {SELF: LEAF}
    pairs = zip(elements, value, strict=True)
    for element, item in pairs if len(value) <= PART else in_parts([*pairs]):
        node[element] = LEAF if element in node else whole_node(item, type)
    return node


def created_set(obj: Object, root: Type) -> FieldSet:
    """Return the fields that the creator of an object owns: all but its identity and the server's own."""
    out: FieldSet = {}
    for name, value in obj.items():
        if name == "metadata":
            if not value.keys() <= UNOWNED_METADATA:
                owned = {key: child for key, child in value.items() if key not in UNOWNED_METADATA}
                out["f:metadata"] = without_self(whole_node(owned, root.field(name)))
        elif name in root.structs and isinstance(value, dict):
            if node := without_self(whole_node(value, root.field(name))):
                out["f:" + name] = node
        elif name not in {"apiVersion", "kind"}:
            out["f:" + name] = whole_node(value, root.field(name))
    return out
