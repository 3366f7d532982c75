"""Correlation of old and new objects for ratcheting validation.

`validation` passes an OldValue along: errors in an unchanged part are not reported, so that an object that a tightened
schema made invalid can still be changed elsewhere. Maps and structs correlate by key, lists of type map by their keys,
other lists only as a whole.
"""

from __future__ import annotations

from typing import Any, Final

from atoll.machinery.meta.equality import same
from atoll.machinery.schema.structural.node import Node

_ABSENT: Final = object()


class OldValue:
    """The old value at one place, or NO_OLD_VALUE where none correlates."""

    __slots__ = ("_is_root", "_value")

    def __init__(self, value: Any, *, is_root: bool = False) -> None:
        self._value = value
        self._is_root = is_root

    def is_same(self, value: Any) -> bool:
        """Whether the value did not change."""
        return self._value is not _ABSENT and same(self._value, value)

    def key(self, node: Node, key: str) -> OldValue:
        """Return the old value at a key. The root's apiVersion and kind never correlate."""
        old = self._value
        if type(old) is not dict or key not in old or (self._is_root and key in ("apiVersion", "kind")):
            return NO_OLD_VALUE
        return OldValue(old[key]) if node.child(key) is not None else NO_OLD_VALUE

    def index(self, node: Node, item: Any) -> OldValue:
        """Return the old item with the same keys, in a list of type map."""
        old = self._value
        if type(old) is not list or node.list_type != "map" or type(item) is not dict:
            return NO_OLD_VALUE
        if not all(key in item for key in node.map_keys):
            return NO_OLD_VALUE
        for each in old:
            if type(each) is dict and _same_keys(node, each, item):
                return OldValue(each)
        return NO_OLD_VALUE


def _same_keys(node: Node, left: dict[str, Any], right: dict[str, Any]) -> bool:
    return all(same(left.get(key, _ABSENT), right[key]) for key in node.map_keys)


NO_OLD_VALUE: Final = OldValue(_ABSENT)
