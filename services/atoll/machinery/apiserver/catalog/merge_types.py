"""The merge types of kinds, for field ownership and patches: compiled on first use, shared, bounded."""

from __future__ import annotations

from functools import lru_cache

from atoll.machinery.kinds.kind import Kind, Schema
from atoll.machinery.meta.objects import Object
from atoll.machinery.patch.managedfields.options import ResetFields, SchemaLookup, reset_fields, reset_paths
from atoll.machinery.patch.structuredmerge.topology import TypeSchema, type_schema

#: A kind without a schema: maps are granular, lists atomic.
_OPEN: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


class _ByIdentity:
    """A schema as a cache key, by object identity: schemas are shared values."""

    __slots__ = ("schema",)

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    def __hash__(self) -> int:
        return id(self.schema)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and other.schema is self.schema


@lru_cache(maxsize=512)
def _compiled(key: _ByIdentity) -> TypeSchema:
    return type_schema(key.schema.source, key.schema.definitions)


@lru_cache(maxsize=1)
def _open() -> TypeSchema:
    return type_schema(_OPEN, {})


def type_schema_of(kind: Kind) -> TypeSchema:
    """Return the merge type of a kind's version."""
    return _compiled(_ByIdentity(kind.schema)) if kind.schema is not None else _open()


def reset_of(kind: Kind, subresource: str) -> ResetFields:
    """Return the fields that a write through a subresource ("": the object) cannot own."""
    paths = kind.resets.get(subresource)
    return reset_fields(subresource, kind.has_status) if paths is None else reset_paths(*paths)


def schemas_of(kind: Kind) -> SchemaLookup | None:
    """Return the look-up of merge types by apiVersion, None for a removed version; None for built-in kinds."""
    if not kind.versions:
        return None

    def find(api_version: str) -> TypeSchema | None:
        schema = kind.versions.get(api_version)
        return _compiled(_ByIdentity(schema)) if schema is not None else None

    return find
