"""Byte values in objects: base64 text, read leniently and stored in one form.

ConfigMaps, Secrets, certificate requests and webhook configurations call these.
"""

from __future__ import annotations

import binascii

from atoll.machinery.meta.objects import Object


def decoded(value: object) -> bytes | None:
    """Return the bytes of a base64 value, or None if it is not base64."""
    if not isinstance(value, str):
        return None
    try:
        return binascii.a2b_base64(value, strict_mode=bool(value))
    except ValueError:
        return None


def decoded_size(values: Object) -> int:
    """Return the sum of the sizes of the decoded values.

    Values that are not base64 count as empty; the schema reports them.
    """
    return sum(len(decoded(value) or b"") for value in values.values())


def join_lines(values: Object, *names: str) -> None:
    """Remove line breaks from base64 values (all, or the named ones), as Go's decoder ignores them."""
    for name in names or list(values):
        value = values.get(name)
        if isinstance(value, str) and ("\n" in value or "\r" in value):
            values[name] = value.replace("\n", "").replace("\r", "")
