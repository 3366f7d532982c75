"""Defaulting: setting missing fields to the defaults of a schema.

`structural_schema` calls it on roots, after pruning. As in Kubernetes, a default also replaces a null that the schema
does not allow. `is_normal` tells for most objects that neither would change anything, in one walk.
"""

from __future__ import annotations

from typing import Any

from atoll.machinery.process.time_slicing import PART, checkpoint, in_parts
from atoll.machinery.schema.structural.node import Node
from atoll.machinery.schema.structural.object_meta import META_FIELDS
from atoll.machinery.schema.structural.pruning import structure_of


def may_lack_defaults(root: Node) -> bool:
    """Whether an object without nulls may lack a default: those of metadata replace nulls alone."""
    below = [*root.properties.values(), *root.unions]
    if root.additional is not None:
        below.append(root.additional)
    return bool(root.default_properties) or any(child.has_defaults_below for child in below)


def default(node: Node, value: Any) -> None:
    """Set missing keys, and nulls that are not allowed, to the defaults of the schema, top down, in place."""
    if type(value) is dict:
        _default_object(structure_of(node) if node.unions else node, value)
    elif type(value) is list and node.items is not None:
        items = node.items
        if items.has_default and not items.nullable and None in value:
            value[:] = [items.default() if item is None else item for item in value]
        if items.has_defaults_below:
            checkpoint()
            # Most variables of a container have a value, and no source with defaults.
            has_more = bool(items.default_properties or items.unions or items.additional or items.meta or items.items)
            below = items.properties_with_defaults.keys()
            for item in value if len(value) <= PART else in_parts(value):
                if has_more or type(item) is not dict or not below.isdisjoint(item):
                    default(items, item)


def _default_object(node: Node, value: dict[str, Any]) -> None:
    for key, child in node.default_properties:
        if key not in value or (value[key] is None and not child.nullable):
            value[key] = child.default()
    properties, additional = node.properties, node.additional
    if additional is not None and additional.has_default and not additional.nullable:
        for key in [key for key, item in value.items() if item is None and key not in properties]:
            value[key] = additional.default()
    below = node.properties_with_defaults
    if additional is not None and additional.has_defaults_below:
        for key, item in value.items():
            if key not in properties:
                default(additional, item)
    for key in below if len(below) < len(value) else value:
        if key in below and key in value:
            child, item = below[key], value[key]
            if type(item) is dict and not child.unions:
                _default_object(child, item)
            else:
                default(child, item)
    meta = node.meta
    if meta is not None and type(value.get("metadata")) is dict:
        default(meta, value["metadata"])


def is_normal(node: Node, value: dict[str, Any]) -> bool:
    """Whether pruning and defaulting would leave an object as it is; False too for an object with a null.

    A null may stay, be dropped or be replaced: the walks that change the object decide.
    """
    meta = node.meta
    if node.unions:
        if meta is not None:
            return False
        node = structure_of(node)
    for key, _ in node.default_properties:
        if key not in value:
            return False
    get, additional = node.properties.get, node.additional
    for key, item in value.items() if len(value) <= PART else in_parts(value.items()):
        kind = type(item)
        if item is None:
            return False
        if meta is not None and key in META_FIELDS:
            if kind is not str and (key != "metadata" or kind is not dict or not _is_normal_metadata(node, meta, item)):
                return False
            continue
        child = get(key, additional)
        if child is None:
            if not node.open:
                return False
        elif kind is dict:
            if not is_normal(child, item):
                return False
        elif kind is list and not _has_normal_items(child, item):
            return False
    return True


def _is_normal_metadata(node: Node, meta: Node, value: dict[str, Any]) -> bool:
    """Whether metadata stays as it is; that a definition says something of its names changes nothing."""
    declared = node.properties.get("metadata")
    return (declared is None or not (declared.has_default or declared.has_defaults_below)) and is_normal(meta, value)


def is_normal_value(node: Node, value: Any) -> bool:
    """`is_normal` of any value."""
    if type(value) is dict:
        return is_normal(node, value)
    return type(value) is not list or _has_normal_items(node, value)


def _has_normal_items(node: Node, value: list[Any]) -> bool:
    items = node.prune_items_by
    if items is None:
        return node.items is None
    for item in value if len(value) <= PART else in_parts(value):
        kind = type(item)
        if item is None:
            return False
        if kind is dict:
            if not is_normal(items, item):
                return False
        elif kind is list and not _has_normal_items(items, item):
            return False
    return True
