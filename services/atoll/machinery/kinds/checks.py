"""Reading objects that a client may have shaped in any way, and telling in Kubernetes' words what is wrong.

Hooks and checks of every kind use these. Readers never raise: they give an empty value where another type
stands, because the schema's check tells of that. Makers give one FieldError in the pattern of its type.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.meta.selectors import validate_label_selector
from atoll.machinery.meta.status import FieldError

#: Longer values are cut in messages: an error names a value, it does not carry it.
_SHOWN_SIZE = 1024


def mapping(obj: object, *path: str) -> Object:
    """The object below a path of keys, or an empty one that is not part of obj."""
    for name in path:
        obj = obj.get(name) if isinstance(obj, dict) else None
    return obj if isinstance(obj, dict) else {}


def items(obj: object, *path: str) -> list[Any]:
    """The list below a path of keys, or an empty one that is not part of obj."""
    value = mapping(obj, *path[:-1]).get(path[-1])
    return value if isinstance(value, list) else []


def objects(obj: object, *path: str) -> list[tuple[int, Object]]:
    """Index and value of the objects in a list; what is no object is passed over."""
    return [(index, item) for index, item in enumerate(items(obj, *path)) if isinstance(item, dict)]


def strings(obj: object, *path: str) -> list[str]:
    """The strings of a list below a path."""
    return [item for item in items(obj, *path) if isinstance(item, str)]


def text(obj: object, *path: str) -> str:
    """The string below a path, or an empty one."""
    value = mapping(obj, *path[:-1]).get(path[-1])
    return value if isinstance(value, str) else ""


def number(obj: object, *path: str) -> int | None:
    """The integer below a path, or None."""
    value = mapping(obj, *path[:-1]).get(path[-1])
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def ensure(obj: Object, name: str) -> Object:
    """The object at a key, put there if nothing is; an unattached one where another type stands."""
    if obj.get(name) is None:
        obj[name] = {}
    return mapping(obj, name)


def _shown(value: object) -> str:
    shown = encode_json(value).decode()
    return shown if len(shown) <= _SHOWN_SIZE else shown[:_SHOWN_SIZE] + "..."


def _tail(detail: str) -> str:
    return f": {detail}" if detail else ""


def required(field: str, detail: str = "") -> FieldError:
    """A value is missing or empty."""
    return FieldError("FieldValueRequired", field, f"Required value{_tail(detail)}")


def invalid_value(field: str, value: object, detail: str) -> FieldError:
    """A value breaks a rule."""
    return FieldError("FieldValueInvalid", field, f"Invalid value: {_shown(value)}{_tail(detail)}")


def invalid_values(field: str, value: str, details: Iterable[str]) -> list[FieldError]:
    """One error for each rule that a value breaks."""
    return [invalid_value(field, value, detail) for detail in details]


def unsupported(field: str, value: object, supported: Iterable[str]) -> FieldError:
    """A value is none of the known ones."""
    known = ", ".join(_shown(item) for item in supported)
    return FieldError("FieldValueNotSupported", field, f"Unsupported value: {_shown(value)}: supported values: {known}")


def forbidden(field: str, detail: str) -> FieldError:
    """A value may not be set, or not now."""
    return FieldError("FieldValueForbidden", field, f"Forbidden: {detail}")


def duplicate(field: str, value: object) -> FieldError:
    """A value that must be unique comes twice."""
    return FieldError("FieldValueDuplicate", field, f"Duplicate value: {_shown(value)}")


def too_long(field: str, size: int) -> FieldError:
    """A value has more than `size` bytes."""
    return FieldError("FieldValueTooLong", field, f"Too long: may not be more than {size} bytes")


def too_many(field: str, count: int, limit: int) -> FieldError:
    """A list has more than `limit` items."""
    return FieldError("FieldValueTooMany", field, f"Too many: {count}: must have at most {limit} items")


def immutable(field: str, value: object, old: object) -> list[FieldError]:
    """An error if a value that may never change did."""
    return [] if value == old else [invalid_value(field, value, "field is immutable")]


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
