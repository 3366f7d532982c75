"""Identity of list items: which path element an item of a set or keyed list has.

typed, compare, merge and check all go through here, so that an item is the same item to each of them.
"""

from __future__ import annotations

from typing import Any

from atoll.machinery.meta.objects import Object
from atoll.machinery.patch.path_elements import key_element, value_element
from atoll.machinery.patch.structuredmerge.topology import KEYED, Type


class InvalidItem(ValueError):
    """An item that has no identity in its list; the text is what Kubernetes says of it."""


def element_of(item: Any, type: Type) -> str:
    """The path element of an item in a list whose merge is SET or KEYED. Raises InvalidItem."""
    if type.merge == KEYED:
        return key_element(_keys(item, type))
    if isinstance(item, dict):
        raise InvalidItem("associative list without keys has an element that's a map type")
    if isinstance(item, list):
        raise InvalidItem("not supported: associative list with lists as elements")
    if item is None:
        raise InvalidItem("associative list without keys has an element that's an explicit null")
    return value_element(item)


def _keys(item: Any, type: Type) -> Object:
    if item is None:
        raise InvalidItem("associative list with keys may not have a null element")
    if not isinstance(item, dict):
        raise InvalidItem("associative list with keys may not have non-map elements")
    keys: Object = {}
    for name in type.keys:
        if name in item:
            keys[name] = item[name]
        elif name in type.defaults:
            keys[name] = type.defaults[name]
    if not keys:
        names = " ".join(f'"{name}"' for name in type.keys)
        raise InvalidItem(
            f"associative list with keys has an element that omits all key fields [{names}] "
            "(and doesn't have default values for any key fields)"
        )
    # An item without one of several keys is another item than one that has it.
    return keys


def elements_of(items: list[Any], type: Type) -> list[str] | None:
    """The path elements of all items, in order; None where an item has none (such a list is a leaf)."""
    try:
        if type.merge == KEYED and len(type.keys) == 1:
            return _elements_by_name(items, type, type.keys[0])
        return [element_of(item, type) for item in items]
    except InvalidItem:
        return None


#: By the name of the one key of a list, the path elements of values that came by: writing an element anew costs more
#: than all else of an item.
_known: dict[str, dict[str, str]] = {}
_MAX_KEYS, _MAX_VALUES, _MAX_CHARS = 16, 2048, 253


def _elements_by_name(items: list[Any], type: Type, key: str) -> list[str]:
    """The elements of a list that is keyed by one field, most often a string that came by before."""
    if key not in _known and len(_known) >= _MAX_KEYS:
        _known.clear()
    known = _known.setdefault(key, {})
    if len(known) + len(items) > _MAX_VALUES:
        known.clear()
    out = []
    for item in items:
        name = item.get(key) if item.__class__ is dict else None
        element = known.get(name) if name.__class__ is str else None
        if element is None:
            element = element_of(item, type)
            if name.__class__ is str and len(name) <= _MAX_CHARS and len(known) < _MAX_VALUES:
                known[name] = element
        out.append(element)
    return out


def by_element(items: list[Any], type: Type) -> dict[str, Any] | None:
    """Items by path element; None where an item has no path element, or two have the same."""
    elements = elements_of(items, type)
    if elements is None:
        return None
    out = dict(zip(elements, items, strict=True))
    return out if len(out) == len(items) else None


def grouped(items: list[Any], type: Type) -> dict[str, list[Any]] | None:
    """Items by path element, duplicates together; None where an item has no path element."""
    elements = elements_of(items, type)
    if elements is None:
        return None
    out: dict[str, list[Any]] = {}
    for element, item in zip(elements, items, strict=True):
        out.setdefault(element, []).append(item)
    return out
