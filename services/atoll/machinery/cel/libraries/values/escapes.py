"""Percent-encoding of URL components: encode, decode, and the bytes that a component may hold unescaped.

Called by `values.urls`. It works on bytes, because an escape may denote a byte that is not valid text by itself.
"""

from __future__ import annotations

import re
from enum import Enum

from atoll.machinery.cel.libraries.values.quoting import quote

_UNRESERVED = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
_HEX = frozenset(b"0123456789abcdefABCDEF")
_INVALID_BYTES = re.compile("[\udc80-\udcff]")
#: Valid in an escaped component, although `escape` would encode some of them.
_ALSO_VALID = frozenset(b"!$&'()*+,;=:@[]%")


class Component(Enum):
    """A component of a URL; its value is the set of bytes that it holds unescaped."""

    PATH = frozenset(_UNRESERVED + b"$&+,/:;=@")
    HOST = frozenset(_UNRESERVED + b"!\"$&'()*+,:;<=>[]")
    USER = frozenset(_UNRESERVED + b"$&+,;=")
    QUERY = frozenset(_UNRESERVED)
    FRAGMENT = frozenset(_UNRESERVED + b"!$&()*+,/:;=?@")


def text_of(raw: bytes) -> str:
    """Decode bytes as UTF-8; each invalid byte becomes U+FFFD."""
    return _INVALID_BYTES.sub("\ufffd", raw.decode("utf-8", "surrogateescape"))


def escape(raw: bytes, part: Component) -> bytes:
    """Return the bytes with every byte that the component may not hold as `%XX`."""
    plain: frozenset[int] = part.value
    if plain.issuperset(raw):
        return raw
    return b"".join(bytes((byte,)) if byte in plain else b"%%%02X" % byte for byte in raw)


def is_escaped(raw: bytes, part: Component) -> bool:
    """Report whether bytes are a valid escaped form of the component."""
    return all(byte in _ALSO_VALID or byte in part.value for byte in raw)


def unescape(raw: bytes, part: Component) -> bytes:
    """Decode the escapes; in a query a plus is a space. Raises ValueError for an invalid escape."""
    pieces = raw.split(b"%")
    position = len(pieces[0])
    for piece in pieces[1:]:
        if not _is_hex(piece[:2]):
            raise _bad(raw[position : position + 3])
        position += 1 + len(piece)
    if part is Component.QUERY:
        pieces = [piece.replace(b"+", b" ") for piece in pieces]
    return pieces[0] + b"".join(bytes((int(piece[:2], 16),)) + piece[2:] for piece in pieces[1:])


def unescape_host(raw: bytes, *, is_zone: bool = False) -> bytes:
    """Decode the escapes of a host.

    Only non-ASCII bytes may be escaped, and a percent sign as `%25`; in a zone also a space and bytes that a host may
    hold unescaped. Raises ValueError for other escapes and for characters that a host may not hold.
    """
    index = 0
    while index < len(raw):
        if raw[index] == 0x25:
            _check_host_escape(raw[index : index + 3], is_zone)
            index += 3
            continue
        if raw[index] < 0x80 and raw[index] not in Component.HOST.value:
            raise ValueError(f"invalid character {quote(chr(raw[index]))} in host name")
        index += 1
    return unescape(raw, Component.HOST)


def _check_host_escape(raw: bytes, is_zone: bool) -> None:
    if not _is_hex(raw[1:]):
        raise _bad(raw)
    value = int(raw[1:], 16)
    allowed = value == 0x20 or value in Component.HOST.value if is_zone else value >= 0x80
    if not allowed and raw != b"%25":
        raise _bad(raw)


def _is_hex(pair: bytes) -> bool:
    return len(pair) == 2 and _HEX.issuperset(pair)


def _bad(raw: bytes) -> ValueError:
    return ValueError(f"invalid URL escape {quote(raw.decode('utf-8', 'surrogateescape'))}")
