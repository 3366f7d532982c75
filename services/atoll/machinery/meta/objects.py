"""Kubernetes objects as open JSON, and the one way they become stored bytes.

Stored bytes are what a GET or a LIST sends: compact JSON, keys sorted at every level, and a hole of 16
digits where `metadata.resourceVersion` stands. Verb handlers encode; the store's writer fills the hole.
"""

from __future__ import annotations

import gc
import re
import secrets
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec

#: Open JSON. The only alias through which `Any` enters the code.
Object = dict[str, Any]
T = TypeVar("T")

#: Bytes of JSON from which on it is decoded without garbage collection.
LARGE_BYTES = 64 * 1024

#: Items of a list between two pauses.
_ITEMS = 4096
#: How large values are encoded in parts: levels that are taken apart, items that are encoded one by one, and at once.
#: The fields of an entry of managedFields are five levels below the object.
_LEVELS, _FEW, _GROUP = 6, 32, 1024

HOLE_SIZE = 16
_HOLE_LEAD = b'"resourceVersion":"'
# Random for each process and secret, so that no client can write the same digits into an object.
_TOKEN = "".join(secrets.choice("0123456789") for _ in range(HOLE_SIZE))
_MARK = _HOLE_LEAD + _TOKEN.encode() + b'"'
_ZEROES = b"0" * HOLE_SIZE

#: A float from 1e15 that may be whole, as msgspec writes it.
_LARGE_FLOAT = re.compile(rb"e1[5-9][]},]")
_INT64 = 2.0**63

_encoder = msgspec.json.Encoder(order="sorted")


def encode(obj: Object, pause: Callable[[], None] | None = None) -> tuple[bytes, int]:
    """Encode an object for the store.

    Returns the bytes and the offset of the first of the 16 zero digits of its resourceVersion. The value
    that `metadata.resourceVersion` had is ignored; obj itself is left unchanged. Whole floats become integers. With
    `pause` a large object is encoded part by part, with a pause after each.
    """
    marked = {**obj, "metadata": {**obj["metadata"], "resourceVersion": _TOKEN}}
    data = _encoder.encode(marked) if pause is None else b"".join(encode_in_parts(marked, pause))
    if (b".0" in data or b"e1" in data) and _has_whole_floats(data):
        marked = _with_integers(marked, pause or _no_pause)
        data = _encoder.encode(marked) if pause is None else b"".join(encode_in_parts(marked, pause))
    hole = data.index(_MARK) + len(_HOLE_LEAD)
    return data[:hole] + _ZEROES + data[hole + HOLE_SIZE :], hole


def _has_whole_floats(data: bytes) -> bool:
    """Whether encoded JSON may hold floats that are written as integers; a string may look like one."""
    if b".0" in data and (b".0," in data or b".0}" in data or b".0]" in data):
        return True
    return _LARGE_FLOAT.search(data) is not None


def _with_integers(value: Any, pause: Callable[[], None]) -> Any:
    """Return a copy with integers for whole floats, as Go writes them: 1 for 1.0 and 1e0."""
    if type(value) is dict:
        pause()
        return {key: _with_integers(item, pause) for key, item in value.items()}
    if type(value) is list:
        changed: list[Any] = []
        for start in range(0, len(value), _ITEMS):
            pause()
            changed += [_with_integers(item, pause) for item in value[start : start + _ITEMS]]
        return changed
    is_whole = type(value) is float and value.is_integer() and -_INT64 <= value < _INT64
    return int(value) if is_whole else value


def _no_pause() -> None:
    """Do nothing."""


def encode_in_parts(value: Any, pause: Callable[[], None], levels: int = _LEVELS) -> Iterator[bytes]:
    """Yield the encoding of any JSON value with sorted keys, and call `pause` after each part.

    Few items are encoded one by one, many in groups, and values below so many levels at once.
    """
    kind = type(value)
    if not levels or not value or (kind is not dict and kind is not list):
        yield _encoder.encode(value)
        pause()
        return
    separator = b"{" if kind is dict else b"["
    items = sorted(value) if kind is dict else value
    step = 1 if len(items) <= _FEW else _GROUP
    for start in range(0, len(items), step):
        yield separator
        separator = b","
        group = items[start : start + step]
        if step > 1:
            yield _encoder.encode({name: value[name] for name in group} if kind is dict else group)[1:-1]
            pause()
        elif kind is dict:
            yield _encoder.encode(group[0]) + b":"
            yield from encode_in_parts(value[group[0]], pause, levels - 1)
        else:
            yield from encode_in_parts(group[0], pause, levels - 1)
    yield b"}" if kind is dict else b"]"


#: Encodes any JSON value with sorted keys.
encode_json: Callable[[Any], bytes] = _encoder.encode


def splice(data: bytes, hole: int, revision: int) -> bytes:
    """Fill the hole at offset `hole` with a revision (0 gives the zeroed form that checksums cover)."""
    return data[:hole] + b"%016d" % revision + data[hole + HOLE_SIZE :]


def fresh(obj: Object) -> Object:
    """Return a deep copy, except for `metadata.managedFields`: it is large and never modified in place."""
    metadata = obj["metadata"]
    entries = metadata.get("managedFields")
    if not entries:
        return _copied(obj)
    rest = dict(metadata)
    del rest["managedFields"]
    copy = _copied({**obj, "metadata": rest})
    copy["metadata"]["managedFields"] = entries
    return copy


def _copied(obj: Object) -> Object:
    copy: Object = without_collection(msgspec.to_builtins, obj)
    return copy


def decode(data: bytes) -> Object:
    """Decode stored bytes. They were valid when stored, so an error is a defect of the store."""
    value: Object
    value = without_collection(msgspec.json.decode, data) if len(data) > LARGE_BYTES else msgspec.json.decode(data)
    return value


def with_revision(value: bytes, revision: int) -> bytes:
    """Return a stored object with another revision."""
    obj = decode(value)
    return encode_json({**obj, "metadata": {**obj["metadata"], "resourceVersion": str(revision)}})


def without_collection(make: Callable[[T], Any], source: T) -> Any:
    """Return `make(source)`, a JSON value made in one call of a C library, without garbage collection meanwhile.

    Of a million lists, collection is two thirds of the time, in which no other thread runs; JSON has no cycles.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return make(source)
    finally:
        if was_enabled:
            gc.enable()


# --- Optional fields: an absent or null one reads as a new empty value, which is not part of the object ----


def spec_of(obj: Object) -> Object:
    """Return `spec`."""
    return obj.get("spec") or {}


def status_of(obj: Object) -> Object:
    """Return `status`."""
    return obj.get("status") or {}


def conditions_of(obj: Object) -> list[Object]:
    """Return `status.conditions`."""
    return (obj.get("status") or {}).get("conditions") or []


def labels_of(obj: Object) -> dict[str, str]:
    """Return `metadata.labels`."""
    return obj["metadata"].get("labels") or {}


def annotations_of(obj: Object) -> dict[str, str]:
    """Return `metadata.annotations`."""
    return obj["metadata"].get("annotations") or {}


def finalizers_of(obj: Object) -> list[str]:
    """Return `metadata.finalizers`."""
    return obj["metadata"].get("finalizers") or []


def owner_references_of(obj: Object) -> list[Object]:
    """Return `metadata.ownerReferences`."""
    return obj["metadata"].get("ownerReferences") or []
