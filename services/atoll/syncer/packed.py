"""Objects as compressed JSON: a syncer keeps those of both sides, and 1,000 decoded ones would fill its memory.

Invariant: an object is unpacked as it was packed.
"""

from __future__ import annotations

import zlib

import msgspec

from atoll.machinery.meta.objects import Object, encode_json

_FASTEST = 1
_decode = msgspec.json.Decoder(Object).decode


def pack(obj: Object) -> bytes:
    """Return an object for keeping: a few hundred bytes for most."""
    return zlib.compress(encode_json(obj), _FASTEST)


def unpack(packed: bytes) -> Object:
    """Return an object that was kept."""
    return _decode(zlib.decompress(packed))
