"""What a strategic merge patch puts where the object has nothing to merge it with.

strategic and strategic_lists call it for values they take as they are. Kubernetes decodes the outcome into its own
types, which know no field that begins with `$`, and drops nulls there. Invariant: no directive reaches the result, and
inputs are not modified.
"""

from __future__ import annotations

from typing import Any

from atoll.machinery.patch.structuredmerge.topology import Type

PATCH = "$patch"
#: What `taken` gives for a value that is dropped as a whole.
DROPPED: Any = object()


def is_directive(name: str, type: Type | None) -> bool:
    """Whether a key of a patch is a directive; schemas may declare fields of such names ($ref, $schema)."""
    return name[:1] == "$" and not (type is not None and type.declares(name))


def raw(value: Any, type: Type | None) -> Any:
    """A value that replaces another as it stands: nulls and directives are dropped, but not what they speak of."""
    if isinstance(value, dict):
        return {
            name: raw(child, type.field(name) if type is not None else None)
            for name, child in value.items()
            if child is not None and not is_directive(name, type)
        }
    if isinstance(value, list):
        element = _element(type)
        return [raw(item, element) for item in value]
    return value


def taken(value: Any, type: Type | None) -> Any:
    """A value for a field that is not there yet. Maps and items with `$patch` are dropped, whatever it says."""
    if isinstance(value, dict):
        return DROPPED if PATCH in value else _taken_map(value, type)
    if isinstance(value, list):
        element = _element(type)
        items = (taken(item, element) for item in value)
        return [item for item in items if item is not DROPPED]
    return value


def _taken_map(value: dict[str, Any], type: Type | None) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, child in value.items():
        if child is None or is_directive(name, type):
            continue
        made = taken(child, type.field(name) if type is not None else None)
        if made is not DROPPED:
            out[name] = made
    return out


def _element(type: Type | None) -> Type | None:
    return type.element if type is not None else None
