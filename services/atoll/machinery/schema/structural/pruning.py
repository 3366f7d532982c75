"""Pruning: dropping the fields that a schema does not declare, or listing them.

`structural_schema` calls these on roots; a write prunes before it defaults. As in Kubernetes, undeclared keys are
dropped unless an ancestor preserves them, and a null is dropped where it is neither allowed nor has a default.
"""

from __future__ import annotations

from typing import Any

from atoll.machinery.process.time_slicing import checkpoint
from atoll.machinery.schema.structural.node import Node
from atoll.machinery.schema.structural.object_meta import META_FIELDS


def prune(node: Node, value: Any) -> None:
    """Drop, in place, undeclared fields, and nulls that are neither allowed nor have a default."""
    kind = type(value)
    if kind is dict:
        if node.meta is None:
            _prune_object(structure_of(node) if node.unions else node, value, value)
        else:
            _prune_embedded(node, node.meta, value)
    elif kind is list and node.prune_items_by is not None:
        items = node.prune_items_by
        for item in value:
            if type(item) is dict or type(item) is list:
                checkpoint()
                prune(items, item)


def _prune_object(node: Node, value: dict[str, Any], checked: dict[str, Any]) -> None:
    """Prune the keys of value that are in `checked`, which holds all or some of its items."""
    dropped: list[str] | None = None
    get, additional = node.properties.get, node.additional
    for key, item in checked.items():
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
        if dropped is None:
            dropped = []
        dropped.append(key)
    if dropped is not None:
        for key in dropped:
            del value[key]


def _prune_embedded(node: Node, meta: Node, value: dict[str, Any]) -> None:
    """Prune an object with apiVersion, kind and metadata, which stay whether declared or not."""
    _prune_object(node, value, {key: item for key, item in value.items() if key not in META_FIELDS})
    _prune_meta(meta, value)


def _prune_meta(meta: Node, value: dict[str, Any]) -> None:
    metadata = value.get("metadata")
    if metadata is not None:
        prune(meta, metadata)
    elif "metadata" in value:
        # Go decodes null to an empty ObjectMeta and encodes that.
        value["metadata"] = {}


def structure_of(node: Node) -> Node:
    """Return the node that declares the keys of an object: the struct among the alternatives of a union."""
    return next((each for each in node.unions if each.properties), node)


def is_clean(node: Node, value: Any) -> bool:
    """Whether no field is unknown; the fast equivalent of an empty `collect_unknown`."""
    kind = type(value)
    if kind is dict:
        return _is_clean_object(node, value)
    if kind is list and node.prune_items_by is not None:
        items = node.prune_items_by
        for item in value:
            checkpoint()
            if (type(item) is dict or type(item) is list) and not is_clean(items, item):
                return False
    return True


def _is_clean_object(node: Node, value: dict[str, Any]) -> bool:
    if node.unions:
        node = structure_of(node)
    get, additional, meta = node.properties.get, node.additional, node.meta
    for key, item in value.items():
        child = get(key, additional)
        if meta is not None and key in META_FIELDS:
            if key == "metadata" and type(item) is dict and not _is_clean_object(meta, item):
                return False
        elif child is None:
            if not node.open:
                return False
        elif type(item) is dict:
            if not _is_clean_object(child, item):
                return False
        elif type(item) is list and not is_clean(child, item):
            return False
    return True


def collect_unknown(node: Node, value: Any, path: str, paths: list[str]) -> None:
    """Append the paths of unknown keys in document order; the value of an unknown key is not searched."""
    checkpoint()
    if type(value) is list and node.prune_items_by is not None:
        for index, item in enumerate(value):
            collect_unknown(node.prune_items_by, item, f"{path}[{index}]", paths)
        return
    if type(value) is not dict:
        return
    node = structure_of(node) if node.unions else node
    for key, item in value.items():
        below = f"{path}.{key}" if path else key
        child: Node | None
        if node.meta is not None and key in META_FIELDS:
            child = node.meta if key == "metadata" else None
        else:
            child = node.properties.get(key, node.additional)
            if child is None and not node.open:
                paths.append(below)
        if child is not None:
            collect_unknown(child, item, below, paths)
