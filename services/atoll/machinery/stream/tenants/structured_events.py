"""Events as single JSON documents, in the structured mode of CloudEvents: what `follow` sends, one a line.

Shards encode, `kubectl atoll events` and third parties decode; `schemas/events/follow.schema.json` has the form.
Invariant: a document holds an object only if its caller asked `full` and the object is not sealed.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

import msgspec
from msgspec.structs import replace

from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.times import format_micro_time
from atoll.machinery.stream.events import Event, Malformed, key_path
from atoll.machinery.stream.subjects import CHANGES

#: Operations that tell of the answer, beside those of changes: all up to here was sent; changes before here are
#: missing; the server ends it.
BOOKMARK, RESYNC, CLOSED = "BOOKMARK", "RESYNC", "CLOSED"
_JSON = "application/json"
_NONE = msgspec.Raw()
_MARK = re.compile(r"(?:(?:bookmark|resync|closed)-)?(.+)-([^-]+)-([0-9]{1,19})\Z")


class StructuredEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """One document. Values are strings, as CloudEvents has them; `data` is the object's JSON, empty where it is not
    told. `atollbefore` is the JSON text of the object before the change."""

    specversion: str
    id: str
    source: str
    type: str
    time: str
    atolloperation: str
    atollrevision: str
    atolllineage: str
    subject: str = ""
    atollstate: str = ""
    atollreason: str = ""
    atollbefore: str = ""
    datacontenttype: str = ""
    data: msgspec.Raw = _NONE

    @property
    def revision(self) -> int:
        return int(self.atollrevision)

    @property
    def key(self) -> ObjectKey | None:
        """The object that changed; None if the document is not about one."""
        if not self.subject:
            return None
        cluster, identity, group, resource, namespace, name = map(unquote, self.subject.split("/"))
        return ObjectKey(ResourceType(group, resource, identity), cluster, namespace, name)

    @property
    def object(self) -> Object | None:
        """The object as the change left it, of a deletion its last state; None where it is not told."""
        return _object(bytes(self.data))

    @property
    def before(self) -> Object | None:
        """The object before the change; None where it is not told."""
        return _object(self.atollbefore.encode())


class Origin(msgspec.Struct, frozen=True):
    """The shard that sends documents, and its history."""

    shard: str
    uid: str
    lineage: str

    def mark(self, revision: int, operation: str = "") -> str:
        """The `id` of a document, where to go on after it; with `operation`, of one that is not about a change."""
        lead = f"{operation.lower()}-" if operation else ""
        return f"{lead}{self.uid}-{self.lineage}-{revision}"


def encode_change(event: Event, *, full: bool = False, before: bytes = b"") -> bytes:
    """The document of a change; `before` is the JSON of the object before it."""
    shown = full and not event.sealed and bool(event.payload)
    origin = Origin(event.shard, event.shard_uid, event.lineage)
    document = replace(
        _document(origin, "object", event.operation.name, event.revision),
        subject=key_path(event.key),
        atollbefore=before.decode() if shown else "",
        datacontenttype=_JSON if shown else "",
        data=msgspec.Raw(event.payload) if shown else _NONE,
    )
    return msgspec.json.encode(document)


def encode_control(origin: Origin, operation: str, revision: int, *, state: str = "", reason: str = "") -> bytes:
    """The document of a BOOKMARK, RESYNC or CLOSED. Its `id` is not that of the change at its revision."""
    document = _document(origin, "stream", operation, revision)
    own = origin.mark(revision, operation)
    return msgspec.json.encode(replace(document, id=own, atollstate=state, atollreason=reason))


def decode(document: bytes) -> StructuredEvent:
    """Parse a document. Raises Malformed. Unknown members are ignored, so that a later version may add some."""
    try:
        found = _decoder.decode(document)
        parse_mark(found.id)
        _ = found.revision, found.key
    except (msgspec.DecodeError, ValueError) as error:
        raise Malformed(f"not an event: {error}") from error
    return found


def parse_mark(text: str) -> tuple[str, str, int]:
    """Shard uid, lineage and revision of an `id`. Raises ValueError."""
    found = _MARK.match(text)
    if found is None:
        raise ValueError(f"not the id of an event: {text!r}")
    return found[1], found[2], int(found[3])


def _document(origin: Origin, about: str, operation: str, revision: int) -> StructuredEvent:
    return StructuredEvent(
        specversion="1.0",
        id=origin.mark(revision),
        source=f"/shards/{origin.shard}/{CHANGES}",
        type=f"atoll.{about}.{operation.lower()}.v1",
        time=format_micro_time(revision // 1_000_000, revision % 1_000_000 * 1000),
        atolloperation=operation,
        atollrevision=str(revision),
        atolllineage=origin.lineage,
    )


def _object(data: bytes) -> Object | None:
    if not data:
        return None
    decoded: Object = msgspec.json.decode(data)
    return decoded


_decoder = msgspec.json.Decoder(StructuredEvent)
