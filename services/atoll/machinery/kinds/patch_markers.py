"""Schemas of Kubernetes' own kinds that hold nothing but the markers of strategic merge patches.

The catalogue's merge types compile them for kinds that a definition serves. A message becomes a schema when a value
reaches it. Invariant: nothing is read before a patch of such a kind arrives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from atoll.machinery.kinds import protobuf_table as table
from atoll.machinery.kinds.protobuf_values import READERS
from atoll.machinery.meta.objects import Object

_MAP = "map<string,"


class Messages(Mapping[str, Object]):
    """Messages as schemas, by name; each look-up makes its own."""

    def __getitem__(self, name: str) -> Object:
        if name in READERS or not table.has_rows(name):
            raise KeyError(name)
        return {"type": "object", "properties": {each: _field(row) for each, row in table.merging_rows(name).items()}}

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def schema_of(api_version: str, kind: str) -> Object | None:
    """Return the schema of a kind, whose references `Messages` resolves; None for a kind that is not known."""
    message = table.message_of(api_version, kind)
    return Messages()[message] if message is not None else None


def _field(row: table.Row) -> Object:
    found = {"type": "array", "items": _value(row.type)} if row.repeated else _value(row.type)
    if row.strategy:
        found["x-kubernetes-patch-strategy"] = row.strategy
    if row.key:
        found["x-kubernetes-patch-merge-key"] = row.key
    return found


def _value(type: str) -> Object:
    if type.startswith(_MAP):
        return {"type": "object", "additionalProperties": _value(type[len(_MAP) : -1])}
    return {"$ref": type} if "." in type else {}
