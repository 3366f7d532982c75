"""The items of a list: stored records, encoded and joined.

`rest.list` and `serving.collections` call `encoder` once per request. As in Kubernetes, items of a JSON or YAML list of
a built-in kind carry neither apiVersion nor kind; those of other kinds, and of all kinds in views, carry both.
Invariant: apart from these two fields an item has the bytes of a GET.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from atoll.machinery.apiserver.call.call import UNRESTRICTED, Call
from atoll.machinery.apiserver.catalog import tables
from atoll.machinery.apiserver.rest.present import as_object, in_version, with_metadata
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.objects import decode, encode_json
from atoll.machinery.meta.status import NotAcceptable
from atoll.machinery.process.time_slicing import in_parts

_TYPE = frozenset({"apiVersion", "kind"})
_METADATA = b',"metadata":{'
#: Above this size the rest of a record is not copied before it is joined; a view of a small one costs more than a copy.
_LONG_BYTES = 4096


class Encoder(Protocol):
    """Encodes records to items with commas between them, behind `lead`."""

    def __call__(self, values: Sequence[bytes], lead: bytes = b"") -> bytes: ...


def encoder(call: Call) -> Encoder:
    """Return the encoder of the call's form. Raises NotAcceptable for a form that no list has."""
    kind, form = call.kind, call.form
    if form.transform == "Table":
        include = tables.include_object(call.info.query.get("includeObject", ""))
        return _each(lambda value: encode_json(tables.row(kind, as_object(kind, value), include, form.version)))
    if form.transform == "PartialObjectMetadataList":
        return _each(lambda value: encode_json(tables.partial(with_metadata(kind, value), form.version)))
    if form.transform:
        message = f"you requested {form.transform}, but the requested object is a list ({kind.list_kind_name})"
        raise NotAcceptable(message)
    if kind.builtin and call.restrictions is UNRESTRICTED:
        return _built_in(kind) if kind.from_stored is None else _each(lambda value: _decoded(in_version(kind, value)))
    return _joined if kind.from_stored is None else _each(lambda value: in_version(kind, value))


def _each(item: Callable[[bytes], bytes]) -> Encoder:
    return lambda values, lead=b"": _joined([item(value) for value in in_parts(values)], lead)


def _joined(values: Sequence[bytes], lead: bytes = b"") -> bytes:
    return b",".join([lead + values[0], *values[1:]]) if values else lead


def _built_in(kind: Kind) -> Encoder:
    """Return the encoder that cuts apiVersion and kind out of stored records.

    Keys are sorted: apiVersion is the first, and kind stands before metadata. Records with other fields there (Events)
    are decoded. The bytes of kind and metadata do not stand in a field before kind, unless objects are held there.
    """
    if kind.holds_objects:
        return _each(_decoded)
    opening, mark = b'{"apiVersion":%b' % encode_json(kind.api_version), b',"kind":%b' % encode_json(kind.kind)
    bare, mark = opening + mark + _METADATA, mark + _METADATA
    opening += b","
    begin, size = len(opening), len(mark) - len(_METADATA)
    start = len(bare) - len(_METADATA) + 1

    def joined(values: Sequence[bytes], lead: bytes = b"") -> bytes:
        # Pieces, as joining them once copies least: this runs for every item of every list.
        pieces: list[bytes | memoryview] = [lead]
        add = pieces.append
        for value in values:
            add(b",{")
            if value.startswith(bare):
                add(value[start:] if len(value) < _LONG_BYTES else memoryview(value)[start:])
            elif (at := value.find(mark, begin)) > 0 and value.startswith(opening):
                add(value[begin:at])
                add(value[at + size :] if len(value) < _LONG_BYTES else memoryview(value)[at + size :])
            else:
                add(_decoded(value)[1:])
        pieces[1:2] = [b"{"] if values else []
        return b"".join(pieces)

    return joined


def _decoded(value: bytes) -> bytes:
    obj = decode(value)
    return encode_json({key: obj[key] for key in obj if key not in _TYPE})
