"""Reading objects that a client may have shaped in any way, and the checks that many kinds share.

Hooks and checks of every kind use these. They never raise: readers give an empty value where another type
stands, because the schema's check tells of that.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.selectors import validate_label_selector
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import invalid


def mapping(obj: object, *path: str) -> Object:
    """The object below a path of keys, or an empty one that is not part of obj."""
    for name in path:
        obj = obj.get(name) if isinstance(obj, dict) else None
    return obj if isinstance(obj, dict) else {}


def items(obj: object, *path: str) -> list[Any]:
    """The list below a path of keys, or an empty one that is not part of obj."""
    for name in path:
        obj = obj.get(name) if isinstance(obj, dict) else None
    return obj if isinstance(obj, list) else []


def objects(obj: object, *path: str) -> list[tuple[int, Object]]:
    """Index and value of the objects in a list; what is no object is passed over."""
    return [(index, item) for index, item in enumerate(items(obj, *path)) if isinstance(item, dict)]


def strings(obj: object, *path: str) -> list[str]:
    """The strings of a list below a path."""
    return [item for item in items(obj, *path) if isinstance(item, str)]


def text(obj: object, *path: str) -> str:
    """The string below a path, or an empty one."""
    for name in path:
        obj = obj.get(name) if isinstance(obj, dict) else None
    return obj if isinstance(obj, str) else ""


def number(obj: object, *path: str) -> int | None:
    """The integer below a path, or None."""
    for name in path:
        obj = obj.get(name) if isinstance(obj, dict) else None
    return obj if isinstance(obj, int) and not isinstance(obj, bool) else None


def ensure(obj: Object, name: str) -> Object:
    """The object at a key, put there if nothing is; an unattached one where another type stands."""
    if obj.get(name) is None:
        obj[name] = {}
    return mapping(obj, name)


def invalid_values(field: str, value: str, details: Iterable[str]) -> list[FieldError]:
    """One error for each rule that a value breaks."""
    return [invalid(field, value, detail) for detail in details]


def immutable(field: str, value: object, old: object) -> list[FieldError]:
    """An error if a value that may never change did."""
    return [] if value == old else [invalid(field, value, "field is immutable")]


def selector_errors(selector: object, field: str) -> list[FieldError]:
    """What is wrong with a LabelSelector; nothing where it has no such shape, the schema tells of that."""
    labels = mapping(selector, "matchLabels")
    expressions = [expression for _, expression in objects(selector, "matchExpressions")]
    if not all(isinstance(value, str) for value in labels.values()):
        return []
    if not all(_is_expression(expression) for expression in expressions):
        return []
    return validate_label_selector({"matchLabels": labels, "matchExpressions": expressions}, field)


def _is_expression(expression: Object) -> bool:
    texts = [expression.get("key", ""), expression.get("operator", ""), *items(expression, "values")]
    return all(isinstance(value, str) for value in texts)
