"""What a write may say about tracking: which fields its endpoint takes, and the kind's other versions.

The verb handlers fill these in; update and apply read them. Invariant: with the defaults a kind has one
version and its endpoint takes every field.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

import msgspec

from atoll.machinery.meta.objects import Object
from atoll.machinery.patch.fieldset import EMPTY, LEAF, FieldSet, from_paths, recursive_difference
from atoll.machinery.patch.structuredmerge.comparison import Comparison
from atoll.machinery.patch.structuredmerge.topology import TypeSchema

#: An object and an apiVersion to the object in that version; its own apiVersion says what it is now.
Convert: TypeAlias = Callable[[Object, str], Object]
#: An apiVersion to its schema; None when that version is not served any more.
Schemas: TypeAlias = Callable[[str], TypeSchema | None]


class Reset(msgspec.Struct, frozen=True):
    """Fields an endpoint ignores: those in `dropped` with all beneath, and top-level ones that are not in `kept`."""

    dropped: FieldSet = EMPTY
    kept: frozenset[str] | None = None

    def filter(self, fields: FieldSet) -> FieldSet:
        """The set without what the endpoint ignores."""
        if self.kept is not None:
            fields = {element: node for element, node in fields.items() if element[2:] in self.kept}
        return recursive_difference(fields, self.dropped)

    def filter_all(self, comparison: Comparison) -> Comparison:
        if self is TAKES_ALL:
            return comparison
        return Comparison(*(self.filter(fields) for fields in comparison))


TAKES_ALL = Reset()
_MAIN_WITH_STATUS = Reset(dropped={"f:status": LEAF})
_STATUS = Reset(kept=frozenset({"status"}))


def reset_fields(subresource: str, has_status: bool) -> Reset:
    """What an endpoint of a kind ignores: status on the main one, all but status on `/status`."""
    if subresource == "status":
        return _STATUS
    return _MAIN_WITH_STATUS if has_status and not subresource else TAKES_ALL


@lru_cache(maxsize=64)
def reset_paths(*paths: str) -> Reset:
    """What an endpoint ignores that leaves these dotted paths as they are."""
    return Reset(dropped=from_paths([tuple(f"f:{name}" for name in path.split(".")) for path in paths]))


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
