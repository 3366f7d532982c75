"""Tables of messages: the fields of Kubernetes' kinds by number, and how strategic merge patches treat their lists.

`protobuf` decodes and `protobuf_encoder` encodes by them, `patch_markers` reads the markers. Invariant: the table of
kinds that only definitions serve is read when a body or a patch of one of them arrives, not before.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import msgspec

from atoll.machinery.process.resources import schema_path


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One field. `omitempty`: Go omits a zero value from its JSON. `strategy`, `key`: markers of patches."""

    number: int
    name: str
    type: str
    repeated: bool = False
    inline: bool = False
    omitempty: bool = False
    strategy: str = ""
    key: str = ""


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kinds: dict[str, dict[str, str]]
    messages: dict[str, list[Row]]


@cache
def _builtin() -> _Table:
    return _read("protobuf.json")


@cache
def _custom() -> _Table:
    edited, made = _read("protobuf_custom.json"), _read("kubernetes", "protobuf.json")
    return _Table(edited.kinds | made.kinds, edited.messages | made.messages)


def _read(*names: str) -> _Table:
    return msgspec.json.decode(schema_path("native", *names).read_bytes(), type=_Table)


def message_of(api_version: str, kind: str) -> str | None:
    """Return the name of a kind's message; None if it is not known."""
    return _builtin().kinds.get(api_version, {}).get(kind) or _custom().kinds.get(api_version, {}).get(kind)


def rows_of(message: str) -> list[Row]:
    """Return the fields of a message of the tables."""
    rows = _builtin().messages.get(message)
    return _custom().messages[message] if rows is None else rows


def has_rows(message: str) -> bool:
    return message in _builtin().messages or message in _custom().messages


@cache
def merging_rows(message: str) -> Mapping[str, Row]:
    """Return the fields of a message by their names in JSON, those of inlined messages too."""
    found: dict[str, Row] = {}
    for row in rows_of(message):
        found.update(merging_rows(row.type) if row.inline else {row.name: row})
    return found
