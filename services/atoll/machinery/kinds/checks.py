"""Accessors for unvalidated objects, and checks that many kinds share.

Hooks and checks of every kind use these. They never raise: an accessor returns an empty value for a value of another
type, which the schema reports.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.selectors import validate_label_selector
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import invalid


def mapping(obj: object, *path: str) -> Object:
    """Return the object at a path, or an empty one that is not part of obj."""
    for name in path:
        obj = obj.get(name) if isinstance(obj, dict) else None
    return obj if isinstance(obj, dict) else {}


def items(obj: object, *path: str) -> list[Any]:
    """Return the list at a path, or an empty one that is not part of obj."""
    for name in path:
        obj = obj.get(name) if isinstance(obj, dict) else None
    return obj if isinstance(obj, list) else []


def objects(obj: object, *path: str) -> list[tuple[int, Object]]:
    """Return index and value of the objects in a list; other items are skipped."""
    for name in path:
        obj = obj.get(name) if isinstance(obj, dict) else None
    if not obj or not isinstance(obj, list):
        return []
    return [(index, item) for index, item in enumerate(obj) if isinstance(item, dict)]


def strings(obj: object, *path: str) -> list[str]:
    """Return the strings of the list at a path."""
    return [item for item in items(obj, *path) if isinstance(item, str)]


def text(obj: object, *path: str) -> str:
    """Return the string at a path, or an empty one."""
    for name in path:
        obj = obj.get(name) if isinstance(obj, dict) else None
    return obj if isinstance(obj, str) else ""


def number(obj: object, *path: str) -> int | None:
    """Return the integer at a path, or None."""
    for name in path:
        obj = obj.get(name) if isinstance(obj, dict) else None
    return obj if isinstance(obj, int) and not isinstance(obj, bool) else None


def ensure(obj: Object, name: str) -> Object:
    """Return the object at a key, adding it if absent; an unattached one if the value has another type."""
    if obj.get(name) is None:
        obj[name] = {}
    return mapping(obj, name)


def invalid_values(field: str, value: str, details: Iterable[str]) -> list[FieldError]:
    """Return one error for each detail."""
    return [invalid(field, value, detail) for detail in details] if details else []


def immutable(field: str, value: object, old: object) -> list[FieldError]:
    """Return an error if the value changed."""
    return [] if value == old else [invalid(field, value, "field is immutable")]


def selector_errors(selector: object, field: str) -> list[FieldError]:
    """Return the errors of a LabelSelector; none if it has another shape, which the schema reports."""
    labels = mapping(selector, "matchLabels")
    expressions = [expression for _, expression in objects(selector, "matchExpressions")]
    if not all(isinstance(value, str) for value in labels.values()):
        return []
    if not all(_is_expression(expression) for expression in expressions):
        return []
    return validate_label_selector({"matchLabels": labels, "matchExpressions": expressions}, field)


def _is_expression(expression: Object) -> bool:
    texts = [expression.get("key", ""), expression.get("operator", ""), *items(expression, "values")]
    return isinstance(expression.get("values") or [], list) and all(isinstance(value, str) for value in texts)
