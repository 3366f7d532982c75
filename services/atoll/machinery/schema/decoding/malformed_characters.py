"""Malformed characters of a JSON document, replaced by U+FFFD as Go's decoder does.

`json_decoder` calls it for documents that msgspec, which is stricter than Go, refuses. Invariant: well-formed documents
are returned unchanged.
"""

from __future__ import annotations

import codecs
import re

from atoll.machinery.process.time_slicing import checkpoint

#: An escape: a pair of surrogates, a half of one (the group), or any other.
_ESCAPE = re.compile(rb"\\(?:u(?:[dD][89abAB]..\\u[dD][c-fC-F]..|([dD][89a-fA-F]..))|.)", re.DOTALL)
_REPLACED = "\ufffd".encode()
#: Escapes between two checkpoints, about 0.1 ms.
_ESCAPES = 256
_ERRORS = "replace-each-byte"


def _each_byte(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "\ufffd" * (error.end - error.start), error.end


codecs.register_error(_ERRORS, _each_byte)


def replace_malformed(data: bytes) -> bytes:
    """Return the document with U+FFFD for each byte that is not UTF-8, and for each half of a surrogate pair."""
    try:
        data.decode()
    except UnicodeDecodeError:
        data = data.decode(errors=_ERRORS).encode()
    return _without_halves(data) if rb"\u" in data else data


def _without_halves(data: bytes) -> bytes:
    out = bytearray()
    start = 0
    for count, match in enumerate(_ESCAPE.finditer(data)):
        if not count % _ESCAPES:
            checkpoint()
        if match[1] is not None:
            out += data[start : match.start()]
            out += _REPLACED
            start = match.end()
    return bytes(out + data[start:]) if out else data
