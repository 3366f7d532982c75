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
Converter: TypeAlias = Callable[[Object, str], Object]
#: An apiVersion to its schema; None when that version is not served any more.
SchemaLookup: TypeAlias = Callable[[str], TypeSchema | None]


class ResetFields(msgspec.Struct, frozen=True):
    """Fields an endpoint ignores: those in `dropped` with all beneath, and top-level ones that are not in `kept`."""

    reset: FieldSet = EMPTY
    except_top_level: frozenset[str] | None = None

    def filter(self, fields: FieldSet) -> FieldSet:
        """The set without what the endpoint ignores."""
        if self.except_top_level is not None:
            fields = {element: node for element, node in fields.items() if element[2:] in self.except_top_level}
        return recursive_difference(fields, self.reset)

    def filter_all(self, comparison: Comparison) -> Comparison:
        if self is NO_RESET:
            return comparison
        return Comparison(*(self.filter(fields) for fields in comparison))


NO_RESET = ResetFields()
_RESET_STATUS = ResetFields(reset={"f:status": LEAF})
_RESET_ALL_BUT_STATUS = ResetFields(except_top_level=frozenset({"status"}))


def reset_fields(subresource: str, has_status: bool) -> ResetFields:
    """What an endpoint of a kind ignores: status on the main one, all but status on `/status`."""
    if subresource == "status":
        return _RESET_ALL_BUT_STATUS
    return _RESET_STATUS if has_status and not subresource else NO_RESET


@lru_cache(maxsize=64)
def reset_paths(*paths: str) -> ResetFields:
    """What an endpoint ignores that leaves these dotted paths as they are."""
    return ResetFields(reset=from_paths([tuple(f"f:{name}" for name in path.split(".")) for path in paths]))


class TrackOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How ownership is tracked.

    `schemas` None: every version of the kind has the schema of the request. `convert` None: objects look
    alike in all versions.
    """

    reset: ResetFields = NO_RESET
    convert: Converter | None = None
    schemas: SchemaLookup | None = None


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
