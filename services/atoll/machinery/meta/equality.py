"""Equality of JSON values: a number equals an equal number at any depth, a boolean never equals a number.

Patches, applies, ownership of fields, enums and ratcheting use it. It is the equality of structured-merge-diff
(`value.Equals`), and of numbers in RFC 6902. Go compares decoded objects by type too, where 1 and 1.0 differ; a caller
that needs this compares encodings.
"""

from __future__ import annotations

from typing import Any

from atoll.machinery.meta.objects import encode_json


def same(a: Any, b: Any) -> bool:
    """Whether two JSON values are equal."""
    if a is b:
        return True
    if a != b:
        return False
    kind = type(a)
    if kind is dict or kind is list:
        # They are equal in Python, which takes True for 1. Encodings are compared faster than places.
        return encode_json(a) == encode_json(b) or _booleans_match(a, b)
    return (kind is bool) == (type(b) is bool)


def _booleans_match(a: Any, b: Any) -> bool:
    """Whether two values that are equal in Python have booleans at the same places."""
    kind = type(a)
    if kind is dict:
        return all(_booleans_match(value, b[key]) for key, value in a.items())
    if kind is list:
        return all(map(_booleans_match, a, b))
    return (kind is bool) == (type(b) is bool)
