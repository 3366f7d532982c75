"""Values of a strategic merge patch that replace others, or that the object does not have yet.

`merge` and `lists` call it for values that are not merged. Kubernetes decodes the result into its own types, which have
no field that begins with `$`, and drops nulls there. Invariant: no directive reaches the result, and inputs are not
modified.
"""

from __future__ import annotations

from typing import Any

from atoll.machinery.patch.strategicmerge.paired_types import PatchType

PATCH = "$patch"
#: The result of `addition` for a value that is dropped as a whole.
DROPPED: Any = object()


def is_directive(name: str, type: PatchType | None) -> bool:
    """Whether a key of a patch is a directive; schemas may declare fields with such names ($ref, $schema)."""
    return name[:1] == "$" and not (type is not None and type.declares(name))


def replacement(value: Any, type: PatchType | None) -> Any:
    """Return a value that replaces another: nulls and directives are dropped, but not the values with directives."""
    if isinstance(value, dict):
        return {
            name: replacement(child, type.field(name) if type is not None else None)
            for name, child in value.items()
            if child is not None and not is_directive(name, type)
        }
    if isinstance(value, list):
        element = _element(type)
        return [replacement(item, element) for item in value]
    return value


def addition(value: Any, type: PatchType | None) -> Any:
    """Return the value of a new field. Maps and items with a `$patch` of any value are dropped."""
    if isinstance(value, dict):
        return DROPPED if PATCH in value else _map_addition(value, type)
    if isinstance(value, list):
        element = _element(type)
        items = (addition(item, element) for item in value)
        return [item for item in items if item is not DROPPED]
    return value


def _map_addition(value: dict[str, Any], type: PatchType | None) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, child in value.items():
        if child is None or is_directive(name, type):
            continue
        added = addition(child, type.field(name) if type is not None else None)
        if added is not DROPPED:
            out[name] = added
    return out


def _element(type: PatchType | None) -> PatchType | None:
    return type.element if type is not None else None
