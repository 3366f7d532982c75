"""Equality of JSON values, which decides whether a patch changes a value.

In Python True equals 1, in JSON it does not: a boolean that becomes a number is a change.
"""

from __future__ import annotations

from atoll.machinery.meta.objects import encode_json


def same(a: object, b: object) -> bool:
    """Whether two JSON values are equal. Booleans never equal numbers.

    The numbers 1 and 1.0 are equal; containers are compared by their encoding, in which they differ.
    """
    if a is b:
        return True
    if a != b:
        return False
    kind = type(a)
    if kind is dict or kind is list:
        # They are equal in Python: only booleans in place of numbers can still differ.
        return encode_json(a) == encode_json(b)
    return kind is type(b) or (kind is not bool and type(b) is not bool)
