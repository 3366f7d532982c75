"""Identity of list items: which path element an item of a set or keyed list has.

typed, compare, merge and check all go through here, so that an item is the same item to each of them.
"""

from __future__ import annotations

from typing import Any

from atoll.machinery.meta.objects import Object
from atoll.machinery.patch.path_elements import key_element, value_element
from atoll.machinery.patch.topology import KEYED, Type


class BadItem(ValueError):
    """An item that has no identity in its list; the text is what Kubernetes says of it."""


def element_of(item: Any, type: Type) -> str:
    """The path element of an item in a list whose merge is SET or KEYED. Raises BadItem."""
    if type.merge == KEYED:
        return key_element(_keys(item, type))
    if isinstance(item, dict):
        raise BadItem("associative list without keys has an element that's a map type")
    if isinstance(item, list):
        raise BadItem("not supported: associative list with lists as elements")
    if item is None:
        raise BadItem("associative list without keys has an element that's an explicit null")
    return value_element(item)


def _keys(item: Any, type: Type) -> Object:
    if item is None:
        raise BadItem("associative list with keys may not have a null element")
    if not isinstance(item, dict):
        raise BadItem("associative list with keys may not have non-map elements")
    keys: Object = {}
    for name in type.keys:
        if name in item:
            keys[name] = item[name]
        elif name in type.defaults:
            keys[name] = type.defaults[name]
    if not keys:
        names = " ".join(f'"{name}"' for name in type.keys)
        raise BadItem(
            f"associative list with keys has an element that omits all key fields [{names}] "
            "(and doesn't have default values for any key fields)"
        )
    # An item without one of several keys is another item than one that has it.
    return keys


def elements_of(items: list[Any], type: Type) -> list[str] | None:
    """The path elements of all items, in order; None where an item has none (such a list is a leaf)."""
    try:
        return [element_of(item, type) for item in items]
    except BadItem:
        return None


def grouped(items: list[Any], type: Type) -> dict[str, list[Any]] | None:
    """Items by path element, duplicates together; None where an item has no path element."""
    elements = elements_of(items, type)
    if elements is None:
        return None
    out: dict[str, list[Any]] = {}
    for element, item in zip(elements, items, strict=True):
        out.setdefault(element, []).append(item)
    return out
