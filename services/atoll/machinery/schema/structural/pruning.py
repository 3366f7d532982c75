"""Pruning, defaulting, and telling what would be pruned: the walks that change an object, or would.

`structural` calls these on roots. Order on a write is prune, then default. Semantics are those of Kubernetes:
unknown keys go unless something above preserves them; a null goes where null is not allowed and no default stands;
where a default stands it takes the null's place.
"""

from __future__ import annotations

from typing import Any

from atoll.machinery.schema.structural.node import Node
from atoll.machinery.schema.structural.object_meta import META_FIELDS


def prune(node: Node, value: Any) -> None:
    """Drop, in place, what the schema does not know and nulls that it does not allow and cannot default."""
    kind = type(value)
    if kind is dict:
        if node.meta is None:
            _prune_object(_structure(node) if node.unions else node, value, value)
        else:
            _prune_embedded(node, node.meta, value)
    elif kind is list and node.prune_items_by is not None:
        items = node.prune_items_by
        for item in value:
            if type(item) is dict or type(item) is list:
                prune(items, item)


def _prune_object(node: Node, value: dict[str, Any], judged: dict[str, Any]) -> None:
    """Prune value by the keys in `judged`, which are all or some of its own."""
    doomed: list[str] | None = None
    get, additional = node.properties.get, node.additional
    for key, item in judged.items():
        child = get(key, additional)
        if child is None:
            if node.open:
                continue
        elif item is None:
            if child.nullable or child.has_default:
                continue
        else:
            kind = type(item)
            if kind is not str and (kind is dict or kind is list):
                prune(child, item)
            continue
        if doomed is None:
            doomed = []
        doomed.append(key)
    if doomed is not None:
        for key in doomed:
            del value[key]


def _prune_embedded(node: Node, meta: Node, value: dict[str, Any]) -> None:
    """An object with apiVersion, kind and metadata, which stay whatever the properties say."""
    _prune_object(node, value, {key: item for key, item in value.items() if key not in META_FIELDS})
    _prune_meta(meta, value)


def _prune_meta(meta: Node, value: dict[str, Any]) -> None:
    metadata = value.get("metadata")
    if metadata is not None:
        prune(meta, metadata)
    elif "metadata" in value:
        # Go decodes null to a zero ObjectMeta, and writes that.
        value["metadata"] = {}


def _structure(node: Node) -> Node:
    """The node that says which keys an object has: the schema among the alternatives of a union."""
    return next((each for each in node.unions if each.properties), node)


def is_clean(node: Node, value: Any) -> bool:
    """Whether nothing is unknown; the fast way to an empty `unknown` list."""
    kind = type(value)
    if kind is dict:
        return _is_clean_object(_structure(node) if node.unions else node, value)
    if kind is list and node.prune_items_by is not None:
        items = node.prune_items_by
        for item in value:
            if (type(item) is dict or type(item) is list) and not is_clean(items, item):
                return False
    return True


def _is_clean_object(node: Node, value: dict[str, Any]) -> bool:
    get, additional, meta = node.properties.get, node.additional, node.meta
    for key, item in value.items():
        child = get(key, additional)
        if meta is not None and key in META_FIELDS:
            if key == "metadata" and not is_clean(meta, item):
                return False
        elif child is None:
            if not node.open:
                return False
        elif type(item) is not str and (type(item) is dict or type(item) is list) and not is_clean(child, item):
            return False
    return True


def unknown(node: Node, value: Any, path: str, found: list[str]) -> None:
    """Append the paths of unknown keys in document order; nothing below an unknown key is looked at."""
    if type(value) is list and node.prune_items_by is not None:
        for index, item in enumerate(value):
            unknown(node.prune_items_by, item, f"{path}[{index}]", found)
        return
    if type(value) is not dict:
        return
    node = _structure(node) if node.unions else node
    for key, item in value.items():
        below = f"{path}.{key}" if path else key
        child: Node | None
        if node.meta is not None and key in META_FIELDS:
            child = node.meta if key == "metadata" else None
        else:
            child = node.properties.get(key, node.additional)
            if child is None and not node.open:
                found.append(below)
        if child is not None:
            unknown(child, item, below, found)


def default(node: Node, value: Any) -> None:
    """Fill missing keys, and nulls that are not allowed, from the schema's defaults, from the top down, in place."""
    if type(value) is dict:
        _default_object(_structure(node) if node.unions else node, value)
    elif type(value) is list and node.items is not None:
        items = node.items
        if items.has_default and not items.nullable and None in value:
            value[:] = [items.default() if item is None else item for item in value]
        if items.has_defaults_below:
            for item in value:
                default(items, item)


def _default_object(node: Node, value: dict[str, Any]) -> None:
    for key, child in node.default_properties:
        if key not in value or (value[key] is None and not child.nullable):
            value[key] = child.default()
    properties, additional = node.properties, node.additional
    if additional is not None and additional.has_default and not additional.nullable:
        for key in [key for key, item in value.items() if item is None and key not in properties]:
            value[key] = additional.default()
    for key, item in value.items():
        if type(item) is dict or type(item) is list:
            below = properties.get(key, additional)
            if below is not None and below.has_defaults_below:
                default(below, item)
    meta = node.meta
    if meta is not None and type(value.get("metadata")) is dict:
        default(meta, value["metadata"])
