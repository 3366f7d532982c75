"""Cells of custom kinds' tables: the value at a column's path, in the column's type.

`tables` calls `cell` for kinds without cells of their own. As in Kubernetes' converter for custom resources, a missing
value or one of another type is an empty cell, and a string column prints any value.
"""

from __future__ import annotations

from atoll.machinery.kinds.kind import Column
from atoll.machinery.meta.durations import human_duration
from atoll.machinery.meta.jsonpath import first
from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.meta.times import parse_time
from atoll.machinery.schema.fielderrors import format_number

#: Go escapes these in JSON.
_ESCAPED = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026"}


def cell(column: Column, obj: Object, now_s: float) -> object:
    """Return one cell; None if it is empty."""
    value = first(column.json_path, obj)
    if value is None:
        return None
    match column.type:
        case "string":
            return _printed(value)
        case "date":
            return _age(value, now_s)
        case "boolean":
            return value if isinstance(value, bool) else None
        case "integer":
            return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
        case "number":
            return value if isinstance(value, int | float) and not isinstance(value, bool) else None
    return None


def _age(value: object, now_s: float) -> str | None:
    if not isinstance(value, str):
        return None
    if value in {"", "null"}:
        return "<unknown>"
    then = parse_time(value)
    return "<invalid>" if then is None else human_duration(now_s - then)


def _printed(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return format_number(value)
    return encode_json(value).decode().translate(_ESCAPED)
