"""Encodes JSON values as gnostic's protobuf messages, by tables: the encoder of both versions of OpenAPI.

`gnostic_v2` and `gnostic_v3` hold the tables; a table maps the keys of a JSON object to fields of its message. A field
is a function from a value to its bytes, tag included. Invariant: a message is the concatenation of its fields in any
order, so `publisher` encodes a document part by part. Extensions (`x-...`) and untyped values are YAML text in these
messages; they are written as JSON, which is valid YAML.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from atoll.machinery.meta.objects import encode_json

#: Encodes one field of a message.
Field = Callable[[Any], bytes]
#: Fields by key of the JSON object.
Table = Mapping[str, Field]

_VARINT, _FIXED64, _BYTES = 0, 1, 2
_INT64 = (1 << 64) - 1
#: Characters that JSON strings may hold unescaped and YAML strings may not.
_NOT_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff]")


def varint(value: int) -> bytes:
    """Return the varint of a number below 2^64."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _tag(number: int, wire: int) -> bytes:
    return varint(number << 3 | wire)


def block(number: int) -> Callable[[bytes], bytes]:
    """Return the encoder of a length-delimited field: text, or an encoded message."""
    tag = _tag(number, _BYTES)

    def write(data: bytes) -> bytes:
        size = len(data)
        return tag + (bytes((size,)) if size < 0x80 else varint(size)) + data

    return write


def text(number: int) -> Field:
    write = block(number)
    return lambda value: write(value.encode()) if value else b""


def texts(number: int) -> Field:
    """Return a repeated string field; a single string is a list of one."""
    write = block(number)
    return lambda value: b"".join(write(each.encode()) for each in ([value] if isinstance(value, str) else value))


def flag(number: int) -> Field:
    tag = _tag(number, _VARINT)
    return lambda value: tag + b"\x01" if value else b""


def integer(number: int) -> Field:
    tag = _tag(number, _VARINT)
    return lambda value: tag + varint(int(value) & _INT64) if value else b""


def double(number: int) -> Field:
    tag = _tag(number, _FIXED64)
    return lambda value: tag + struct.pack("<d", value) if value else b""


def message(number: int, table: Table) -> Field:
    write = block(number)
    return lambda value: write(encode(table, value))


def messages(number: int, table: Table) -> Field:
    write = block(number)
    return lambda value: b"".join(write(encode(table, each)) for each in value)


def wrapped(number: int, *fields: Field) -> Field:
    """Return a message field; each of `fields` encodes the same value."""
    write = block(number)
    return lambda value: write(b"".join(field(value) for field in fields))


def each(field: Field) -> Field:
    """Return a repeated field of a list."""
    return lambda value: b"".join(map(field, value))


def named(number: int, field: Field) -> Callable[[str, Any], bytes]:
    """Return the encoder of one map entry: in gnostic a message of name (field 1) and value (field 2, by `field`)."""
    write, name_of = block(number), text(1)
    return lambda name, value: write(name_of(name) + field(value))


def entries(number: int, field: Field) -> Field:
    """Return a map field; entries are sorted by name."""
    write = named(number, field)
    return lambda value: b"".join(write(name, value[name]) for name in sorted(value))


def anything(number: int) -> Field:
    """Return a field of gnostic's message Any, which holds YAML text."""
    write, yaml = block(number), block(2)
    return lambda value: write(yaml(_yaml(value)))


def encode(table: Table, value: Mapping[str, Any]) -> bytes:
    """Return a JSON object as a message, fields in order of their keys; keys outside of the table are left out.

    The table holds the field of extensions under the key `x-`.
    """
    found = []
    for key, item in sorted(value.items()):
        field = table.get(key)
        if field is not None:
            found.append(field(item))
        elif key.startswith("x-") and (extension := table.get("x-")) is not None:
            found.append(extension((key, item)))
    return b"".join(found)


def extension(number: int) -> Field:
    """Return the field of extensions; its value is a pair of name and value."""
    write = named(number, anything(2))
    return lambda pair: write(*pair)


def joined(parts: Iterable[bytes]) -> bytes:
    return b"".join(parts)


def _yaml(value: Any) -> bytes:
    data = encode_json(value)
    if data.isascii() and b"\x7f" not in data:
        return data + b"\n"
    return _NOT_IN_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", data.decode()).encode() + b"\n"
