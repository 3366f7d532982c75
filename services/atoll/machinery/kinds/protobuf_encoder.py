"""JSON objects to Kubernetes protobuf, for clients that ask for it.

`apiserver.request` encodes replies through here. Tables (`protobuf_table`) drive the encoder. Invariant: what is
returned decodes to the object given, so a client can put it back; other objects have no encoding.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeAlias

from atoll.machinery.kinds import protobuf
from atoll.machinery.kinds import protobuf_wire as wire
from atoll.machinery.kinds.protobuf_table import Row, has_rows, message_of, rows_of
from atoll.machinery.kinds.protobuf_values import READERS
from atoll.machinery.meta import times
from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.process.time_slicing import checkpoint

_Writer: TypeAlias = Callable[[Any, int], bytes]
_UINT64 = (1 << 64) - 1
_MAP = "map<string,"
_LIST, _LIST_METADATA = "List", "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"


class NotEncodable(ValueError):
    """The object does not fit the message of its kind, or there is none."""


def encode(obj: Object) -> bytes:
    """Return an object, or a list of objects, as a body that decodes to the same. Raises NotEncodable."""
    api_version, kind = obj.get("apiVersion") or "", obj.get("kind") or ""
    if kind.endswith(_LIST) and message_of(api_version, kind) is None:
        return _body(api_version, kind, _list(api_version, kind.removesuffix(_LIST), obj))
    return _body(api_version, kind, _same(api_version, kind, obj))


def encode_event(type: str, obj: Object) -> bytes:
    """Return an event of a watch, after its length. What the message cannot tell from absent is absent.

    Raises NotEncodable.
    """
    api_version, kind = obj["apiVersion"], obj["kind"]
    event = _block(1, type.encode()) + _block(2, _block(1, _body(api_version, kind, _raw(api_version, kind, obj))))
    return len(event).to_bytes(4, "big") + event


def _body(api_version: str, kind: str, raw: bytes) -> bytes:
    meta = _block(1, api_version.encode()) + _block(2, kind.encode())
    return protobuf.MAGIC + _block(1, meta) + _block(2, raw) + _block(3, b"") + _block(4, b"")


def _list(api_version: str, kind: str, obj: Object) -> bytes:
    """Return the message of a list: every list has its metadata and its items in the same fields."""
    items = (_block(2, _same(api_version, kind, item)) for item in obj["items"])
    return _block(1, _message(_LIST_METADATA, obj.get("metadata") or {}, 0)) + b"".join(items)


def _same(api_version: str, kind: str, obj: Object) -> bytes:
    """Return the message of an object, of which the same object is read."""
    raw = _raw(api_version, kind, obj)
    try:
        is_same = protobuf.decode(_body(api_version, kind, raw)) == {**obj, "apiVersion": api_version, "kind": kind}
    except ValueError as error:
        raise NotEncodable(str(error)) from error
    if not is_same:
        raise NotEncodable("the message cannot hold the object")
    return raw


def _raw(api_version: str, kind: str, obj: Object) -> bytes:
    message = message_of(api_version, kind)
    if message is None:
        raise NotEncodable(f"{kind} in {api_version} has no message")
    content = {name: value for name, value in obj.items() if name not in {"apiVersion", "kind"}}
    try:
        return _message(message, content, 0)
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise NotEncodable(str(error)) from error


def _message(name: str, value: Mapping[str, Any], depth: int) -> bytes:
    if depth > wire.MAX_DEPTH:
        raise NotEncodable("the object nests too deep")
    fields, parts = _fields(name), list[bytes]()
    inlined: dict[int, tuple[Row, Object]] = {}
    for key, item in value.items():
        checkpoint()
        if item is None:
            continue
        row, owner = fields.get(key, (None, None))
        if row is None:
            raise NotEncodable(f"{key} is no field of {name}")
        if owner is not None:
            inlined.setdefault(owner.number, (owner, {}))[1][key] = item
        else:
            parts.append(_field(row, item, depth))
    parts += [_block(owner.number, _message(owner.type, items, depth + 1)) for owner, items in inlined.values()]
    return b"".join(parts)


@cache
def _fields(message: str) -> Mapping[str, tuple[Row, Row | None]]:
    """Return the fields of a message by JSON name; those of an inlined message with its row."""
    found: dict[str, tuple[Row, Row | None]] = {}
    for row in rows_of(message):
        found.update(dict.fromkeys(_fields(row.type), (row, row)) if row.inline else {row.name: (row, None)})
    return found


def _field(row: Row, value: Any, depth: int) -> bytes:
    if row.type.startswith(_MAP):
        entry = _value_field(row.type[len(_MAP) : -1], 2)
        pairs = ((_block(1, key.encode()) + entry(item, depth + 1)) for key, item in value.items())
        return b"".join(_block(row.number, pair) for pair in pairs)
    write = _value_field(row.type, row.number)
    return b"".join(write(item, depth + 1) for item in value) if row.repeated else write(value, depth + 1)


@cache
def _value_field(type: str, number: int) -> _Writer:
    """Return the writer of one value of a type with its tag."""
    if type in {"bool", "int32", "int64"}:
        return lambda value, depth: _varint(number << 3 | wire.VARINT) + _varint(int(value) & _UINT64)
    if type == "double":
        return lambda value, depth: _varint(number << 3 | wire.FIXED64) + struct.pack("<d", value)
    write = _WRITERS.get(type)
    if write is not None:
        return lambda value, depth: _block(number, write(value))
    if type in READERS or not has_rows(type):
        raise NotEncodable(f"{type} is not written")
    return lambda value, depth: _block(number, _message(type, value, depth))


def _block(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | wire.BYTES) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3 | wire.VARINT) + _varint(value & _UINT64)


def _bytes(value: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error as error:
        raise NotEncodable("not base64") from error


def _time(value: str) -> bytes:
    seconds = times.parse_time(value)
    if seconds is None:
        raise NotEncodable("not a time")
    fraction = value.partition(".")[2].rstrip("Z")
    nanoseconds = int(fraction.ljust(9, "0")) if fraction else 0
    return _number(1, int(seconds // 1)) + _number(2, nanoseconds)


def _int_or_string(value: int | str) -> bytes:
    is_text = isinstance(value, str)
    text = value.encode() if isinstance(value, str) else b""
    return _number(1, int(is_text)) + _number(2, 0 if isinstance(value, str) else value) + _block(3, text)


def _json(value: Any) -> bytes:
    return _block(1, encode_json(value))


def _texts(value: list[str]) -> bytes:
    return b"".join(_block(1, each.encode()) for each in value)


_MACHINERY = "io.k8s.apimachinery.pkg."
_WRITERS: dict[str, Callable[[Any], bytes]] = {
    "string": str.encode,
    "bytes": _bytes,
    _MACHINERY + "apis.meta.v1.Time": _time,
    _MACHINERY + "apis.meta.v1.MicroTime": _time,
    _MACHINERY + "apis.meta.v1.FieldsV1": _json,
    _MACHINERY + "api.resource.Quantity": lambda value: _block(1, value.encode()),
    _MACHINERY + "util.intstr.IntOrString": _int_or_string,
    _MACHINERY + "runtime.RawExtension": _json,
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON": _json,
    **{f"io.k8s.api.{group}.v1.ExtraValue": _texts for group in ("authentication", "authorization", "certificates")},
}
