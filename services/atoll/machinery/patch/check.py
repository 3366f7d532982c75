"""Whether an applied patch can be typed: every field declared, values of the right kind, items told apart.

apply calls it before merging. Built-in kinds reach it with unknown fields in place and fail here, as in
Kubernetes; handlers prune those of custom resources first.
"""

from __future__ import annotations

from typing import Any

from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.patch.errors import TypedPatchError
from atoll.machinery.patch.items import BadItem, element_of
from atoll.machinery.patch.path_elements import readable
from atoll.machinery.patch.topology import KEYED, MAP, OPEN, SET, Type

_MAX_ERRORS = 100


def check_typed(patch: Object, root: Type) -> None:
    """Raise TypedPatchError with every problem (at most 100), in document order."""
    errors: list[str] = []
    _walk(patch, root, "", errors)
    if errors:
        metadata = patch.get("metadata") or {}
        where = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}; {_kind_text(patch)}"
        text = errors[0] if len(errors) == 1 else "\n  ".join(["errors:", *errors])
        raise TypedPatchError(f"failed to create typed patch object ({where}): {text}")


def _kind_text(patch: Object) -> str:
    group, _, version = str(patch.get("apiVersion", "")).rpartition("/")
    return f"{group}/{version}, Kind={patch.get('kind', '')}"


def _walk(value: Any, type: Type, path: str, errors: list[str]) -> None:
    if value is None or len(errors) >= _MAX_ERRORS:
        return
    if type.merge == MAP:
        _walk_map(value, type, path, errors)
    elif type.merge in (SET, KEYED):
        _walk_list(value, type, path, errors)
    elif type.merge == OPEN:
        return
    elif problem := _scalar_problem(value, type.scalar):
        errors.append(f"{path}: {problem}")


def _walk_map(value: Any, type: Type, path: str, errors: list[str]) -> None:
    if not isinstance(value, dict):
        errors.append(f"{path}: expected map, got {_shown(value)}")
        return
    for name, child in value.items():
        field = type.field(name)
        if field is None:
            errors.append(f"{path}.{name}: field not declared in schema")
        else:
            _walk(child, field, f"{path}.{name}", errors)


def _walk_list(value: Any, type: Type, path: str, errors: list[str]) -> None:
    if not isinstance(value, list):
        errors.append(f"{path}: expected list, got {_shown(value)}")
        return
    seen: set[str] = set()
    for index, item in enumerate(value):
        try:
            element = element_of(item, type)
        except BadItem as error:
            errors.append(f"{path}: element {index}: {error}")
            continue
        if element in seen:
            errors.append(f"{path}: duplicate entries for key {readable(element)}")
        seen.add(element)
        _walk(item, type.element, path + readable(element), errors)


def _scalar_problem(value: Any, scalar: str) -> str:
    """What is wrong with a value where a scalar is due; empty if nothing. Untyped leaves take anything."""
    is_bool = isinstance(value, bool)
    if scalar in ("integer", "number") and (is_bool or not isinstance(value, int | float)):
        return f"expected numeric (int or float), got {_type_name(value)}"
    if scalar == "string" and not isinstance(value, str):
        return f"expected string, got {_shown(value)}"
    if scalar == "boolean" and not is_bool:
        return f"expected boolean, got {_shown(value)}"
    return ""


def _type_name(value: Any) -> str:
    if isinstance(value, dict):
        return "map[string]interface {}"
    if isinstance(value, list):
        return "[]interface {}"
    return "bool" if isinstance(value, bool) else "string"


def _shown(value: Any) -> str:
    text = encode_json(value).decode()
    return text if len(text) <= 100 else text[:97] + "..."
