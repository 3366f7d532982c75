"""Checks shared by ConfigMaps and Secrets: keys, the size limit, immutability."""

from __future__ import annotations

from atoll.machinery.kinds.checks import invalid_values, mapping
from atoll.machinery.meta.labels import config_key_errors
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.process.time_slicing import PART, in_parts
from atoll.machinery.schema.fielderrors import forbidden

#: Limit for the sum of all values, decoded.
DATA_SIZE = 1024 * 1024


def key_errors(values: Object, field: str) -> list[FieldError]:
    """Return the errors of the keys of a map of values."""
    errors = []
    for key in values if len(values) <= PART else in_parts(values):
        if found := config_key_errors(key):
            errors += invalid_values(f"{field}[{key}]", key, found)
    return errors


def text_size(values: Object) -> int:
    """Return the size of all texts in UTF-8 bytes."""
    size = 0
    for value in values.values():
        if isinstance(value, str):
            size += len(value) if value.isascii() else len(value.encode())
    return size


def immutability_errors(obj: Object, old: Object, fields: tuple[str, ...]) -> list[FieldError]:
    """Return errors for changes of `immutable` and of the fields, once `immutable` is true."""
    if old.get("immutable") is not True:
        return []
    text = "field is immutable when `immutable` is set"
    errors = [] if obj.get("immutable") is True else [forbidden("immutable", text)]
    changed = [name for name in fields if mapping(obj, name) != mapping(old, name)]
    return errors + [forbidden(name, text) for name in changed]
