"""The items of a list: stored records, encoded and joined.

`rest.list` and `serving.collections` call `encoder` once per request. As in Kubernetes, items of a JSON or YAML list of
a built-in kind carry neither apiVersion nor kind; those of other kinds, and of all kinds in views, carry both.
Invariant: apart from these two fields an item has the bytes of a GET.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from atoll.machinery.apiserver.call.call import UNRESTRICTED, Call
from atoll.machinery.apiserver.catalog import tables
from atoll.machinery.apiserver.rest.present import as_object, in_version, with_metadata
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.objects import decode, encode_json
from atoll.machinery.meta.status import NotAcceptable
from atoll.machinery.process.time_slicing import in_parts

_TYPE = frozenset({"apiVersion", "kind"})
_METADATA = b',"metadata":{'
#: Encodes records to items with commas between them; b"" for none.
Encoder = Callable[[Sequence[bytes]], bytes]


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
    return b",".join if kind.from_stored is None else _each(lambda value: in_version(kind, value))


def _each(item: Callable[[bytes], bytes]) -> Encoder:
    return lambda values: b",".join([item(value) for value in in_parts(values)])


def _built_in(kind: Kind) -> Encoder:
    """Return the encoder that cuts apiVersion and kind out of stored records.

    Keys are sorted: apiVersion is the first, and kind stands before metadata. Records with other fields there (Events)
    are decoded. The bytes of kind and metadata do not stand in a field before kind, unless objects are held there.
    """
    if kind.holds_objects:
        return _each(_decoded)
    lead, mark = b'{"apiVersion":%b' % encode_json(kind.api_version), b',"kind":%b' % encode_json(kind.kind)
    bare, mark = lead + mark + _METADATA, mark + _METADATA
    lead += b","
    begin, size = len(lead), len(mark) - len(_METADATA)
    start = len(bare) - len(_METADATA) + 1

    def other(value: bytes) -> bytes:
        return value[start:] if value.startswith(bare) else _decoded(value)[1:]

    def joined(values: Sequence[bytes]) -> bytes:
        # Pieces, as joining them once copies least: this runs for every item of every list.
        pieces: list[bytes] = []
        add = pieces.append
        for value in values:
            add(b",{")
            if (at := value.find(mark, begin)) > 0 and value.startswith(lead):
                add(value[begin:at])
                add(value[at + size :])
            else:
                add(other(value))
        pieces[:1] = [b"{"] if pieces else []
        return b"".join(pieces)

    return joined


def _decoded(value: bytes) -> bytes:
    obj = decode(value)
    return encode_json({key: obj[key] for key in obj if key not in _TYPE})
