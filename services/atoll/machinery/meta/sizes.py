"""The memory that a value takes with all that it holds: the weight of cache entries whose size tenants choose.

Caches of objects and of what is derived from them pass `size_bytes` to `LruCache`. Invariant: an entry weighs at least
its texts; what several entries share counts for each of them.
"""

from __future__ import annotations

from sys import getsizeof

import msgspec


def size_bytes(value: object) -> int:
    """Return the bytes of a value and of the items of its containers, Structs and slots. Other objects count alone.

    Raises nothing; a value that holds itself does not end.
    """
    total, left = 0, [value]
    while left:
        each = left.pop()
        total += getsizeof(each)
        if isinstance(each, dict):
            left.extend(each)
            left.extend(each.values())
        elif isinstance(each, list | tuple | set | frozenset):
            left.extend(each)
        elif isinstance(each, msgspec.Struct):
            left.extend(getattr(each, field) for field in each.__struct_fields__)
        else:
            left.extend(getattr(each, field) for field in getattr(type(each), "__slots__", ()))
    return total
