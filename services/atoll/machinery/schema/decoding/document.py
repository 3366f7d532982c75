"""Result and error of the decoders, and the bounds on JSON values.

`json_decoder` and `yaml_decoder` use these. Walks do not recurse, since they run before the depth is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from atoll.machinery.process.time_slicing import checkpoint, in_parts

#: Maximum nesting, which the walkers of this package rely on. Go's decoder allows 10,000; real objects have about 60.
MAX_DEPTH = 192
#: Values between two checkpoints.
_ITEMS = 4096
INT_MIN, INT_MAX = -(2**63), 2**63 - 1


class DecodeError(ValueError):
    """The body is malformed. The text is for the client and contains nothing of the body but numbers and names."""


class Document(msgspec.Struct, frozen=True):
    """A decoded body and its duplicate keys in document order.

    Duplicate keys are paths (`data.a`) for JSON, and whole texts (`line 3: key "a" already set in map`) for YAML.
    """

    value: Any
    duplicate_keys: list[str]


def is_too_deep(value: Any, max_depth: int) -> bool:
    """Whether objects and lists are nested deeper than max_depth; a scalar has depth 0."""
    level = [value] if type(value) is dict or type(value) is list else []
    for _ in range(max_depth):
        level = _contained(level)
        if not level:
            return False
    return bool(level)


def _contained(level: list[Any]) -> list[Any]:
    """Return the objects and lists directly within some objects and lists."""
    found: list[Any] = []
    for start in range(0, len(level), _ITEMS):
        checkpoint()
        for item in level[start : start + _ITEMS]:
            children = item.values() if type(item) is dict else item
            found += [child for child in in_parts(children) if type(child) is dict or type(child) is list]
    return found


def numbers(value: Any) -> Iterator[int | float]:
    """Yield every number of a value, in no order."""
    todo = [value]
    while todo:
        checkpoint()
        item = todo.pop()
        if type(item) is dict:
            todo.extend(item.values())
        elif type(item) is list:
            todo.extend(item)
        elif type(item) is int or type(item) is float:
            yield item
