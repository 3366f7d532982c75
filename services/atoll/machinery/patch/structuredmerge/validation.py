"""Errors of an applied patch that does not fit its schema: undeclared fields, wrong types, invalid or duplicate items.

`managedfields.apply` calls `typed_patch_error` after `fieldset_builder.typed_set` failed, so only invalid patches pay
for paths and texts. Unknown fields of built-in kinds fail here, as in Kubernetes; handlers prune those of custom
resources first. Invariant: `validation_errors` is non-empty exactly when `typed_set` raises SchemaMismatch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from atoll.machinery.meta.objects import Object
from atoll.machinery.patch.errors import TypedPatchError
from atoll.machinery.patch.path_elements import readable
from atoll.machinery.patch.structuredmerge import go_format
from atoll.machinery.patch.structuredmerge.items import InvalidItem, element_of
from atoll.machinery.patch.structuredmerge.topology import KEYED, SET, Type
from atoll.machinery.process.time_slicing import checkpoint

_MAX_ERRORS = 100


def typed_patch_error(patch: Object, root: Type) -> TypedPatchError:
    """Return the error that lists every violation (at most 100), in document order."""
    errors = validation_errors(patch, root)
    metadata = patch.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    subject = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}; {kind_text(patch)}"
    return TypedPatchError(f"failed to create typed patch object ({subject}): {listed(errors)}")


def listed(errors: Sequence[str]) -> str:
    """Return errors as one text."""
    return errors[0] if len(errors) == 1 else "\n  ".join(["errors:", *errors])


def validation_errors(value: Any, type: Type, *, duplicates: bool = False) -> list[str]:
    """Return the violations of a value, each with its path. `duplicates`: items of lists may repeat."""
    errors = _Errors(duplicates)
    _walk(value, type, "", errors)
    return errors


class _Errors(list[str]):
    """The violations found so far."""

    __slots__ = ("duplicates",)

    def __init__(self, duplicates: bool) -> None:
        super().__init__()
        self.duplicates = duplicates


def kind_text(obj: Object) -> str:
    """Format version and kind of an object as Go does: `example.io/v1, Kind=Thing`, `/v1, Kind=ConfigMap`."""
    group, _, version = str(obj.get("apiVersion") or "").rpartition("/")
    return f"{group}/{version}, Kind={obj.get('kind') or ''}"


def _walk(value: Any, type: Type, path: str, errors: _Errors) -> None:
    if value is None or len(errors) >= _MAX_ERRORS:
        return
    checkpoint()
    if type.is_map:
        _walk_map(value, type, path, errors)
    elif type.is_list:
        _walk_list(value, type, path, errors)
    elif error := _scalar_error(value, type.scalar):
        errors.append(f"{path}: {error}")


def _walk_map(value: Any, type: Type, path: str, errors: _Errors) -> None:
    if not isinstance(value, dict):
        errors.append(f"{path}: expected map, got {go_format.plain(value)}")
        return
    for name, child in value.items():
        field = type.field(name)
        if field is None:
            errors.append(f"{path}.{name}: field not declared in schema")
        else:
            _walk(child, field, f"{path}.{name}", errors)


def _walk_list(value: Any, type: Type, path: str, errors: _Errors) -> None:
    if not isinstance(value, list):
        errors.append(f"{path}: expected list, got {go_format.plain(value)}")
        return
    if type.merge not in (SET, KEYED):
        for index, item in enumerate(value):
            _walk(item, type.element, f"{path}[{index}]", errors)
        return
    seen: set[str] = set()
    for index, item in enumerate(value):
        try:
            element = element_of(item, type)
        except InvalidItem as error:
            # Kubernetes stops at the first item that it cannot identify.
            errors.append(f"{path}: element {index}: {error}")
            return
        if element in seen and not errors.duplicates:
            errors.append(f"{path}: duplicate entries for key {readable(element)}")
        seen.add(element)
        _walk(item, type.element, path + readable(element), errors)


def _scalar_error(value: Any, scalar: str) -> str:
    """Return why a value is not this scalar; empty if it is. Places without a scalar type allow any value."""
    is_bool = isinstance(value, bool)
    if scalar in ("integer", "number") and (is_bool or not isinstance(value, int | float)):
        return f"expected numeric (int or float), got {_type_name(value)}"
    if scalar == "string" and not isinstance(value, str):
        return f"expected string, got {go_format.detailed(value)}"
    if scalar == "boolean" and not is_bool:
        return f"expected boolean, got {go_format.plain(value)}"
    return ""


def _type_name(value: Any) -> str:
    if isinstance(value, dict):
        return "map[string]interface {}"
    if isinstance(value, list):
        return "[]interface {}"
    return "bool" if isinstance(value, bool) else "string"
