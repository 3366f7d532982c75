"""Fields of objects and schemas by dotted paths (`.spec.name.first`), as in APIConversions.

`rules` resolves schemas at compile time, `converter` reads and writes objects.
"""

from __future__ import annotations

from typing import Any, Final

from atoll.machinery.meta.objects import Object

Path = tuple[str, ...]
#: The result of `get` for an absent field.
MISSING: Final = object()
#: The schema of an object with arbitrary fields.
_OPEN: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def split(text: str) -> Path:
    """Return the steps of a path; a leading dot is ignored."""
    return tuple(text.removeprefix(".").split("."))


def get(obj: Object, path: Path) -> Any:
    """Return the value at a path, or MISSING."""
    value: Any = obj
    for step in path:
        if not isinstance(value, dict) or step not in value:
            return MISSING
        value = value[step]
    return value


def put(obj: Object, path: Path, value: Any, *, makes_room: bool = False) -> bool:
    """Set the value at a path in place, with the objects above it. Return whether the value is set.

    Other values above it are replaced if `makes_room`; otherwise nothing is set.
    """
    for step in path[:-1]:
        inner = obj.setdefault(step, {})
        if not isinstance(inner, dict):
            if not makes_room:
                return False
            inner = obj[step] = {}
        obj = inner
    obj[path[-1]] = value
    return True


def schema_at(schema: Object, path: Path) -> Object:
    """Return the schema of a field. Raises LookupError in kcp's words if the schema has no such field."""
    for index, step in enumerate(path):
        if schema.get("type") != "object":
            raise LookupError(f'expected field "{".".join(path[:index])}" to be an object')
        found = (schema.get("properties") or {}).get(step)
        if found is None:
            additional = schema.get("additionalProperties")
            found = additional if isinstance(additional, dict) else None
        if found is None and schema.get("x-kubernetes-preserve-unknown-fields") is True:
            found = _OPEN
        if found is None:
            raise LookupError(f'field "{".".join(path[: index + 1])}" doesn\'t exist')
        schema = found
    return schema
