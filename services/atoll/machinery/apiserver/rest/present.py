"""Convert stored bytes to the negotiated form; unchanged bytes are passed through.

Large objects are decoded in slices, as a step of their own.
"""

from __future__ import annotations

from typing import Any

import msgspec

from atoll.machinery.apiserver.call.call import Call, Reply
from atoll.machinery.apiserver.call.negotiation import Form
from atoll.machinery.apiserver.catalog import tables
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.objects import LARGE_BYTES, Object, decode, encode_json
from atoll.machinery.meta.partial import Partial
from atoll.machinery.meta.status import NotAcceptable
from atoll.machinery.process.time_slicing import checkpoint, require_slices

_with_metadata = msgspec.json.Decoder(Partial[dict[str, Any]])


def in_version(kind: Kind, value: bytes) -> bytes:
    """Return stored bytes in the kind's version; the same bytes if it is the stored one."""
    if kind.from_stored is None:
        return value
    return encode_json(as_object(kind, value))


def as_object(kind: Kind, value: bytes) -> Object:
    """Decode stored bytes into the kind's version."""
    if len(value) > LARGE_BYTES:
        require_slices()
        checkpoint()
        obj = decode(value)
        checkpoint()
    else:
        obj = msgspec.json.decode(value)
    return kind.from_stored(obj) if kind.from_stored is not None else obj


def with_metadata(kind: Kind, value: bytes) -> Object:
    """Decode stored bytes into the metadata of the kind's version, as the only field."""
    if kind.from_stored is not None:
        return as_object(kind, value)
    checkpoint()
    return {"metadata": _with_metadata.decode(value).metadata}


def single(call: Call, value: bytes, status: int = 200) -> Reply:
    """Return a reply with one object."""
    form = call.form
    if form.is_plain:
        return Reply(status, (value if call.kind.from_stored is None else in_version(call.kind, value), b"\n"))
    decode_form = with_metadata if form.transform == "PartialObjectMetadata" else as_object
    return document(form, _transform(call, decode_form(call.kind, value)), status)


def _transform(call: Call, obj: Object) -> Object:
    form = call.form
    if form.transform == "Table":
        include = tables.include_object(call.info.query.get("includeObject", ""))
        metadata = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
        return tables.table(call.kind, [obj], metadata, include, form.version)
    if form.transform == "PartialObjectMetadata":
        return tables.partial(obj, form.version)
    if form.transform == "PartialObjectMetadataList":
        text = "you requested PartialObjectMetadataList, but the requested object is not a list"
        raise NotAcceptable(f"{text} ({call.kind.kind})")
    return obj


def document(form: Form, value: Object, status: int = 200) -> Reply:
    """Return a reply with a document, in the negotiated media type."""
    return Reply(status, (encode_json(value), b"\n"), form.media_type)
