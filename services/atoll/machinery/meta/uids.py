"""Random UUIDs as text, for objects, tokens and requests, and other random numbers of the same source.

Every request and every created object needs one, so this is several times cheaper than the standard library's
object, with the same bits from the same source: the system is asked for the numbers of many at a time. A number is used
once, and a forked process has none of its parent's.
"""

from __future__ import annotations

import os

_RANDOM_BITS = (1 << 128) - 1 & ~(0xF << 76) & ~(0x3 << 62)
_VERSION_4 = (0x4 << 76) | (0x2 << 62)
#: Numbers that the system is asked for at a time, and the bytes of each.
_NUMBERS, _SIZE = 64, 16

_unused: list[int] = []
os.register_at_fork(after_in_child=_unused.clear)


def _drawn() -> int:
    """Draw numbers; return the first one."""
    data = os.urandom(_NUMBERS * _SIZE)
    first, *rest = [int.from_bytes(data[at : at + _SIZE], "big") for at in range(0, len(data), _SIZE)]
    _unused.extend(rest)
    return first


def random_number() -> int:
    """Return 128 random bits that nobody else gets."""
    try:
        return _unused.pop()
    except IndexError:
        return _drawn()


def new_uid() -> str:
    """A version 4 UUID (RFC 9562), 36 characters in lower case."""
    try:
        number = _unused.pop()
    except IndexError:
        number = _drawn()
    text = f"{number & _RANDOM_BITS | _VERSION_4:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
