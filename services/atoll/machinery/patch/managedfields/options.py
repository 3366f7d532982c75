"""Options of field tracking: the fields that an endpoint resets, and the other versions of the kind.

The verb handlers set them; `update` and `apply` read them. Invariant: with the defaults a kind has one version and its
endpoint resets no field.
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

#: Convert an object, whose apiVersion is its current version, to another apiVersion.
Converter: TypeAlias = Callable[[Object, str], Object]
#: Return the schema of an apiVersion; None when that version is no longer served.
SchemaLookup: TypeAlias = Callable[[str], TypeSchema | None]


class ResetFields(msgspec.Struct, frozen=True):
    """Fields that an endpoint ignores: those in `reset` with their descendants, and, if `except_top_level` is set,
    every top-level field not in it.
    """

    reset: FieldSet = EMPTY
    except_top_level: frozenset[str] | None = None

    def filter(self, fields: FieldSet) -> FieldSet:
        """Return the set without the fields that the endpoint ignores."""
        if self.except_top_level is not None:
            fields = {element: node for element, node in fields.items() if element[2:] in self.except_top_level}
        return recursive_difference(fields, self.reset)

    def filter_all(self, comparison: Comparison) -> Comparison:
        """Return the comparison without the fields that the endpoint ignores."""
        added, modified = self.filter(comparison.added), self.filter(comparison.modified)
        return Comparison(added, modified, self.filter(comparison.removed))


NO_RESET = ResetFields()
_RESET_STATUS = ResetFields(reset={"f:status": LEAF})
_RESET_ALL_BUT_STATUS = ResetFields(except_top_level=frozenset({"status"}))


def reset_fields(subresource: str, has_status: bool) -> ResetFields:
    """Return the fields that an endpoint of a kind ignores: status on the main one, all but status on `/status`."""
    if subresource == "status":
        return _RESET_ALL_BUT_STATUS
    return _RESET_STATUS if has_status and not subresource else NO_RESET


@lru_cache(maxsize=64)
def reset_paths(*paths: str) -> ResetFields:
    """Return the reset fields of an endpoint that ignores these dotted paths."""
    return ResetFields(reset=from_paths([tuple(f"f:{name}" for name in path.split(".")) for path in paths]))


class TrackOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How ownership is tracked.

    `schemas` None: every version of the kind has the schema of the request. `convert` None: objects are the same in
    all versions.
    """

    reset: ResetFields = NO_RESET
    convert: Converter | None = None
    schemas: SchemaLookup | None = None


class ApplyOptions(TrackOptions, frozen=True, kw_only=True):
    """Options of one apply. `force` takes conflicting fields from their owners; `now` is RFC 3339 in UTC."""

    force: bool = False
    now: str


class Versions:
    """The versions of the kind of a request; `own` is the version of the request."""

    def __init__(self, api_version: str, schema: TypeSchema, options: TrackOptions) -> None:
        self.own = api_version
        self._schema = schema
        self._options = options
        #: Whether objects differ between versions.
        self.are_converted = options.convert is not None

    def schema(self, api_version: str) -> TypeSchema | None:
        """Return the schema of a version; None when it is no longer served."""
        if api_version == self.own or self._options.schemas is None:
            return self._schema
        return self._options.schemas(api_version)

    def convert(self, obj: Object, api_version: str) -> Object:
        """Return the object in this version, unchanged if it has it already."""
        if self._options.convert is None or obj.get("apiVersion") == api_version:
            return obj
        return self._options.convert(obj, api_version)
