"""Fields of objects and of schemas by dotted paths (`.spec.name.first`), as APIConversions name them.

`rules` looks schemas up at compile time, `converter` reads and writes objects.
"""

from __future__ import annotations

from typing import Any, Final

from atoll.machinery.meta.objects import Object

Path = tuple[str, ...]
#: What `get` gives for a field that is not there.
MISSING: Final = object()
#: An object that any field may be in.
_OPEN: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def split(text: str) -> Path:
    """The steps of a path; a leading dot means nothing."""
    return tuple(text.removeprefix(".").split("."))


def get(obj: Object, path: Path) -> Any:
    """The value at a path, MISSING if there is none."""
    value: Any = obj
    for step in path:
        if not isinstance(value, dict) or step not in value:
            return MISSING
        value = value[step]
    return value


def put(obj: Object, path: Path, value: Any, *, makes_room: bool = False) -> bool:
    """Set the value at a path, in place, with the objects on the way.

    What else stands on the way is replaced if `makes_room`; otherwise nothing is set, and False given.
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
    """The schema of a field. Raises LookupError with kcp's words if the schema has no such field."""
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
