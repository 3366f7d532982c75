"""Convert stored bytes to the negotiated form; unchanged bytes are passed through."""

from __future__ import annotations

from atoll.machinery.apiserver.call.call import Call, Reply
from atoll.machinery.apiserver.call.negotiation import Form
from atoll.machinery.apiserver.catalog import tables
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.objects import Object, decode, encode_json
from atoll.machinery.meta.status import NotAcceptable


def in_version(kind: Kind, value: bytes) -> bytes:
    """Return stored bytes in the kind's version; the same bytes if it is the stored one."""
    if kind.from_stored is None:
        return value
    return encode_json(kind.from_stored(decode(value)))


def as_object(kind: Kind, value: bytes) -> Object:
    """Decode stored bytes into the kind's version."""
    obj = decode(value)
    return kind.from_stored(obj) if kind.from_stored is not None else obj


def single(call: Call, value: bytes, status: int = 200) -> Reply:
    """Return a reply with one object."""
    form = call.form
    if form.is_plain:
        return Reply(status, (in_version(call.kind, value), b"\n"))
    return document(form, _transform(call, as_object(call.kind, value)), status)


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
