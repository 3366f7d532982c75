"""From values to field sets: what an applied patch owns, and what a new subtree adds.

apply calls `to_set` with a patch, compare and update call `whole_node` with what appeared. Invariant: each
place is reached through its Type, so a leaf in one function is a leaf in all.
"""

from __future__ import annotations

from typing import Any

from atoll.machinery.meta.objects import Object
from atoll.machinery.patch.fieldset import LEAF, SELF, FieldSet, join
from atoll.machinery.patch.items import grouped
from atoll.machinery.patch.topology import KEYED, MAP, OPEN, SET, Type

#: Fields of metadata that no manager owns: the server's own, and the object's identity.
UNOWNED_METADATA = frozenset(
    {"name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation",
     "managedFields", "resourceVersion"}
)  # fmt: skip


def to_set(value: Object, type: Type) -> FieldSet:
    """The fields a value sets, as apply owns them: leaves, list items, map entries, and empty containers.

    A struct or a list that holds something is not owned itself, so several appliers can share it; an empty
    list that merges is not owned at all, as in Kubernetes.
    """
    return _set_node(value, type) or {}


def _set_node(value: Any, type: Type) -> FieldSet | None:
    """The node of one place; None where nothing in it is owned."""
    merge = type.merge
    if not value:
        return None if isinstance(value, list) and merge in (SET, KEYED) else LEAF
    if isinstance(value, dict) and merge in (MAP, OPEN):
        return _set_fields(value, type)
    if isinstance(value, list) and merge in (SET, KEYED):
        groups = grouped(value, type)
        if groups is not None:
            return {
                element: join(True, _set_node(items[0], type.element) or LEAF) if len(items) == 1 else LEAF
                for element, items in groups.items()
            }
    return LEAF


def _set_fields(value: Object, type: Type) -> FieldSet | None:
    out: FieldSet = {}
    for name, child in value.items():
        field = type.field(name)
        node = LEAF if field is None else _set_node(child, field)
        if not type.declares(name):
            out["f:" + name] = join(True, node or LEAF)
        elif node is not None:
            out["f:" + name] = node
    return out or None


def whole_node(value: Any, type: Type | None) -> FieldSet:
    """The node of a subtree that appears or disappears as a whole: every container belongs to it too."""
    if type is None or not value:
        return LEAF
    merge = type.merge
    if merge in (MAP, OPEN):
        if isinstance(value, dict):
            out: FieldSet = {SELF: LEAF}
            for name, child in value.items():
                # Scalars are most of what there is; no call for them.
                if isinstance(child, str):
                    out["f:" + name] = LEAF
                else:
                    out["f:" + name] = whole_node(child, type.field(name))
            return out
    elif merge in (SET, KEYED) and isinstance(value, list):
        groups = grouped(value, type)
        if groups is not None:
            node: FieldSet = {SELF: LEAF}
            for element, items in groups.items():
                node[element] = join(True, whole_node(items[0], type.element)) if len(items) == 1 else LEAF
            return node
    return LEAF


def created_set(obj: Object, root: Type) -> FieldSet:
    """What the creator of an object owns: all of it but identity and what the server writes."""
    out: FieldSet = {}
    for name, value in obj.items():
        if name == "metadata":
            owned = {key: child for key, child in value.items() if key not in UNOWNED_METADATA}
            if owned:
                node = whole_node(owned, root.field(name))
                out["f:metadata"] = {element: child for element, child in node.items() if element != SELF}
        elif name not in {"apiVersion", "kind"}:
            out["f:" + name] = whole_node(value, root.field(name))
    return out
