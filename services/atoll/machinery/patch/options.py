"""What a write may say about tracking: which fields its endpoint takes, and the kind's other versions.

The verb handlers fill these in; update and apply read them. Invariant: with the defaults a kind has one
version and its endpoint takes every field.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from atoll.machinery.meta.objects import Object
from atoll.machinery.patch.compare import Comparison
from atoll.machinery.patch.fieldset import FieldSet
from atoll.machinery.patch.topology import TypeSchema

#: An object and an apiVersion to the object in that version; its own apiVersion says what it is now.
Convert: TypeAlias = Callable[[Object, str], Object]
#: An apiVersion to its schema; None when that version is not served any more.
Schemas: TypeAlias = Callable[[str], TypeSchema | None]


class Reset(msgspec.Struct, frozen=True):
    """Top-level fields an endpoint ignores: those in `dropped`, or all but those in `kept`."""

    dropped: frozenset[str] = frozenset()
    kept: frozenset[str] | None = None

    def filter(self, fields: FieldSet) -> FieldSet:
        """The set without what the endpoint ignores."""
        if not self.dropped and self.kept is None:
            return fields
        return {element: node for element, node in fields.items() if self._takes(element[2:])}

    def filter_all(self, comparison: Comparison) -> Comparison:
        if not self.dropped and self.kept is None:
            return comparison
        return Comparison(*(self.filter(fields) for fields in comparison))

    def _takes(self, name: str) -> bool:
        return name not in self.dropped and (self.kept is None or name in self.kept)


TAKES_ALL = Reset()
_MAIN_WITH_STATUS = Reset(dropped=frozenset({"status"}))
_STATUS = Reset(kept=frozenset({"status"}))


def reset_fields(subresource: str, has_status: bool) -> Reset:
    """What an endpoint of a kind ignores: status on the main one, all but status on `/status`."""
    if subresource == "status":
        return _STATUS
    return _MAIN_WITH_STATUS if has_status and not subresource else TAKES_ALL


class TrackOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How ownership is tracked.

    `schemas` None: every version of the kind has the schema of the request. `convert` None: objects look
    alike in all versions.
    """

    reset: Reset = TAKES_ALL
    convert: Convert | None = None
    schemas: Schemas | None = None


class ApplyOptions(TrackOptions, frozen=True, kw_only=True):
    """One apply. `force` takes conflicting fields from their owners; `now` is RFC 3339 in UTC."""

    force: bool = False
    now: str


class Versions:
    """The kind's versions as seen from one request."""

    def __init__(self, api_version: str, schema: TypeSchema, options: TrackOptions) -> None:
        self.own = api_version
        self._schema = schema
        self._options = options

    def schema(self, api_version: str) -> TypeSchema | None:
        """None when the version is gone."""
        if api_version == self.own or self._options.schemas is None:
            return self._schema
        return self._options.schemas(api_version)

    def convert(self, obj: Object, api_version: str) -> Object:
        """The object in that version, itself if it is in it already."""
        if self._options.convert is None or obj.get("apiVersion") == api_version:
            return obj
        return self._options.convert(obj, api_version)
