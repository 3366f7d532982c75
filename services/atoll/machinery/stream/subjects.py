"""Subjects of the two streams, encoded and parsed.

The publisher encodes each event's subject, consumers build filters and parse, and the server's permissions use the
same tokens. Invariant: any string becomes exactly one token without `.`, `*`, `>`, white space or control characters,
and parsing returns the same string. A token in another form than `escape` writes is refused, so two spellings never
mean one thing.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import lru_cache

import msgspec

from atoll.machinery.meta.names import ObjectKey, ResourceType

CHANGES = "changes"
STATE = "state"
KINDS = (CHANGES, STATE)
#: The token that follows the shard in the subject of RESYNC and FENCE.
CONTROL = "-"

_ROOT = "atoll"
_CORE_GROUP = "core"
_EMPTY = "="
_UNSAFE = re.compile(r"[^a-zA-Z0-9:-]")
_ESCAPED = re.compile(r"=([0-9A-F]{2})")
_TOKEN = re.compile(r"(?:[a-zA-Z0-9:_-]|=[0-9A-F]{2})+\Z")
_SHARD = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")


class Subject(msgspec.Struct, frozen=True):
    """A parsed subject. `type` is None for the control subject; `digest` is empty on the changes stream."""

    kind: str
    shard: str
    type: ResourceType | None = None
    cluster: str = ""
    digest: str = ""


def _escape_one(match: re.Match[str]) -> str:
    character = match.group()
    return "_" if character == "." else "".join(f"={byte:02X}" for byte in character.encode())


def escape(text: str) -> str:
    """Return one subject token for any text. Dots become `_`, other unsafe bytes `=XX`, the empty text `=`."""
    return _UNSAFE.sub(_escape_one, text) if text else _EMPTY


def unescape(token: str) -> str:
    """Return the text of a token. Raises ValueError for one that `escape` does not write."""
    if token == _EMPTY:
        return ""
    if not _TOKEN.match(token):
        raise ValueError(f"not a token: {token!r}")
    data = _ESCAPED.sub(lambda match: chr(int(match.group(1), 16)), token.replace("_", "."))
    text = data.encode("latin-1").decode()
    if escape(text) != token:
        raise ValueError(f"not in canonical form: {token!r}")
    return text


def escape_group(group: str) -> str:
    """Return the token of an API group. The core group is `core`; a group of that very name is escaped."""
    if group == _CORE_GROUP:
        return f"={ord(group[0]):02X}{group[1:]}"
    return escape(group) if group else _CORE_GROUP


def unescape_group(token: str) -> str:
    if token == _CORE_GROUP:
        return ""
    if token == escape_group(_CORE_GROUP):
        return _CORE_GROUP
    return unescape(token)


def check_shard(shard: str) -> str:
    """Return the shard's name. Raises ValueError unless it is one DNS label, which needs no escaping."""
    if not _SHARD.match(shard):
        raise ValueError(f"a shard's name must be one DNS label: {shard!r}")
    return shard


def is_shard_name(name: str) -> bool:
    """Whether a shard can have this name."""
    return bool(_SHARD.match(name))


def stream_name(kind: str, shard: str) -> str:
    """The JetStream stream that holds a shard's changes or its state."""
    return f"{_ROOT}-{kind}-{shard}"


def control_subject(kind: str, shard: str) -> str:
    """The subject of RESYNC and FENCE. Every consumer includes it in its filters."""
    return f"{_ROOT}.{kind}.{shard}.{CONTROL}"


@lru_cache(maxsize=1024)
def _typed(kind: str, shard: str, type: ResourceType) -> str:
    return f"{_ROOT}.{kind}.{shard}.{escape(type.identity)}.{escape_group(type.group)}.{escape(type.resource)}"


@lru_cache(maxsize=1024)
def changes_subject(shard: str, type: ResourceType, cluster: str) -> str:
    """The subject of a type's changes in one cluster. Cached: a subject is shorter than NATS' limit of 4 KiB."""
    return f"{_typed(CHANGES, shard, type)}.{escape(cluster)}"


def state_subject(shard: str, key: ObjectKey) -> str:
    return f"{_typed(STATE, shard, key.type)}.{escape(key.cluster)}.{name_digest(key.namespace, key.name)}"


def name_digest(namespace: str, name: str) -> str:
    """160 bits of SHA-256 over `namespace/name` in base32: a token of 32 characters for any name."""
    digest = hashlib.sha256(f"{namespace}/{name}".encode()).digest()[:20]
    return base64.b32encode(digest).decode().lower()


def subject_of(kind: str, shard: str, key: ObjectKey) -> str:
    """The subject of an event about this object on one of the two streams."""
    return state_subject(shard, key) if kind == STATE else changes_subject(shard, key.type, key.cluster)


def all_subjects(kind: str, shard: str) -> tuple[str, ...]:
    """The filter that selects all of a stream."""
    return (f"{_ROOT}.{kind}.{shard}.>",)


def filters(
    kind: str, shard: str, *, identity: str = "", type: ResourceType | None = None, cluster: str = ""
) -> tuple[str, ...]:
    """Filters for one identity, one type, one cluster or a mix, with the control subject; all if none is set."""
    if not (identity or type or cluster):
        return all_subjects(kind, shard)
    middle = (
        _typed(kind, shard, type) if type else f"{_ROOT}.{kind}.{shard}.{escape(identity) if identity else '*'}.*.*"
    )
    last = escape(cluster) if cluster else "*"
    tail = f"{last}.*" if kind == STATE else last
    return (f"{middle}.{tail}", control_subject(kind, shard))


def resource_filter(kind: str, shard: str, group: str, resource: str) -> str:
    """The filter of a resource under every identity. It needs `control_subject` beside it."""
    return f"{_ROOT}.{kind}.{shard}.*.{escape_group(group)}.{escape(resource)}.>"


def group_filter(kind: str, shard: str, group: str) -> str:
    """The filter of all resources of a group. It needs `control_subject` beside it."""
    return f"{_ROOT}.{kind}.{shard}.*.{escape_group(group)}.>"


def parse(subject: str) -> Subject:
    """Parse a subject. Raises ValueError for one that no publisher of a shard writes."""
    root, _, rest = subject.partition(".")
    tokens = rest.split(".")
    if root != _ROOT or len(tokens) < 3 or tokens[0] not in KINDS:
        raise ValueError(f"not a subject of a shard: {subject!r}")
    kind, shard = tokens[0], check_shard(tokens[1])
    if tokens[2:] == [CONTROL]:
        return Subject(kind, shard)
    if len(tokens) != (7 if kind == STATE else 6):
        raise ValueError(f"wrong number of tokens: {subject!r}")
    type = ResourceType(unescape_group(tokens[3]), unescape(tokens[4]), unescape(tokens[2]))
    return Subject(kind, shard, type, unescape(tokens[5]), tokens[6] if kind == STATE else "")
