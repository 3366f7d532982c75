"""Cells of tables: JSON values as numbers, in an order, and in the form of a StatusSummary.

`tables` makes tables of them. Invariant: the order is total, whatever the types: null, booleans, numbers, texts, lists,
objects.
"""

from __future__ import annotations

import math
import re
from typing import Any

from atoll.machinery.meta.objects import Object, encode_json

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\Z")
#: Digits of an integer that a text may have; Python reads longer ones in a time that grows with their square.
_MAX_DIGITS = 64


def number_of(value: Any) -> int | float | None:
    """Return a cell as a number, of a text what it says; None if it is none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return value
    if not isinstance(value, str) or len(value) > _MAX_DIGITS or _NUMBER.match(value) is None:
        return None
    try:
        return int(value)
    except ValueError:
        found = float(value)
        return found if math.isfinite(found) else None


def rank(value: Any) -> tuple[int, Any]:
    """Return the sort key of a cell."""
    match value:
        case None:
            return 0, 0
        case bool():
            return 1, value
        case int() | float():
            return 2, value
        case str():
            return 3, value
        case list():
            return 4, encode_json(value)
        case _:
            return 5, encode_json(value)


def column(value: Any) -> Object:
    """Return a cell as a StatusSummary has it; a number is JSON text, as it may be any integer."""
    match value:
        case None:
            return {"type": "Null"}
        case bool():
            return {"type": "Bool", "bool": value}
        case int():
            return {"type": "Number", "float": str(value)}
        case float():
            return {"type": "Number", "float": encode_json(value).decode()}
        case str():
            return {"type": "String", "string": value}
        case list():
            return {"type": "Array", "array": value}
        case _:
            return {"type": "Object", "object": value}
