"""Path elements of FieldsV1: `f:` field, `k:` keyed list item, `v:` set member, `i:` index.

fieldset, typed, compare and conflicts share them as the strings that the wire carries. Invariant: the same
place has exactly one string (keys sorted, JSON compact), so plain dictionary look-up is equality of places.
"""

from __future__ import annotations

from typing import Any

import msgspec

from atoll.machinery.meta.objects import Object, encode_json

FIELD, KEY, VALUE, INDEX = "f:", "k:", "v:", "i:"


class InvalidPathElement(ValueError):
    """Text that is no path element of FieldsV1."""


def _number(value: Any) -> Any:
    """80.0 and 80 are one key: JSON has one kind of number."""
    return int(value) if type(value) is float and value.is_integer() else value


def key_element(keys: Object) -> str:
    """The element of an item in a list keyed by fields; `keys` holds each key field's scalar value."""
    return KEY + encode_json({name: _number(value) for name, value in keys.items()}).decode()


def value_element(value: Any) -> str:
    """The element of a member of a set."""
    return VALUE + encode_json(_number(value)).decode()


def canonical(element: str) -> str:
    """The one form of an element that a client sent. Raises InvalidPathElement."""
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


def order(element: str) -> tuple[int, str]:
    """Sort key: fields before keyed items before set members before indices, then by text."""
    return _RANK[element[:2]], element


def readable(element: str) -> str:
    """As conflicts print it: `.name`, `[port=80,protocol="TCP"]`, `[="v"]`, `[0]`."""
    kind, text = element[:2], element[2:]
    if kind == FIELD:
        return "." + text
    if kind == KEY:
        keys: Object = msgspec.json.decode(text)
        return "[" + ",".join(f"{name}={encode_json(value).decode()}" for name, value in keys.items()) + "]"
    return f"[={text}]" if kind == VALUE else f"[{text}]"
