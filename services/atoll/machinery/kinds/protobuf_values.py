"""Kubernetes messages whose JSON is not an object of their fields: times, quantities, embedded JSON.

`protobuf` calls these by message name. Each reads the bytes from `at` to `end` and returns None for null.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import msgspec

from atoll.machinery.kinds import protobuf_wire as wire
from atoll.machinery.kinds.protobuf_wire import DecodeProtobufError
from atoll.machinery.meta.times import format_micro_time, format_time

#: Reads a value with a length; the last argument is the nesting depth.
Reader = Callable[[bytes, int, int, int], Any]


def read_text(data: bytes, at: int, end: int, depth: int) -> str:
    return wire.text(data, at, end)


def read_bytes(data: bytes, at: int, end: int, depth: int) -> str:
    return base64.b64encode(data[at:end]).decode()


def _time(data: bytes, at: int, end: int, depth: int) -> str | None:
    # Go's zero time is the empty message, and null in JSON. Times are truncated to seconds, as in Go.
    return _format_moment(wire.numbers(data, at, end), lambda seconds, _: format_time(seconds)) if at < end else None


def _micro_time(data: bytes, at: int, end: int, depth: int) -> str | None:
    return _format_moment(wire.numbers(data, at, end), format_micro_time) if at < end else None


def _format_moment(parts: dict[int, int], form: Callable[[int, int], str]) -> str:
    try:
        return form(wire.signed64(parts.get(1, 0)), wire.signed32(parts.get(2, 0)))
    except ValueError as error:
        raise DecodeProtobufError(str(error)) from error


def _quantity(data: bytes, at: int, end: int, depth: int) -> str:
    shown = "0"
    for begin, stop in wire.spans(data, at, end, 1):
        shown = wire.text(data, begin, stop) or "0"
    return shown


def _strings(data: bytes, at: int, end: int, depth: int) -> list[str]:
    return [wire.text(data, begin, stop) for begin, stop in wire.spans(data, at, end, 1)]


def _json(data: bytes, at: int, end: int, depth: int) -> Any:
    begin = stop = at
    for begin, stop in wire.spans(data, at, end, 1):  # noqa: B007  the last one counts
        pass
    if begin == stop:
        return None
    try:
        return msgspec.json.decode(data[begin:stop])
    except (msgspec.DecodeError, RecursionError) as error:
        raise DecodeProtobufError(f"embedded JSON: {error}") from error


def _int_or_string(data: bytes, at: int, end: int, depth: int) -> int | str:
    parts = wire.numbers(data, at, end)
    if not parts.get(1):
        return wire.signed32(parts.get(2, 0))
    shown = ""
    for begin, stop in wire.spans(data, at, end, 3):
        shown = wire.text(data, begin, stop)
    return shown


_META = "io.k8s.apimachinery.pkg.apis.meta.v1."

READERS: dict[str, Reader] = {
    "string": read_text,
    "bytes": read_bytes,
    _META + "Time": _time,
    _META + "MicroTime": _micro_time,
    _META + "FieldsV1": _json,
    "io.k8s.apimachinery.pkg.api.resource.Quantity": _quantity,
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": _int_or_string,
    "io.k8s.apimachinery.pkg.runtime.RawExtension": _json,
    "io.k8s.api.authentication.v1.ExtraValue": _strings,
    "io.k8s.api.authorization.v1.ExtraValue": _strings,
    "io.k8s.api.certificates.v1.ExtraValue": _strings,
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON": _json,
}
