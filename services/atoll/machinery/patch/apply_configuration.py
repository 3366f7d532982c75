"""Apply configurations of mutating policies: a partial object that is merged over another, without an owner.

A configuration sets fields; it removes none, and no manager owns what it set. It may not set what merges only as a
whole, because it would remove what it does not name. Texts are Kubernetes'. Invariant: inputs are not modified, and
the result shares parts with both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from atoll.machinery.meta.objects import Object
from atoll.machinery.patch.structuredmerge.merge import merge
from atoll.machinery.patch.structuredmerge.topology import ATOMIC, OPEN, Type, TypeSchema
from atoll.machinery.patch.structuredmerge.validation import listed, validation_errors


class ConfigurationRefused(Exception):
    """A configuration does not fit its kind, or the object does not; `str()` is Kubernetes' reason."""


def merge_configuration(live: Object, configuration: Object, schema: TypeSchema) -> Object:
    """Return the object with the fields of the configuration. Raises ConfigurationRefused."""
    root = schema.root
    if problems := validation_errors(configuration, root):
        raise ConfigurationRefused(f"failed to convert patch object to typed object: {listed(problems)}")
    if atomic := list(_atomic_parts(configuration, root, "")):
        text = f"may not mutate atomic arrays, maps or structs: {', '.join(atomic)}"
        raise ConfigurationRefused(f"invalid ApplyConfiguration: {text}")
    if problems := validation_errors(live, root, duplicates=True):
        raise ConfigurationRefused(f"failed to convert original object to typed object: {listed(problems)}")
    merged: Object = merge(live, configuration, root)
    return merged


def _atomic_parts(value: Any, type: Type, path: str) -> Iterator[str]:
    """Yield the paths of values that are replaced as a whole. As in Kubernetes, entries of maps are not walked."""
    if isinstance(value, dict):
        if type.merge == ATOMIC:
            yield path
        for name, child in value.items():
            field = type.field(name) if type.declares(name) else None
            if field is not None:
                yield from _atomic_parts(child, field, f"{path}.{name}")
    elif isinstance(value, list):
        if type.merge in (ATOMIC, OPEN):
            yield path
        for index, item in enumerate(value):
            yield from _atomic_parts(item, type.element, f"{path}[{index}]")
