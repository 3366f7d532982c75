"""Identity of list items: the path element of each item of a set or keyed list.

All modules of this package identify items by it, so that an item is the same item in each of them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from atoll.machinery.meta.objects import Object
from atoll.machinery.patch.path_elements import key_element, value_element
from atoll.machinery.patch.structuredmerge.topology import KEYED, Type
from atoll.machinery.process.time_slicing import PART, checkpoint, in_parts


class InvalidItem(ValueError):
    """An item without a path element. The text is Kubernetes'."""


def element_of(item: Any, type: Type) -> str:
    """Return the path element of an item in a list whose merge is SET or KEYED. Raises InvalidItem."""
    checkpoint()
    if type.merge == KEYED:
        if item.__class__ is dict:
            values = tuple(map(item.get, type.keys))
            if all(map(_is_short, values)):
                return _cached_element(type.keys, *values)
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
    # An item that omits one of several keys differs from every item that has it.
    return keys


def _is_short(value: Any) -> bool:
    return value.__class__ is int or (value.__class__ is str and len(value) <= _MAX_CHARS)


@lru_cache(maxsize=1024, typed=True)
def _cached_element(names: tuple[str, ...], *values: str | int) -> str:
    """Return the element of an item with several keys, such as a port: lists repeat few."""
    return key_element(dict(zip(names, values, strict=True)))


def elements_of(items: list[Any], type: Type) -> list[str] | None:
    """Return the path elements of all items, in order; None where an item has none (such a list is atomic)."""
    try:
        if type.merge == KEYED and len(type.keys) == 1:
            return _elements_by_name(items, type, type.keys[0])
        return [element_of(item, type) for item in items]
    except InvalidItem:
        return None


#: By the name of a list's only key, the path elements of its recent values: encoding an element costs more than all
#: other work on an item.
_cache: dict[str, dict[str, str]] = {}
_MAX_KEYS, _MAX_VALUES, _MAX_CHARS = 16, 2048, 253


def _elements_by_name(items: list[Any], type: Type, key: str) -> list[str]:
    """Return the elements of a list keyed by one field, most often a cached string."""
    if key not in _cache and len(_cache) >= _MAX_KEYS:
        _cache.clear()
    known = _cache.setdefault(key, {})
    if len(known) + len(items) > _MAX_VALUES:
        known.clear()
    out = []
    for item in items if len(items) <= PART else in_parts(items):
        name = item.get(key) if item.__class__ is dict else None
        element = known.get(name) if name.__class__ is str else None
        if element is None:
            element = element_of(item, type)
            if name.__class__ is str and len(name) <= _MAX_CHARS and len(known) < _MAX_VALUES:
                known[name] = element
        out.append(element)
    return out


def by_element(items: list[Any], type: Type) -> dict[str, Any] | None:
    """Return items by path element; None where an item has no path element or two have the same."""
    elements = elements_of(items, type)
    if elements is None:
        return None
    out = dict(zip(elements, items, strict=True))
    return out if len(out) == len(items) else None


def grouped(items: list[Any], type: Type) -> dict[str, list[Any]] | None:
    """Return items by path element, duplicates grouped; None where an item has no path element."""
    elements = elements_of(items, type)
    if elements is None:
        return None
    out: dict[str, list[Any]] = {}
    walked = elements if len(elements) <= PART else in_parts(elements)
    for element, item in zip(walked, items, strict=True):
        out.setdefault(element, []).append(item)
    return out
