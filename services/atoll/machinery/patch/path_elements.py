"""Path elements of FieldsV1: `f:` field, `k:` keyed list item, `v:` set member, `i:` index.

Field sets and conflict messages use them as strings in their wire form. Invariant: a place has exactly one string
(keys sorted, JSON compact), so a dictionary look-up compares places.
"""

from __future__ import annotations

from typing import Any

import msgspec

from atoll.machinery.meta.objects import Object, encode_json

FIELD, KEY, VALUE, INDEX = "f:", "k:", "v:", "i:"


class InvalidPathElement(ValueError):
    """Text that is not a path element of FieldsV1."""


def _number(value: Any) -> Any:
    """Return an integral float as an integer: 80.0 and 80 are the same key."""
    return int(value) if type(value) is float and value.is_integer() else value


def key_element(keys: Object) -> str:
    """Return the element of an item in a keyed list; `keys` holds the scalar value of each key field."""
    return KEY + encode_json({name: _number(value) for name, value in keys.items()}).decode()


def value_element(value: Any) -> str:
    """Return the element of a member of a set."""
    return VALUE + encode_json(_number(value)).decode()


def canonical(element: str) -> str:
    """Return a client's element in canonical form. Raises InvalidPathElement."""
    kind, text = element[:2], element[2:]
    if kind == FIELD:
        return element
    try:
        if kind == KEY:
            keys = msgspec.json.decode(text)
            if isinstance(keys, dict) and keys:
                return key_element(keys)
        elif kind == VALUE:
            return value_element(msgspec.json.decode(text))
        elif kind == INDEX:
            return f"{INDEX}{int(text)}"
    except (ValueError, RecursionError) as error:
        raise InvalidPathElement(f"{element!r}: {error}") from error
    raise InvalidPathElement(f"{element!r} is no path element")


_RANK = {FIELD: 0, KEY: 1, VALUE: 2, INDEX: 3}


def sort_key(element: str) -> tuple[int, str]:
    """Return the sort key: fields before keyed items before set members before indices, then by text."""
    return _RANK[element[:2]], element


def readable(element: str) -> str:
    """Return the element as conflicts print it: `.name`, `[port=80,protocol="TCP"]`, `[="v"]`, `[0]`."""
    kind, text = element[:2], element[2:]
    if kind == FIELD:
        return "." + text
    if kind == KEY:
        keys: Object = msgspec.json.decode(text)
        return "[" + ",".join(f"{name}={encode_json(value).decode()}" for name, value in keys.items()) + "]"
    return f"[={text}]" if kind == VALUE else f"[{text}]"
