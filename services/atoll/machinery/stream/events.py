"""Events: one change of one object, or a control event, as headers and payload of a NATS message.

The publisher encodes, every consumer decodes; `schemas/events/` describes the same as JSON Schema and AsyncAPI, and
golden bytes fix it. CloudEvents attributes travel as `ce-` headers (binary mode), ours as `Atoll-` headers; the payload
is the object's JSON exactly as a GET serves it, or the sealed record of a sealed type. Invariant: a message names its
object, and one whose subject names another is not an event. So replaying one object's message elsewhere has no effect.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from urllib.parse import quote, unquote

import msgspec
from google_crc32c import value as crc32c

from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import HOLE_SIZE
from atoll.machinery.stream import signatures, subjects
from atoll.machinery.stream.signatures import Signature

NO_HOLE = -1
_SAFE = ":-._~"
_PLAIN = re.compile(r"[a-zA-Z0-9:._~-]*\Z")
#: A whole key in which nothing needs quoting; it has five slashes if none of its parts has any.
_PLAIN_PATH = re.compile(r"[a-zA-Z0-9:._~/-]*\Z")
_JSON = "application/json"
_SEALED = "application/octet-stream"
_ZEROES = b"0" * HOLE_SIZE
_REPUBLISHED = "Nats-Stream"
_FILLING = "Atoll-Filling"


class Operation(enum.IntEnum):
    """The operation. The first four are the log's own; the others are about the stream."""

    ADDED = 1
    MODIFIED = 2
    DELETED = 3
    MOVED = 4
    RESYNC = 5
    FENCE = 6


#: `Enum.name` is slower than the rest of a header.
_NAMES = {operation: operation.name for operation in Operation}


class Phase(enum.StrEnum):
    """The place of a message in a refill of the state stream. Empty outside refills."""

    NONE = ""
    BEGIN = "begin"
    REFILL = "refill"
    END = "end"


class Malformed(ValueError):
    """A message that is not an event of a shard: headers are missing, wrong, or contradict its subject."""


class Event(msgspec.Struct, frozen=True):
    """One event.

    `previous` is the previous revision on the event's own changes subject (0: none; always 0 on state). `hole` is the
    offset of the 16 digits of resourceVersion in the payload, -1 if it has none. `key` is None for RESYNC and FENCE.
    The `revision` of a RESYNC is the one after which the stream goes on. `filling` is the number of the state
    stream's filling that sent it (0: the first); numbers rise, also when the stream is created again. `signature` has
    not been verified (`signatures.verify`).
    """

    kind: str
    operation: Operation
    shard: str
    shard_uid: str
    lineage: str
    epoch: int
    revision: int
    previous: int = 0
    key: ObjectKey | None = None
    payload: bytes = b""
    sealed: bool = False
    hole: int = NO_HOLE
    crc: int = 0
    phase: Phase = Phase.NONE
    filling: int = 0
    signature: Signature | None = None

    @property
    def statement(self) -> str:
        """What its signature is over, beside sequence and payload: all that a consumer believes, one a line."""
        return statement_of(self, self.subject, key_path(self.key))

    @property
    def id(self) -> str:
        return f"{self.shard_uid}-{self.lineage}-{self.revision}"

    @property
    def subject(self) -> str:
        key = self.key
        if key is None:
            return subjects.control_subject(self.kind, self.shard)
        if self.kind == subjects.CHANGES:
            return subjects.changes_subject(self.shard, key.type, key.cluster)
        return subjects.subject_of(self.kind, self.shard, key)

    @property
    def intact(self) -> bool:
        """Whether the payload has the checksum that the shard's writer computed for the record."""
        return bool(crc32c(checksummed(self.payload, self.hole)) == self.crc)


def checksummed(payload: bytes, hole: int) -> bytes:
    """The bytes that the checksum covers: the payload with the digits at `hole` zeroed (-1: as it is)."""
    if hole == NO_HOLE:
        return payload
    return b"".join((payload[:hole], _ZEROES, payload[hole + HOLE_SIZE :]))


def statement_of(event: Event, subject: str, path: str) -> str:
    """`Event.statement` of an event with this subject, whose key has this path."""
    content, operation = _SEALED if event.sealed else _JSON, _NAMES[event.operation]
    return (
        f"{subject}\n{path}\n{operation}\n{event.shard_uid}\n{event.lineage}\n{event.epoch}\n{event.revision}\n"
        f"{event.previous}\n{event.crc:08x}\n{event.hole}\n{event.filling}\n{event.phase}\n{content}"
    )


# --- headers ---------------------------------------------------------------------------------------------


def header_lines(event: Event, path: str) -> list[str]:
    """Headers in the order they are sent, `<name>: <value>` each; `path` is that of the event's key. Transport headers
    (dedupe, expected sequence, TTL) and those of the signature are the sender's."""
    revision = event.revision
    lines = [
        "ce-specversion: 1.0",
        f"ce-id: {event.shard_uid}-{event.lineage}-{revision}",
        f"ce-source: /shards/{event.shard}/{event.kind}",
        f"ce-type: {_EVENT_TYPES[event.operation]}",
        # A revision counts microseconds since 1970, so the moment of an event needs no clock of its own.
        f"ce-time: {_second(revision // 1_000_000)}.{revision % 1_000_000:06d}Z",
        f"Atoll-Operation: {_NAMES[event.operation]}",
        f"Atoll-Shard-Uid: {event.shard_uid}",
        f"Atoll-Lineage: {event.lineage}",
        f"Atoll-Epoch: {event.epoch}",
        f"Atoll-Revision: {revision}",
        f"Atoll-Previous: {event.previous}",
        f"Atoll-Crc32c: {event.crc:08x}",
    ]
    if event.key is not None:
        lines.append(f"ce-subject: {path}")
    if event.payload:
        lines.append(f"content-type: {_SEALED if event.sealed else _JSON}")
    if event.hole != NO_HOLE:
        lines.append(f"Atoll-Hole: {event.hole}")
    if event.phase:
        lines.append(f"Atoll-Phase: {event.phase}")
    if event.filling:
        lines.append(f"{_FILLING}: {event.filling}")
    return lines


def decode(subject: str, headers: Mapping[str, str] | None, payload: bytes) -> Event:
    """The event of a message, its checksum not yet looked at (`intact`). Raises Malformed. Unknown headers
    are ignored, so that a later version may add some."""
    try:
        event = _decode(subjects.parse(subject), headers or {}, payload)
    except (KeyError, ValueError) as error:
        raise Malformed(f"not an event on {subject!r}: {error}") from error
    if event.subject != subject:
        raise Malformed(f"an event of {event.subject!r} on {subject!r}")
    return event


def decode_delivered(subject: str, headers: Mapping[str, str] | None, payload: bytes) -> Event:
    """`decode` for a message of a shard's stream. Raises Malformed for a message that its shard cannot have sent.

    A user that manages a stream can make it republish its messages under other subjects, those of another shard
    included. The server adds a header to such messages that a client cannot remove.
    """
    if headers and _REPUBLISHED in headers:
        raise Malformed(f"republished by another stream: {subject!r}")
    return decode(subject, headers, payload)


def _decode(where: subjects.Subject, headers: Mapping[str, str], payload: bytes) -> Event:
    operation = Operation[headers["Atoll-Operation"]]
    if (operation in (Operation.RESYNC, Operation.FENCE)) != (where.type is None):
        raise ValueError(f"{operation.name} does not belong there")
    if headers["ce-source"] != f"/shards/{where.shard}/{where.kind}":
        raise ValueError(f"from {headers['ce-source']!r}")
    return Event(
        kind=where.kind,
        operation=operation,
        shard=where.shard,
        shard_uid=headers["Atoll-Shard-Uid"],
        lineage=headers["Atoll-Lineage"],
        epoch=int(headers["Atoll-Epoch"]),
        revision=int(headers["Atoll-Revision"]),
        previous=int(headers["Atoll-Previous"]),
        key=None if where.type is None else _parse_key_path(headers["ce-subject"]),
        payload=payload,
        sealed=headers.get("content-type") == _SEALED,
        hole=int(headers.get("Atoll-Hole", NO_HOLE)),
        crc=int(headers["Atoll-Crc32c"], 16),
        phase=Phase(headers.get("Atoll-Phase", "")),
        filling=int(headers.get(_FILLING, 0)),
        signature=signatures.decode(headers),
    )


def _event_type(operation: Operation) -> str:
    about = "stream" if operation in (Operation.RESYNC, Operation.FENCE) else "object"
    return f"atoll.{about}.{operation.name.lower()}.v1"


_EVENT_TYPES = {operation: _event_type(operation) for operation in Operation}


@lru_cache(maxsize=4)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").removesuffix("+00:00")


def key_path(key: ObjectKey | None) -> str:
    """A key as text, in `ce-subject` and in the statement; empty without one."""
    if key is None:
        return ""
    parts = (key.cluster, key.type.identity, key.type.group, key.type.resource, key.namespace, key.name)
    path = "/".join(parts)
    if _PLAIN_PATH.match(path) and path.count("/") == len(parts) - 1:
        return path
    return "/".join(part if _PLAIN.match(part) else quote(part, safe=_SAFE) for part in parts)


def _parse_key_path(path: str) -> ObjectKey:
    cluster, identity, group, resource, namespace, name = (unquote(part) for part in path.split("/"))
    return ObjectKey(ResourceType(group, resource, identity), cluster, namespace, name)
