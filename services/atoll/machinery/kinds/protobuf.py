"""Bodies in Kubernetes protobuf to the JSON objects they stand for.

Typed Go clients send every built-in kind, and DeleteOptions, in this form and do not fall back. A body is the
magic `k8s\\0` and a runtime.Unknown, whose typeMeta names the message in its raw bytes. What comes out is
what Go's JSON encoding of the same object shows, without nulls: the same handlers go on with it. Driven by
the table `schemas/native/protobuf.json`; fields that it does not know are skipped. Nothing is kept between
calls.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec

from atoll.machinery.kinds import protobuf_wire as wire
from atoll.machinery.kinds.protobuf_wire import DecodeProtobufError, Value
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.times import format_micro_time, format_time
from atoll.machinery.process.resources import schema_path

__all__ = ["MAGIC", "DecodeProtobufError", "decode"]

MAGIC = b"k8s\0"
_CONTENT_TYPES = ("", "application/vnd.kubernetes.protobuf")
_DELETE_OPTIONS = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"
#: Below this every whole double is one integer.
_EXACT_INTEGERS = 2**53
_ZEROES: tuple[object, ...] = ("", 0, 0.0, False)
_Decoded = Any  # one JSON value


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One field in the table. `omitempty`: Go leaves a zero value out of its JSON."""

    number: int
    name: str
    type: str
    repeated: bool = False
    inline: bool = False
    omitempty: bool = False


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kinds: dict[str, dict[str, str]]
    messages: dict[str, list[_Row]]


@cache
def _table() -> _Table:
    return msgspec.json.decode(schema_path("native", "protobuf.json").read_bytes(), type=_Table)


@cache
def _rows(message: str) -> dict[int, _Row]:
    return {row.number: row for row in _table().messages[message]}


def decode(data: bytes) -> Object:
    """The object in a body, with `apiVersion` and `kind` where the body names them.

    Raises DecodeProtobufError for anything malformed, unknown kinds included.
    """
    if data[: len(MAGIC)] != MAGIC:
        raise DecodeProtobufError("the body does not begin with the magic number of Kubernetes protobuf")
    api_version, kind, raw = _envelope(memoryview(data)[len(MAGIC) :])
    content = _message(_message_of(api_version, kind), raw, {}, 0)
    return {"apiVersion": api_version, "kind": kind, **content}


def _message_of(api_version: str, kind: str) -> str:
    # Clients send DeleteOptions in `v1`, in `meta.k8s.io/v1` and in the group of the resource they delete.
    message = _DELETE_OPTIONS if kind == "DeleteOptions" else _table().kinds.get(api_version, {}).get(kind)
    if message is None:
        raise DecodeProtobufError(f'no kind "{kind}" is registered for version "{api_version}"')
    return message


def _envelope(data: memoryview) -> tuple[str, str, memoryview]:
    """apiVersion, kind and raw bytes of a runtime.Unknown."""
    parts: dict[int, memoryview] = {}
    for number, _, value in wire.fields(data):
        if number in (1, 2, 3, 4):
            parts[number] = _bytes(value)
    if 3 in parts and wire.text(parts[3]):
        raise DecodeProtobufError("the content encoding is not known")
    if 4 in parts and wire.text(parts[4]) not in _CONTENT_TYPES:
        raise DecodeProtobufError("the content type is not Kubernetes protobuf")
    nothing = memoryview(b"")
    meta = {number: wire.text(_bytes(value)) for number, _, value in wire.fields(parts.get(1, nothing))}
    return meta.get(1, ""), meta.get(2, ""), parts.get(2, nothing)


def _bytes(value: Value) -> memoryview:
    if isinstance(value, int):
        raise DecodeProtobufError("wrong wire type: a number where bytes belong")
    return value


def _number(value: Value) -> int:
    if not isinstance(value, int):
        raise DecodeProtobufError("wrong wire type: bytes where a number belongs")
    return value


def _message(message: str, data: memoryview, target: Object, depth: int) -> Object:
    """Read a message into `target`: scalars replace, lists grow, embedded messages merge."""
    if depth > wire.MAX_DEPTH:
        raise DecodeProtobufError("messages nest too deep")
    rows = _rows(message)
    for number, kind, value in wire.fields(data):
        row = rows.get(number)
        if row is not None:
            _field(row, kind, value, target, depth)
    return target


def _field(row: _Row, kind: int, value: Value, target: Object, depth: int) -> None:
    if row.inline:
        _message(row.type, _bytes(value), target, depth + 1)
    elif row.type.startswith("map<"):
        key, item = _map_entry(row.type[len("map<string,") : -1], _bytes(value), depth)
        target.setdefault(row.name, {})[key] = item
    elif row.repeated:
        target.setdefault(row.name, []).append(_value(row.type, kind, value, None, depth))
    else:
        _set(row, _value(row.type, kind, value, target.get(row.name), depth), target)


def _set(row: _Row, value: _Decoded, target: Object) -> None:
    if value is None or (row.omitempty and value in _ZEROES):
        target.pop(row.name, None)
    else:
        target[row.name] = value


def _map_entry(item_type: str, data: memoryview, depth: int) -> tuple[str, _Decoded]:
    """One entry of a map; a missing key is empty, a missing value is the type's zero."""
    key, item, found = "", None, False
    for number, kind, value in wire.fields(data):
        if number == 1:
            key = wire.text(_bytes(value))
        elif number == 2:
            item, found = _value(item_type, kind, value, None, depth), True
    return key, item if found else _value(item_type, wire.BYTES, memoryview(b""), None, depth)


def _value(type_: str, kind: int, value: Value, present: _Decoded, depth: int) -> _Decoded:
    """One value as JSON; None stands for null, which is left out where a field holds it."""
    if scalar := _SCALARS.get(type_):
        return scalar(value, kind)
    if special := _SPECIAL.get(type_):
        return special(_bytes(value), depth + 1)
    target = present if isinstance(present, dict) else {}
    return _message(type_, _bytes(value), target, depth + 1)


def _double(value: Value, kind: int) -> int | float:
    if kind != wire.FIXED64:
        raise DecodeProtobufError("wrong wire type: a double takes eight bytes")
    number = wire.double(_bytes(value))
    if not math.isfinite(number):
        raise DecodeProtobufError("JSON has no infinite numbers")
    # Go writes whole numbers without a fraction.
    return int(number) if number.is_integer() and abs(number) < _EXACT_INTEGERS else number


def _length_delimited(value: Value, kind: int) -> memoryview:
    if kind != wire.BYTES:
        raise DecodeProtobufError("wrong wire type: text has a length")
    return _bytes(value)


_SCALARS: dict[str, Callable[[Value, int], _Decoded]] = {
    "string": lambda value, kind: wire.text(_length_delimited(value, kind)),
    "bytes": lambda value, kind: base64.b64encode(_length_delimited(value, kind)).decode(),
    "bool": lambda value, kind: _number(value) != 0,
    "int32": lambda value, kind: wire.signed(_number(value), 32),
    "int64": lambda value, kind: wire.signed(_number(value), 64),
    "double": _double,
}


def _moment(data: memoryview) -> tuple[int, int] | None:
    """Seconds and nanoseconds. Go's zero time is the empty message, and null in JSON."""
    if not len(data):
        return None
    parts = {number: _number(value) for number, _, value in wire.fields(data)}
    return wire.signed(parts.get(1, 0), 64), wire.signed(parts.get(2, 0), 32)


def _time(data: memoryview, depth: int) -> str | None:
    moment = _moment(data)
    try:
        return format_time(moment[0]) if moment else None
    except ValueError as error:
        raise DecodeProtobufError(str(error)) from error


def _micro_time(data: memoryview, depth: int) -> str | None:
    moment = _moment(data)
    try:
        return format_micro_time(*moment) if moment else None
    except ValueError as error:
        raise DecodeProtobufError(str(error)) from error


def _only(data: memoryview) -> memoryview:
    """The first field, which is all that Quantity, RawExtension, FieldsV1 and JSON have."""
    found = memoryview(b"")
    for number, _, value in wire.fields(data):
        if number == 1:
            found = _bytes(value)
    return found


def _quantity(data: memoryview, depth: int) -> str:
    return wire.text(_only(data)) or "0"


def _json(data: memoryview, depth: int) -> _Decoded:
    raw = _only(data)
    if not len(raw):
        return None
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise DecodeProtobufError(f"embedded JSON: {error}") from error


def _strings(data: memoryview, depth: int) -> list[str]:
    return [wire.text(_bytes(value)) for number, _, value in wire.fields(data) if number == 1]


def _schema_or_array(data: memoryview, depth: int) -> _Decoded:
    parts = _message(_SCHEMA_OR_ARRAY, data, {}, depth)
    return parts.get("jSONSchemas") or parts.get("schema")


def _schema_or_bool(data: memoryview, depth: int) -> _Decoded:
    parts = _message(_SCHEMA_OR_BOOL, data, {}, depth)
    return parts.get("schema", bool(parts.get("allows")))


def _schema_or_strings(data: memoryview, depth: int) -> _Decoded:
    parts = _message(_SCHEMA_OR_STRINGS, data, {}, depth)
    return parts.get("property") or parts.get("schema")


_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_CRD = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."
_SCHEMA_OR_ARRAY = _CRD + "JSONSchemaPropsOrArray"
_SCHEMA_OR_BOOL = _CRD + "JSONSchemaPropsOrBool"
_SCHEMA_OR_STRINGS = _CRD + "JSONSchemaPropsOrStringArray"

#: Messages whose JSON is not an object of their fields.
_SPECIAL: dict[str, Callable[[memoryview, int], _Decoded]] = {
    _META + "Time": _time,
    _META + "MicroTime": _micro_time,
    _META + "FieldsV1": _json,
    "io.k8s.apimachinery.pkg.api.resource.Quantity": _quantity,
    "io.k8s.api.authentication.v1.ExtraValue": _strings,
    "io.k8s.api.authorization.v1.ExtraValue": _strings,
    "io.k8s.api.certificates.v1.ExtraValue": _strings,
    _CRD + "JSON": _json,
    _SCHEMA_OR_ARRAY: _schema_or_array,
    _SCHEMA_OR_BOOL: _schema_or_bool,
    _SCHEMA_OR_STRINGS: _schema_or_strings,
}
