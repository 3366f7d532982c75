"""Duplicate items of lists that are sets or maps.

`structural_schema` calls it for whole objects, apart from other validation, because ratcheting differs: duplicates are
reported only if the old object had none.
"""

from __future__ import annotations

from typing import Any

from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import duplicate, invalid
from atoll.machinery.schema.structural.fast_validation import duplicate_items
from atoll.machinery.schema.structural.node import Node


def duplicate_errors(node: Node, value: Any) -> list[FieldError]:
    """Return one error for each duplicate item of a set or duplicate key of a map, at its second occurrence."""
    errors: list[FieldError] = []
    _walk(node, value, "", errors)
    return errors


def _walk(node: Node, value: Any, path: str, errors: list[FieldError]) -> None:
    if type(value) is list:
        if node.unique:
            errors.extend(_list_duplicate_errors(node, value, path))
        if node.items is not None:
            for index, item in enumerate(value):
                _walk(node.items, item, f"{path}[{index}]", errors)
    elif type(value) is dict:
        for key, item in value.items():
            child = node.child(key)
            if child is not None and (type(item) is dict or type(item) is list):
                below = f".{key}" if key in node.properties else f"[{key}]"
                _walk(child, item, (path + below).removeprefix("."), errors)


def _list_duplicate_errors(node: Node, value: list[Any], path: str) -> list[FieldError]:
    if node.list_type == "map":
        for index, item in enumerate(value):
            if item is not None and type(item) is not dict:
                return [invalid(f"{path}[{index}]", item, "must be an object for an array of list-type map")]
    return [duplicate(f"{path}[{index}]", identity) for index, identity in duplicate_items(node, value)]
