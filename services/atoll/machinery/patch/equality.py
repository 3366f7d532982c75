"""Equality of JSON values, used wherever a patch decides whether something changed.

Python holds True equal to 1, JSON does not; a flag turned into a number must not pass for a no-op.
"""

from __future__ import annotations

from atoll.machinery.meta.objects import encode_json


def same(a: object, b: object) -> bool:
    """Whether two JSON values are equal. Numbers compare by value (1 and 1.0), never with booleans."""
    if a is b:
        return True
    if a != b:
        return False
    kind = type(a)
    if kind is dict or kind is list:
        # Equal to Python already, so only booleans hidden among numbers can still tell them apart.
        return encode_json(a) == encode_json(b)
    return kind is type(b) or (kind is not bool and type(b) is not bool)
