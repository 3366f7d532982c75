"""Byte values in objects: base64 text, read leniently and kept in one form.

ConfigMaps, Secrets, certificate requests and webhook configurations call these.
"""

from __future__ import annotations

import binascii

from atoll.machinery.meta.objects import Object


def decoded(value: object) -> bytes | None:
    """The bytes of a base64 value, or None for what is none."""
    if not isinstance(value, str):
        return None
    try:
        return binascii.a2b_base64(value, strict_mode=bool(value))
    except ValueError:
        return None


def decoded_size(values: Object) -> int:
    """Bytes of all values once decoded; what is no base64 counts as nothing, the schema tells of it."""
    return sum(len(decoded(value) or b"") for value in values.values())


def join_lines(values: Object, *names: str) -> None:
    """Take line breaks out of base64 values (all, or those named); Go's decoder overlooks them."""
    for name in names or list(values):
        value = values.get(name)
        if isinstance(value, str) and ("\n" in value or "\r" in value):
            values[name] = value.replace("\n", "").replace("\r", "")
