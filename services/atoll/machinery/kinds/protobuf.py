"""Bodies in Kubernetes protobuf to JSON objects.

Typed Go clients send every built-in kind, and DeleteOptions, in this form without a fallback. A body is the magic
`k8s\0` and a runtime.Unknown, whose typeMeta names the message in its raw bytes. The result is Go's JSON encoding of
the same object, without nulls, so that the same handlers process it. Tables
(`protobuf_table`) drive the decoder; unknown fields are skipped. No state is kept between calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from atoll.machinery.kinds import protobuf_wire as wire
from atoll.machinery.kinds.protobuf_table import Row, message_of, rows_of
from atoll.machinery.kinds.protobuf_values import READERS, Reader
from atoll.machinery.kinds.protobuf_wire import DecodeProtobufError
from atoll.machinery.meta.objects import Object
from atoll.machinery.process.time_slicing import checkpoint

__all__ = ["MAGIC", "DecodeProtobufError", "decode", "has_message"]

MAGIC = b"k8s\0"
_CONTENT_TYPES = ("", "application/vnd.kubernetes.protobuf")
_DELETE_OPTIONS = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"
#: Whole doubles below this are exact integers.
_EXACT_INTEGERS = 2**53


def decode(data: bytes) -> Object:
    """Return the object in a body, with `apiVersion` and `kind`.

    Raises DecodeProtobufError for malformed bodies and unknown kinds.
    """
    if data[: len(MAGIC)] != MAGIC:
        raise DecodeProtobufError("the body does not begin with the magic number of Kubernetes protobuf")
    parts = _spans_by_number(data, len(MAGIC), len(data))
    if wire.text(data, *parts[3]):
        raise DecodeProtobufError("the content encoding is not known")
    if wire.text(data, *parts[4]) not in _CONTENT_TYPES:
        raise DecodeProtobufError("the content type is not Kubernetes protobuf")
    meta = _spans_by_number(data, *parts[1])
    api_version, kind = wire.text(data, *meta[1]), wire.text(data, *meta[2])
    obj: Object = {"apiVersion": api_version, "kind": kind}
    _read_message(_plan(_message_of(api_version, kind)), data, *parts[2], obj, 0)
    return obj


def has_message(api_version: str, kind: str) -> bool:
    """Return whether the table has the message of a kind."""
    return message_of(api_version, kind) is not None


def _spans_by_number(data: bytes, at: int, end: int) -> dict[int, tuple[int, int]]:
    """Return begin and end of the fields 1 to 4 of a message; empty for an absent field."""
    return {number: ([(at, at), *wire.spans(data, at, end, number)])[-1] for number in (1, 2, 3, 4)}


def _message_of(api_version: str, kind: str) -> str:
    # Clients send DeleteOptions in `v1`, in `meta.k8s.io/v1` and in the group of the resource they delete.
    message = _DELETE_OPTIONS if kind == "DeleteOptions" else message_of(api_version, kind)
    if message is None:
        raise DecodeProtobufError(f'no kind "{kind}" is registered for version "{api_version}"')
    return message


# --- plans: the fields of a message by wire tag --------------------------------------

_SINGLE, _LIST, _MAP, _MESSAGE, _INLINE = range(5)


class _Field:
    """How to read one field: a number by `convert`, a value with a length by `read`, a message by its own plan."""

    __slots__ = ("convert", "message", "name", "omitempty", "read", "shape")

    def __init__(self, row: Row) -> None:
        self.name, self.omitempty = row.name, row.omitempty
        self.convert: Callable[[int], Any] | None = _NUMBERS.get(row.type)
        self.read: Reader | None = None
        self.message = ""
        type_ = row.type
        if type_.startswith("map<"):
            self.shape, self.read = _MAP, _map_reader(type_[len("map<string,") : -1])
        elif row.repeated:
            self.shape, self.read = _LIST, _reader(type_)
        elif type_ in READERS or type_ in _UNIONS or type_ == "double" or self.convert is not None:
            self.shape, self.read = _SINGLE, _reader(type_)
        else:
            self.shape, self.message = _INLINE if row.inline else _MESSAGE, type_


class _Plan:
    """The fields of one message by tag; `numbers` also holds the numbers of fields with a wrong wire type."""

    __slots__ = ("fields", "numbers")

    def __init__(self, rows: list[Row]) -> None:
        self.fields: Mapping[int, _Field] = {row.number << 3 | _wire_type(row): _Field(row) for row in rows}
        self.numbers = frozenset(row.number for row in rows)


def _wire_type(row: Row) -> int:
    if row.type == "double":
        return wire.FIXED64
    return wire.VARINT if row.type in _NUMBERS else wire.BYTES


@cache
def _plan(message: str) -> _Plan:
    return _Plan(rows_of(message))


def _reader(type_: str) -> Reader:
    """Return the reader of the values of a type, single, in lists and in maps."""
    reader = READERS.get(type_) or _UNIONS.get(type_)
    return reader or (lambda data, at, end, depth: _read_message(_plan(type_), data, at, end, {}, depth))


def _read_message(plan: _Plan, data: bytes, at: int, end: int, target: Object, depth: int) -> Object:
    """Read a message into `target`: scalars replace, lists and maps grow, embedded messages merge."""
    if depth > wire.MAX_DEPTH:
        raise DecodeProtobufError("messages nest too deep")
    fields = plan.fields
    while at < end:
        tag = data[at]
        if tag < 0x80:
            at += 1
        else:
            tag, at = wire.varint(data, at, end)
        field = fields.get(tag)
        if field is None:
            if tag >> 3 in plan.numbers:
                raise DecodeProtobufError(f"wrong wire type {tag & 7} for field {tag >> 3}")
            at = wire.skip(data, at, end, tag)
        else:
            at = _read_field(field, data, at, end, target, depth)
    return target


def _read_field(field: _Field, data: bytes, at: int, end: int, target: Object, depth: int) -> int:
    """Read one value into `target`; return the offset after it."""
    checkpoint()
    value: Any
    if field.convert is not None:
        number, stop = wire.varint(data, at, end)
        value = field.convert(number)
    elif field.read is None:
        at, stop = wire.span(data, at, end)
        inner = target if field.shape == _INLINE else target.setdefault(field.name, {})
        _read_message(_plan(field.message), data, at, stop, inner, depth + 1)
        return stop
    elif field.read is _read_double:
        stop = wire.skip(data, at, end, 1 << 3 | wire.FIXED64)
        value = _read_double(data, at, stop, depth)
    else:
        at, stop = wire.span(data, at, end)
        value = field.read(data, at, stop, depth + 1)
    _put(field, value, target)
    return stop


def _put(field: _Field, value: Any, target: Object) -> None:
    name = field.name
    if field.shape == _LIST:
        target.setdefault(name, []).append(value)
    elif field.shape == _MAP:
        target.setdefault(name, {}).update(value)
    elif value is None or (field.omitempty and not value and not isinstance(value, dict | list)):
        target.pop(name, None)
    else:
        target[name] = value


def _map_reader(item_type: str) -> Reader:
    """Return the reader of one entry of a map; a missing key is empty, a missing value is the type's zero."""
    read = _reader(item_type)

    def read_entry(data: bytes, at: int, end: int, depth: int) -> Object:
        key, value = _spans_of_entry(data, at, end)
        return {wire.text(data, *key): read(data, *value, depth)}

    return read_entry


def _spans_of_entry(data: bytes, at: int, end: int) -> tuple[tuple[int, int], tuple[int, int]]:
    key = value = (end, end)
    while at < end:
        tag, at = wire.varint(data, at, end)
        if tag == 1 << 3 | wire.BYTES:
            key = wire.span(data, at, end)
            at = key[1]
        elif tag == 2 << 3 | wire.BYTES:
            value = wire.span(data, at, end)
            at = value[1]
        else:
            at = wire.skip(data, at, end, tag)
    return key, value


# --- numbers and unions ----------------------------------------------------


def _read_double(data: bytes, at: int, end: int, depth: int) -> int | float:
    number = wire.double(data, at)
    if not math.isfinite(number):
        raise DecodeProtobufError("JSON has no infinite numbers")
    # Go writes whole numbers without a fraction.
    return int(number) if number.is_integer() and abs(number) < _EXACT_INTEGERS else number


_NUMBERS: Mapping[str, Callable[[int], Any]] = {"bool": bool, "int32": wire.signed32, "int64": wire.signed64}

_CRD = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."


def _union(message: str, choose: Callable[[Object], Any]) -> Reader:
    """Return the reader of a message with one of several fields set; Go's JSON shows the one that `choose` returns."""
    return lambda data, at, end, depth: choose(_read_message(_plan(message), data, at, end, {}, depth))


_UNIONS: dict[str, Reader] = {
    "double": _read_double,
    _CRD + "JSONSchemaPropsOrArray": _union(
        _CRD + "JSONSchemaPropsOrArray", lambda parts: parts.get("jSONSchemas") or parts.get("schema")
    ),
    _CRD + "JSONSchemaPropsOrBool": _union(
        _CRD + "JSONSchemaPropsOrBool", lambda parts: parts.get("schema", bool(parts.get("allows")))
    ),
    _CRD + "JSONSchemaPropsOrStringArray": _union(
        _CRD + "JSONSchemaPropsOrStringArray", lambda parts: parts.get("property") or parts.get("schema")
    ),
}
