"""Access to parts of a definition that may be missing or malformed. Validation of definitions uses these."""

from __future__ import annotations

from typing import Any

from atoll.machinery.meta.objects import Object


def mapping(obj: Any, *path: str) -> Object:
    """Return the object at a path, empty where it is missing or of another type."""
    for name in path:
        obj = obj.get(name) if isinstance(obj, dict) else None
    return obj if isinstance(obj, dict) else {}


def list_of(value: Any) -> list[Any]:
    """Return a list, empty if the value is not one."""
    return value if isinstance(value, list) else []


def versions(obj: Object) -> list[Object]:
    """Return the versions of a definition that are objects."""
    return [each for each in list_of(mapping(obj, "spec").get("versions")) if isinstance(each, dict)]
