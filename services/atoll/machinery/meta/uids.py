"""Random UUIDs as text, for objects, tokens and requests.

Every request and every created object needs one, so this is several times cheaper than the standard library's
object, with the same bits from the same source.
"""

from __future__ import annotations

import os

_RANDOM_BITS = (1 << 128) - 1 & ~(0xF << 76) & ~(0x3 << 62)
_VERSION_4 = (0x4 << 76) | (0x2 << 62)


def new_uid() -> str:
    """A version 4 UUID (RFC 9562), 36 characters in lower case."""
    number = int.from_bytes(os.urandom(16), "big") & _RANDOM_BITS | _VERSION_4
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
